"""Files on this machine: found, verified, and arrays that are kept."""

import hashlib
import os

import numpy as np
import pytest

from mirrormargin.data.files import (
    Source,
    compute_sha256,
    find_cache,
    find_files,
    list_folders,
    prepare,
    verify,
)
from mirrormargin.errors import DataError

CONTENTS = b"some rows\n"
SOURCE = Source("set/rows.txt", len(CONTENTS), hashlib.sha256(CONTENTS).hexdigest())


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data" / "set" / "rows.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENTS)
    return path


def test_a_whole_file_is_found_with_its_digest(path):
    file = verify(SOURCE, path)
    assert (file.name, file.path, file.sha256) == (SOURCE.name, path, SOURCE.sha256)


def test_a_short_file_is_refused_by_name(path):
    path.write_bytes(CONTENTS[:-1])
    with pytest.raises(DataError, match=r"rows.txt is damaged: it has 9 bytes, not 10; replace it"):
        verify(SOURCE, path)


def test_a_changed_file_is_refused_by_name(path):
    verify(SOURCE, path)
    path.write_bytes(CONTENTS[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"rows.txt is damaged: its sha256 is .* download=True"):
        verify(SOURCE, path)


def test_a_change_that_keeps_size_and_time_is_noticed(path):
    assert compute_sha256(path) == SOURCE.sha256
    status = path.stat()
    path.write_bytes(CONTENTS[::-1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compute_sha256(path) == hashlib.sha256(CONTENTS[::-1]).hexdigest()


def test_without_a_cache_files_are_verified_all_the_same(path, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert verify(SOURCE, path).sha256 == SOURCE.sha256


def test_a_layout_may_lie_in_several_folders(path, tmp_path):
    other = tmp_path / "more" / "set" / "labels.txt"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"1\n")
    layout = (SOURCE, Source("set/labels.txt"))
    folders = [tmp_path / "data", tmp_path / "more"]
    files = find_files(layout, folders)
    assert files is not None
    assert [file.path for file in files] == [path, other]
    assert find_files(layout, folders[:1]) is None


def test_the_argument_goes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRRORMARGIN_DATA", str(tmp_path / "variable"))
    downloads = find_cache() / "data"
    assert list_folders(tmp_path / "given") == [tmp_path / "given", downloads]
    assert list_folders() == [tmp_path / "variable", downloads]
    monkeypatch.delenv("MIRRORMARGIN_DATA")
    assert list_folders() == [downloads]


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_cache() == tmp_path / ".cache" / "mirrormargin"


ARRAYS = {"train/ids": np.arange(5, dtype=np.uint16), "labels": np.array([1, 0])}


class Maker:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return dict(ARRAYS), f"a note, naïve, of call {self.calls}"


def test_what_comes_from_the_cache_is_what_was_made():
    make = Maker()
    first, second = prepare({"name": "x"}, make), prepare({"name": "x"}, make)
    assert make.calls == 1
    assert first[1] == second[1]
    for name, array in ARRAYS.items():
        assert first[0][name].dtype == second[0][name].dtype == array.dtype
        assert first[0][name].tolist() == second[0][name].tolist() == array.tolist()
    assert first[0].keys() == second[0].keys()


def test_another_key_is_made_anew():
    make = Maker()
    prepare({"name": "x", "sha256": "1"}, make)
    prepare({"name": "x", "sha256": "2"}, make)
    assert make.calls == 2


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", None])
def test_a_damaged_file_is_made_anew(cache, damage):
    make = Maker()
    prepare({"name": "x"}, make)
    (path,) = (cache / "prepared").iterdir()
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 255
    path.write_bytes(bytes(contents) if damage is None else damage)
    arrays, _ = prepare({"name": "x"}, make)
    assert arrays["train/ids"].tolist() == [0, 1, 2, 3, 4]
    prepare({"name": "x"}, make)
    assert make.calls == 2


def test_without_a_cache_it_is_made_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make = Maker()
    assert prepare({"name": "x"}, make)[0].keys() == ARRAYS.keys()
    assert prepare({"name": "x"}, make)[0].keys() == ARRAYS.keys()
    assert make.calls == 2
