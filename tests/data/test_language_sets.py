"""Texts for language models: windows, splits, digests."""

import lzma

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from language_texts import make_text

from mirrormargin.data import InputForm, load_data
from mirrormargin.data.files import Source
from mirrormargin.data.language_sets import (
    IGNORED,
    cover_text,
    make_windows,
    read_text,
    thin_windows,
)
from mirrormargin.data.published import LAYOUTS
from mirrormargin.errors import DataError


def test_windows_begin_at_every_token_and_share_memory():
    tokens = torch.arange(100)
    split = make_windows(tokens, 8)
    assert len(split) == 92
    assert split.inputs[[0, 91]].tolist() == [list(range(8)), list(range(91, 99))]
    assert split.labels.equal(split.inputs + 1)
    assert split.inputs.untyped_storage().data_ptr() == tokens.untyped_storage().data_ptr()
    assert thin_windows(split).inputs[:2].flatten().tolist() == list(range(16))


def test_a_text_shorter_than_a_window_is_refused():
    with pytest.raises(DataError, match="8 tokens has no window of 8"):
        make_windows(torch.arange(8), 8)


@given(st.integers(1, 60), st.integers(1, 20))
def test_each_token_is_predicted_once_from_those_before_it(count, length):
    tokens = torch.arange(1, count + 1)
    split = cover_text(tokens, length, first=0)
    is_label = split.labels != IGNORED
    assert sorted(split.labels[is_label].tolist()) == tokens.tolist()
    # Each token is the one after its input, the first comes after the end of a line.
    assert split.labels[is_label].equal(split.inputs[is_label] + 1)
    assert split.inputs.shape == split.labels.shape == (len(split), length)


def test_an_empty_text_has_no_windows():
    split = cover_text(torch.zeros(0, dtype=torch.int64), 8, first=0, num_words=0)
    assert len(split) == 0
    assert split.inputs.shape == (0, 8)


@pytest.fixture
def shakespeare(data_dir, monkeypatch):
    path = data_dir / "tinyshakespeare" / "input.txt"
    path.parent.mkdir()
    path.write_text(make_text(600))
    monkeypatch.setitem(LAYOUTS, "shakespeare", ((Source("tinyshakespeare/input.txt"),),))
    return path


@pytest.fixture
def wikitext2(data_dir, monkeypatch):
    folder = data_dir / "wikitext-2"
    folder.mkdir()
    names = []
    for seed, part in enumerate(("train", "valid", "test")):
        text = "".join(f" {line} \n" for line in make_text(400 // (seed + 1), seed).split("\n"))
        names.append(f"wikitext-2/wikitext2_{part}.txt.xz")
        (data_dir / names[-1]).write_bytes(lzma.compress(text.encode()))
    monkeypatch.setitem(LAYOUTS, "wikitext2", (tuple(map(Source, names)),))
    return folder


def test_the_last_tenth_of_shakespeare_is_for_validation(shakespeare):
    data, text = load_data("shakespeare", length=16), make_text(600)
    assert data.vocabulary == tuple(sorted(set(text)))
    held = text[int(0.9 * len(text)) :]
    labels = data.validation.labels
    found = "".join(data.vocabulary[number] for number in labels[labels != IGNORED].tolist())
    assert sorted(found) == sorted(held)
    assert len(data.train) + 16 + len(held) == len(text)
    assert len(data.test) == 0
    assert (data.kind, data.tokenizer, data.shape) == ("language", "characters", (16,))
    assert "no test part" in data.note
    again = load_data("shakespeare", length=16)
    assert again.train.inputs.equal(data.train.inputs)


def test_shakespeare_can_have_a_test_part(shakespeare, monkeypatch):
    monkeypatch.setitem(LAYOUTS, "shakespeare-tested", LAYOUTS["shakespeare"])
    whole, data = (load_data(name, length=16) for name in ("shakespeare", "shakespeare-tested"))
    assert data.test.labels.equal(whole.validation.labels)
    assert len(data.validation) * 2 == pytest.approx(len(data.test), abs=2)
    held = data.validation.labels[data.validation.labels != IGNORED]
    assert len(data.train) + len(held) == len(whole.train)
    assert held.tolist()[-16:] == whole.train.labels[-1].tolist()


def test_wikitext_is_read_by_pieces_of_words(wikitext2):
    data = load_data("wikitext2", length=16, vocab_size=30)
    assert data.tokenizer == "pairs"
    assert data.vocabulary is not None
    assert len(data.vocabulary) == 30
    text = make_text(200, 1)
    assert data.validation.num_words == len(text.split()) + text.count("\n") + 1
    assert "another order" in data.note
    assert len(data.test) > 0
    other = load_data("wikitext2", length=16, vocab_size=25)
    assert other.vocabulary == data.vocabulary[:25]


def test_what_a_model_knows_of_its_inputs_can_be_kept(shakespeare):
    data = load_data("shakespeare", length=16)
    form = InputForm.read_form(data.describe_form())
    assert (form.tokenizer, form.vocabulary) == (data.tokenizer, data.vocabulary)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": None}, "tokenizer is unknown"),
        ({"tokenizer": "letters"}, "tokenizer is unknown"),
        ({"vocabulary": ["a", "b"]}, "lacks the end of a line"),
        ({"vocabulary": None}, "lacks the end of a line"),
        ({"tokenizer": "pairs"}, "lacks <unk>"),
        ({"classes": ["a", "b"]}, "classes"),
        ({"shape": [16, 16]}, "shape"),
    ],
)
def test_a_damaged_description_of_inputs_is_refused(shakespeare, changes, message):
    document = load_data("shakespeare", length=16).describe_form() | changes
    with pytest.raises(DataError, match=message):
        InputForm.read_form(document)


