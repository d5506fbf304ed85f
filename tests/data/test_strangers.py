"""Texts and labels of strangers: checked before anything is trained on them."""

import gzip
import lzma
import os

import pytest

from mirrormargin.data import load_data
from mirrormargin.data.text_files import number_labelled_texts, read_own_texts
from mirrormargin.errors import DataError

ROWS = [(f"a film of kind {number} {'x' * number}", "ab"[number % 2]) for number in range(12)]


def write(path, rows=ROWS):
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def read_labels(data):
    """The label of each text, by its words: their order and numbers depend on the labels."""
    return {
        tuple(data.vocabulary[number] for number in row.tolist()): int(label)
        for split in (data.train, data.validation, data.test)
        for row, label in zip(split.inputs, split.labels, strict=True)
    }


def test_changed_labels_are_noticed_though_size_and_time_are_kept(tmp_path):
    path = write(tmp_path / "texts.csv")
    before, status = load_data(path, vocabulary="words"), path.stat()
    write(path, [(text, "b" if label == "a" else "a") for text, label in ROWS])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    after = load_data(path, vocabulary="words")
    assert after.sha256 != before.sha256
    old, new = map(read_labels, (before, after))
    assert old.keys() == new.keys()
    assert all(new[row] == 1 - label for row, label in old.items())


@pytest.mark.parametrize("column", ["text", "label"])
def test_half_a_character_is_refused_before_training(tmp_path, column):
    path = tmp_path / "texts.jsonl"
    row = {"text": '"a b"', "label": '"a"', column: '"x\\ud800"'}
    path.write_text(f'{{"text": {row["text"]}, "label": {row["label"]}}}\n')
    with pytest.raises(DataError, match=rf"line 1: '{column}' holds '\\ud800' at character 2"):
        list(number_labelled_texts(path, "text", "label"))


def test_a_label_as_long_as_a_text_is_refused(tmp_path):
    path = write(tmp_path / "texts.csv", [("a", "b" * 1001)])
    with pytest.raises(DataError, match=r"line 2: 'label' has 1,001 characters.*the column"):
        list(number_labelled_texts(path, "text", "label"))


@pytest.mark.parametrize("header", ["text,label,label", "text,text,label", "text,label,x,x"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, header):
    path = tmp_path / "texts.csv"
    path.write_text(f"{header}\n{','.join('abcd'[: header.count(',') + 1])}\n")
    with pytest.raises(DataError, match="more than once"):
        read_own_texts(path, "text", "label")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "nested"),
        ('{"text": "a", "text": "b", "label": 1}', "'text' twice"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_a_row_that_is_no_honest_json_is_refused(tmp_path, line, message):
    path = tmp_path / "texts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=rf"line 1: not JSON.*{message}"):
        list(number_labelled_texts(path, "text", "label"))


@pytest.mark.parametrize(("suffix", "module"), [(".gz", gzip), (".xz", lzma)])
def test_a_compressed_file_out_of_all_proportion_is_refused(tmp_path, suffix, module, monkeypatch):
    monkeypatch.setattr("mirrormargin.runs.arrays.FREE_BYTES", 1 << 20)
    path = tmp_path / f"texts.csv{suffix}"
    path.write_bytes(module.compress(b"text,label\n" + b"a b,c\n" * 1_000_000))
    with pytest.raises(DataError, match="unpacks to more than"):
        list(number_labelled_texts(path, "text", "label"))
