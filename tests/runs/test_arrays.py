"""Arrays from files of strangers: nothing is believed, nothing is taken without a limit."""

import io
import resource
import struct
import zipfile

import numpy as np
import pytest

from mirrormargin.errors import ProblemError, RunError
from mirrormargin.runs import read_arrays, read_run, write_run
from mirrormargin.runs.arrays import FREE_BYTES, check_unpacked, pack_arrays

ARRAYS = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "texts": np.array(["a", "bcd"]),
    "flag": np.array(True),
    "nothing": np.zeros((0, 3)),
}


def pack_header(text: str, body: bytes = bytes(16)) -> bytes:
    header = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def write_member(path, contents, name="a.npy", **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr(name, contents)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read_back(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_arrays(tmp_path / "a.npz")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tolist() == array.tolist()
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f8', 'shape': (2,), }",
        "(" * 500,
        "__import__('os').system('true')",
        "{'descr': '<f8'\n  'fortran_order': ",
    ],
)
def test_a_header_is_compared_before_memory_is_taken(tmp_path, text):
    path = write_member(tmp_path / "a.npz", pack_header(text))
    with pytest.raises(ProblemError, match=r"a\.npz is damaged: .*npz file") as raised:
        read_arrays(path, error=ProblemError)
    assert "\n" not in str(raised.value)


def test_a_small_file_that_unpacks_to_much_is_refused_at_once(tmp_path):
    """Four megabytes that would take gigabytes."""
    path = tmp_path / "bomb.npz"
    header = pack_header("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", b"")
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as file,
    ):
        file.write(header)
        for _ in range(300):
            file.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match="unpacks to more than 268,435,456"):
        read_arrays(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_directory_that_understates_its_members_is_refused(tmp_path):
    """The size in the archive's directory is what limits memory, so more than that is damage."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(1000))
    contents = bytearray(path.read_bytes())
    entry = contents.find(b"PK\x01\x02")
    struct.pack_into("<I", contents, entry + 24, 500)
    path.write_bytes(contents)
    with pytest.raises(RunError, match="is damaged"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (8, 1, "is encrypted"),
        (10, 97, "compressed by a method"),
        (10, 12, "compressed by a method"),
    ],
)
def test_encryption_and_unknown_compression_are_named(tmp_path, position, value, message):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3))
    contents = bytearray(path.read_bytes())
    struct.pack_into("<H", contents, contents.find(b"PK\x01\x02") + position, value)
    path.write_bytes(contents)
    with pytest.raises(RunError, match=message):
        read_arrays(path)


def test_a_name_twice_and_other_files_are_refused(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(2))
    path = write_member(tmp_path / "a.npz", buffer.getvalue())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.npy", buffer.getvalue())
    with pytest.raises(RunError, match="it holds 'a' twice"):
        read_arrays(path)
    with pytest.raises(RunError, match=r"'notes.txt' in it is no .npy file"):
        read_arrays(write_member(tmp_path / "b.npz", b"x", "notes.txt"))


def test_any_flipped_bit_is_an_error_or_changes_nothing(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.arange(20.0))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(whole), 300, replace=False):
        contents = bytearray(whole)
        contents[bit // 8] ^= 1 << bit % 8
        path.write_bytes(contents)
        try:
            found = read_arrays(path)
        except RunError:
            continue
        assert all(array.tolist() == list(range(20)) for array in found.values())


def test_our_own_arrays_are_never_taken_for_a_bomb(tmp_path):
    """What compresses beyond the limit is stored as it is."""
    zeros = {"a": np.zeros(FREE_BYTES // 8, np.uint8).repeat(8)}
    contents = pack_arrays(zeros)
    check_unpacked("a", 2 * FREE_BYTES, len(contents))
    assert len(contents) > FREE_BYTES
    write_run(tmp_path, "walk", {}, {"a": np.zeros(1000)})
    assert read_run(tmp_path, "walk")[1]["a"].shape == (1000,)
