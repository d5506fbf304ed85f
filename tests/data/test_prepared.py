"""Arrays that are made once."""

import numpy as np
import pytest

from mirrormargin.data.prepared import prepare

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
