"""From a server to a data set: download, conversion, checks."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from mirrormargin.data import load_data, published
from mirrormargin.data.download import RemoteFile
from mirrormargin.data.files import Source
from mirrormargin.data.published import LAYOUTS, VOCABULARY
from mirrormargin.errors import DataError


def make_zip(rows):
    buffer = io.BytesIO()
    table = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("SST-2/train.tsv", table)
        file.writestr("SST-2/dev.tsv", "sentence\tlabel\na great film\t1\na dull film\t0\n")
    return buffer.getvalue()


@pytest.fixture
def sst2(server, data_dir, monkeypatch):
    """SST-2 in small, on the server, and what is known about it."""
    rows = [(f"the plot was {'good ' * (n % 7)}{'x ' * n}", n % 2) for n in range(60)]
    server.files["SST-2.zip"] = make_zip(rows)
    sha256 = hashlib.sha256(server.files["SST-2.zip"]).hexdigest()
    recipe = replace(
        published.RECIPES["sst2"],
        remotes=(RemoteFile(server.url("SST-2.zip"), "SST-2.zip", sha256=sha256),),
        counts={"sst2/sst2_train.jsonl": ("label", {0: 30, 1: 30})},
    )
    monkeypatch.setitem(published.RECIPES, "sst2", recipe)
    return recipe


def test_an_absent_set_is_fetched_once(sst2, server, cache):
    data = load_data("sst2", download=True)
    assert len(data.train) + len(data.validation) == 60
    assert len(data.test) == 2
    assert {"sst2/sst2_train.jsonl", "sst2/sst2_dev.jsonl"} < data.sha256.keys()
    again = load_data("sst2")
    assert again.train.inputs.equal(data.train.inputs)
    assert len(server.asked) == 1
    # The archive has served its purpose.
    assert not (cache / "downloads" / "SST-2.zip").exists()


def test_the_data_folder_is_left_as_it_was(sst2, data_dir):
    before = sorted(data_dir.rglob("*"))
    load_data("sst2", download=True)
    assert sorted(data_dir.rglob("*")) == before


def test_nothing_is_fetched_unasked(sst2, server):
    with pytest.raises(DataError, match="download=True"):
        load_data("sst2")
    assert server.asked == []


def test_other_counts_are_refused_and_nothing_is_left(sst2, server, cache, monkeypatch):
    counts = {"sst2/sst2_train.jsonl": ("label", {0: 31, 1: 29})}
    monkeypatch.setitem(published.RECIPES, "sst2", replace(sst2, counts=counts))
    with pytest.raises(DataError, match=r"sst2_train.jsonl is not what was published: label"):
        load_data("sst2", download=True)
    assert not list((cache / "data").rglob("*.jsonl"))


def test_other_contents_than_the_digest_are_refused(sst2, cache, monkeypatch):
    layout = (Source("sst2/sst2_train.jsonl", None, "0" * 64), Source("sst2/sst2_dev.jsonl"))
    monkeypatch.setitem(LAYOUTS, "sst2", (layout,))
    with pytest.raises(DataError, match=r"sst2_train.jsonl is damaged: its sha256"):
        load_data("sst2", download=True)
    assert not list((cache / "data").rglob("*.jsonl"))


def test_files_that_need_no_conversion_are_put_in_place(server, cache, monkeypatch):
    server.files["vocab.txt"] = b"[PAD]\n"
    digest = hashlib.sha256(b"[PAD]\n").hexdigest()
    remote = RemoteFile(server.url("vocab.txt"), VOCABULARY.name, 6, digest)
    monkeypatch.setitem(published.RECIPES, "vocabulary", published.Recipe((remote,)))
    published.make("vocabulary")
    assert (cache / "data" / "wordpiece" / "vocab.txt").read_bytes() == b"[PAD]\n"


def test_what_is_not_published_says_so(data_dir):
    with pytest.raises(DataError, match="digits is not published for download: there are"):
        published.make("digits")


def test_published_files_that_are_there_are_not_fetched(sst2, server, tmp_path):
    (tmp_path / "here").mkdir()
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"SST-2\.zip is missing: fetch it from http"):
        published.make("sst2", out, tmp_path / "here")
    (tmp_path / "here/SST-2.zip").write_bytes(server.files["SST-2.zip"])
    published.make("sst2", out, tmp_path / "here")
    assert server.asked == []
    assert sorted(path.name for path in out.rglob("*.jsonl")) == [
        "sst2_dev.jsonl",
        "sst2_train.jsonl",
    ]
    assert (tmp_path / "here/SST-2.zip").exists()
    assert len(published.find_data("sst2", out)) == 2


def test_files_without_conversion_are_copied_and_checked(tmp_path, monkeypatch):
    digest = hashlib.sha256(b"[PAD]\n").hexdigest()
    remote = RemoteFile("https://nowhere", VOCABULARY.name, 6, digest)
    monkeypatch.setitem(published.RECIPES, "vocabulary", published.Recipe((remote,)))
    here = tmp_path / "here" / "wordpiece"
    here.mkdir(parents=True)
    (here / "vocab.txt").write_bytes(b"[BAD]\n")
    with pytest.raises(DataError, match=r"vocab\.txt is damaged"):
        published.make("vocabulary", tmp_path / "out", tmp_path / "here")
    (here / "vocab.txt").write_bytes(b"[PAD]\n")
    published.make("vocabulary", tmp_path / "out", tmp_path / "here")
    assert (tmp_path / "out" / "wordpiece" / "vocab.txt").read_bytes() == b"[PAD]\n"


def test_the_command_makes_a_data_folder(tmp_path):
    command = [sys.executable, "-m", "mirrormargin.data", "cifar10", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--published", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cifar-10-binary.tar.gz is missing: fetch it from https://" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_recipe_makes_the_files_of_a_layout(tmp_path):
    for name, recipe in published.RECIPES.items():
        if name == "vocabulary":
            assert recipe.remotes[0].name == VOCABULARY.name
            continue
        names = {source.name for layout in LAYOUTS[name] for source in layout}
        if recipe.read is None:
            assert {remote.name for remote in recipe.remotes} <= names
        assert recipe.counts.keys() <= names


def test_every_remote_file_can_be_checked():
    for recipe in published.RECIPES.values():
        for remote in recipe.remotes:
            assert remote.url.startswith("https://")
            assert remote.sha256
            assert remote.size


@pytest.mark.data
def test_counts_of_sst2_are_those_of_the_compact_files(real_data):
    import lzma
    from collections import Counter

    for name, (column, expected) in published.RECIPES["sst2"].counts.items():
        with lzma.open(real_data / f"{name}.xz", "rt", encoding="utf-8") as rows:
            assert Counter(json.loads(row)[column] for row in rows) == expected
