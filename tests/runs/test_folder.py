"""Runs on disk: whole or not at all, and damage is noticed."""

import hashlib
import io
import json
import os
import pickle
import random
import warnings

import numpy as np
import pytest

from mirrormargin.errors import RunError
from mirrormargin.runs import check_writable, read_run, seal, write_atomically, write_run

ARRAYS = {
    "reals": np.array([[1.5, np.nan], [np.inf, -0.0]]),
    "integers": np.arange(5),
    "words": np.array(["a", "tree"]),
    "nothing": np.zeros((0, 3)),
    "state.flag": np.array(True),
}
DOCUMENT = {"settings": {"p": [1.5, 2.0], "name": "é", "none": None}, "count": 3}


def write(folder, kind="walk", document=DOCUMENT, arrays=ARRAYS):
    write_run(folder, kind, document, arrays)


def edit(folder, change):
    path = folder / "run.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(seal(document)))


def arrays_file(folder):
    (path,) = folder.glob("arrays-*.npz")
    return path


@pytest.mark.parametrize("convert", [str, lambda path: path])
def test_a_run_comes_back(tmp_path, convert):
    folder = convert(tmp_path / "new" / "folder")
    write(folder)
    document, arrays = read_run(folder, "walk")
    assert {key: document[key] for key in DOCUMENT} == DOCUMENT
    assert arrays.keys() == ARRAYS.keys()
    for name, expected in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], expected)
        assert arrays[name].dtype == expected.dtype
        assert arrays[name].shape == expected.shape
    assert np.signbit(arrays["reals"][1, 1])


def test_a_folder_holds_a_document_and_one_file_of_arrays(tmp_path):
    for count in (1, 2, 2, 3):
        write(tmp_path, arrays={"a": np.arange(count)})
        names = sorted(path.name for path in tmp_path.iterdir())
        assert len(names) == 2
        assert names[0].startswith("arrays-")
        assert names[1] == "run.json"
        assert read_run(tmp_path, "walk")[1]["a"].size == count


def test_the_same_run_gives_the_same_files(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_other_files_of_the_folder_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_interrupted_write_leaves_the_old_run(tmp_path, monkeypatch):
    write(tmp_path)

    def fail(source, target):
        if str(target).endswith("run.json"):
            raise KeyboardInterrupt
        replace(source, target)

    replace = os.replace
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, arrays={"a": np.arange(3)})
    assert read_run(tmp_path, "walk")[1].keys() == ARRAYS.keys()
    monkeypatch.undo()
    write(tmp_path, arrays={"a": np.arange(3)})
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("null", "is damaged"),
        ("{}", "is damaged.*kind"),
        ('{"kind": "walk", "format": 1}', "is damaged.*arrays"),
        ('{"kind": "walk", "format": 1, "arrays": {"file": 5, "sha256": "x"}}', "is damaged"),
        ('{"kind": "walk", "format": 1, "arrays": {"sha256": "x"}}', "is damaged.*file"),
        ("\xff", "is damaged"),
    ],
)
def test_a_damaged_document_is_noticed(tmp_path, text, message):
    write(tmp_path)
    (tmp_path / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=message):
        read_run(tmp_path, "walk")


def test_a_flipped_bit_of_the_arrays_is_noticed(tmp_path):
    write(tmp_path)
    path = arrays_file(tmp_path)
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))
    with pytest.raises(
        RunError, match=r"arrays-.* is damaged: its sha256 is not that of run\.json"
    ):
        read_run(tmp_path, "walk")


def test_truncated_and_missing_arrays_are_noticed(tmp_path):
    write(tmp_path)
    path = arrays_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(RunError, match="sha256"):
        read_run(tmp_path, "walk")
    path.unlink()
    with pytest.raises(RunError, match=r"arrays-.*cannot be read: No such file"):
        read_run(tmp_path, "walk")


def test_arrays_that_are_no_archive_are_noticed(tmp_path):
    write(tmp_path)
    arrays_file(tmp_path).write_bytes(b"PK no archive")
    digest = hashlib.sha256(b"PK no archive").hexdigest()
    edit(tmp_path, lambda document: document["arrays"].update(sha256=digest))
    with pytest.raises(RunError, match="is damaged"):
        read_run(tmp_path, "walk")


def test_a_document_cannot_name_a_file_elsewhere(tmp_path):
    write(tmp_path / "run")
    outside = tmp_path / "outside.npz"
    outside.write_bytes(arrays_file(tmp_path / "run").read_bytes())
    edit(tmp_path / "run", lambda document: document["arrays"].update(file="../outside.npz"))
    with pytest.raises(RunError, match="cannot be read"):
        read_run(tmp_path / "run", "walk")


def test_runs_of_another_kind_or_format_are_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(RunError, match=r"a run of kind 'walk' \(format 1\), not 'swim'"):
        read_run(tmp_path, "swim")
    edit(tmp_path, lambda document: document.update(format=2))
    with pytest.raises(RunError, match=r"kind 'walk' \(format 2\), not 'walk' \(format 1\)"):
        read_run(tmp_path, "walk")