def test_a_text_of_your_own_is_cut_as_validation_data(shakespeare, tmp_path):
    data, path = load_data("shakespeare", length=16), tmp_path / "own.txt"
    text = make_text(600)
    path.write_text(text[int(0.9 * len(text)) :])
    found = read_text(path, data)
    assert found.inputs.equal(data.validation.inputs)
    assert found.labels.equal(data.validation.labels)
    path.write_text("")
    with pytest.raises(DataError, match="is empty"):
        read_text(path, data)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="no text in UTF-8"):
        read_text(path, data)
    with pytest.raises(DataError, match="cannot be read"):
        read_text(tmp_path / "absent.txt", data)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shakespeare", {"vocab_size": 100}, "vocab_size is for pieces of words"),
        ("shakespeare", {"num_train": 100}, "num_train are for examples with labels"),
        ("shakespeare", {"keep": "ends"}, "keep and num_train"),
        ("shakespeare", {"test_data": "a.csv"}, "test_data is for a file of texts"),
        ("shakespeare", {"length": 10_000}, "has no window of 10000"),
        ("wikitext2", {"vocab_size": 10}, "one for every character"),
    ],
)
def test_options_that_make_no_sense_are_refused(shakespeare, wikitext2, name, options, message):
    with pytest.raises(DataError, match=message):
        load_data(name, **options)


def test_a_damaged_text_is_refused(shakespeare, monkeypatch):
    source = Source("tinyshakespeare/input.txt", 1_115_394, "86c4e6aa" * 8)
    monkeypatch.setitem(LAYOUTS, "shakespeare", ((source,),))
    with pytest.raises(DataError, match=r"input\.txt is damaged: it has"):
        load_data("shakespeare")
    size = shakespeare.stat().st_size
    monkeypatch.setitem(LAYOUTS, "shakespeare", ((Source(source.name, size, source.sha256),),))
    with pytest.raises(DataError, match=r"input\.txt is damaged: its sha256 is"):
        load_data("shakespeare")


@pytest.mark.data
def test_shakespeare_is_that_of_nanogpt(real_data, real_cache):
    data = load_data("shakespeare", data_dir=real_data)
    assert data.vocabulary is not None
    assert len(data.vocabulary) == 65
    # What nanoGPT prints when it prepares the text.
    assert len(data.train) + 64 == 1_003_854
    assert int((data.validation.labels != IGNORED).sum()) == 111_540


@pytest.mark.data
def test_wikitext2_has_its_published_numbers_of_words(real_data, real_cache):
    data = load_data("wikitext2", data_dir=real_data)
    assert (data.validation.num_words, data.test.num_words) == (217_646, 245_569)
    assert data.vocabulary is not None
    assert len(data.vocabulary) == 4_096
    # No word is lost: in the text of WikiText-2 <unk> is one word, and nothing else becomes it.
    unknown = data.vocabulary.index(" <unk>")
    with lzma.open(real_data / "wikitext-2" / "wikitext2_valid.txt.xz", "rt") as file:
        assert int((data.validation.labels == unknown).sum()) == file.read().split().count("<unk>")


@pytest.mark.data
def test_the_plain_files_of_wikitext2_are_the_compact_ones(real_data):
    """Valid and test by their digests; of the official training file only the size is known."""
    import hashlib

    compact, plain = LAYOUTS["wikitext2"]
    for small, large in zip(compact, plain, strict=True):
        contents = lzma.decompress((real_data / small.name).read_bytes())
        assert len(contents) == large.size
        assert large.sha256 in (None, hashlib.sha256(contents).hexdigest())