def test_no_run_is_said(tmp_path):
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(RunError, match=r"holds no run: there is no run\.json in it"):
            read_run(folder, "walk")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be read: Not a directory"):
        read_run(tmp_path / "file", "walk")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    # A file in the way: the permissions of a folder do not stop root.
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="file cannot be made: File exists"):
        write(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be made: Not a directory"):
        write(tmp_path / "file" / "deeper")
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunError, match=r"run\.json cannot be written"):
        write(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        write_atomically(tmp_path / "file" / "deeper", lambda file: file.write(b"1"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fill(file):
        file.write(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="file cannot be written: No space left"):
        write_atomically(path, fill)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_run(tmp_path, monkeypatch):
    write(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RunError, match=r"arrays-.*cannot be written: No space left"):
        write(tmp_path, arrays={"a": np.arange(3)})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


class Dangerous:
    def __reduce__(self):
        return exec, ("raise SystemExit('ran')",)


def test_objects_are_neither_written_nor_read(tmp_path):
    objects = np.array([Dangerous()], dtype=object)
    with pytest.raises(RunError, match="array 'a' holds Python objects"):
        write(tmp_path / "run", arrays={"a": objects})
    assert not (tmp_path / "run").exists()
    with pytest.raises(SystemExit):  # it would run
        pickle.loads(pickle.dumps(Dangerous()))
    write(tmp_path / "run")
    buffer = io.BytesIO()
    np.savez(buffer, a=objects)
    arrays_file(tmp_path / "run").write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    edit(tmp_path / "run", lambda document: document["arrays"].update(sha256=digest))
    with pytest.raises(RunError, match=r"is damaged.*Python objects"):
        read_run(tmp_path / "run", "walk")


def test_a_document_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path, document={"x": float("nan")})


def test_a_file_that_cannot_be_written_is_known_before(tmp_path):
    (tmp_path / "file").write_text("mine")
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new")
    check_writable(tmp_path / "a" / "b" / "new", make_folders=True)
    assert {path.name for path in tmp_path.iterdir()} == {"file"}
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(RunError, match="cannot be written: it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(RunError, match=r"there is no folder .*a, make it first"):
        check_writable(tmp_path / "a" / "new")
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        check_writable(tmp_path / "file" / "new", make_folders=True)


def test_an_edited_or_flipped_document_is_noticed(tmp_path):
    write(tmp_path)
    path = tmp_path / "run.json"
    whole = path.read_bytes()
    right = read_run(tmp_path, "walk")[0]
    for bit in random.Random(0).sample(range(8 * len(whole)), 300):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the name of the checksum itself
                found = read_run(tmp_path, "walk")[0]
        except RunError:
            continue
        assert {key: found[key] for key in right} == right


@pytest.mark.filterwarnings("default")
def test_a_run_of_an_earlier_version_is_read_with_a_notice(tmp_path):
    write(tmp_path)
    path = tmp_path / "run.json"
    document = json.loads(path.read_text())
    del document["checksum"]
    path.write_text(json.dumps(document))
    with pytest.warns(UserWarning, match="has no checksum"):
        read_run(tmp_path, "walk")


def test_arrays_of_the_user_are_never_removed(tmp_path):
    names = ("arrays-mine.npz", "arrays-0123456789abcdef.npz", "thesis.npz")
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    write(tmp_path)
    own = read_run(tmp_path, "walk")[0]["arrays"]["file"]
    write(tmp_path, arrays={"a": np.arange(3)})
    assert not (tmp_path / own).exists()
    edit(tmp_path, lambda document: document["arrays"].update(file="thesis.npz"))
    write(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in names] == [b"mine"] * 3


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    write(tmp_path)
    named = arrays_file(tmp_path)
    left = tmp_path / "arrays-0123456789abcdef.npz"
    left.write_bytes(b"new arrays whose run.json was never written")
    (tmp_path / ".lock").write_text(f"{left.name} {named.name}")
    write(tmp_path, document={"count": 4})
    assert not left.exists()
    assert arrays_file(tmp_path) == named
    # Killed after run.json was replaced: the old arrays are left.
    (tmp_path / ".lock").write_text(f"{named.name} {left.name}")
    left.write_bytes(b"old arrays")
    write(tmp_path)
    assert not left.exists()
    assert read_run(tmp_path, "walk")[1].keys() == ARRAYS.keys()


def test_nothing_is_removed_while_the_document_cannot_be_read(tmp_path):
    write(tmp_path)
    named = arrays_file(tmp_path)
    (tmp_path / ".lock").write_text(f"arrays-0123456789abcdef.npz {named.name}")
    (tmp_path / "run.json").write_text("{")
    write(tmp_path, arrays={"a": np.arange(3)})
    assert named.exists()


def test_a_reader_takes_the_next_version_if_the_arrays_are_gone(tmp_path, monkeypatch):
    write(tmp_path)
    read_bytes = type(tmp_path).read_bytes
    is_replaced = []

    def replace_first(path):
        if path.suffix == ".npz" and not is_replaced:
            is_replaced.append(True)
            write(tmp_path, document={"count": 5}, arrays={"a": np.arange(9)})
        return read_bytes(path)

    monkeypatch.setattr(type(tmp_path), "read_bytes", replace_first)
    document, arrays = read_run(tmp_path, "walk")
    assert (document["count"], arrays["a"].size) == (5, 9)
