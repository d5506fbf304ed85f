"""load_data on small made-up files in the place of published ones."""

import json

import pytest
import torch

from mirrormargin.data import DATA_SETS, InputForm, encode_texts, load_data, make_encoder
from mirrormargin.data.files import Source
from mirrormargin.data.published import LAYOUTS
from mirrormargin.errors import DataError

SPLITS = ("train", "validation", "test")


@pytest.fixture
def imdb(data_dir, monkeypatch):
    """A small IMDB whose reviews say their number by the count of x."""
    layout = (Source("imdb/train.jsonl"), Source("imdb/test.jsonl"))
    monkeypatch.setitem(LAYOUTS, "imdb", (layout,))
    (data_dir / "imdb").mkdir()
    for part, first in (("train", 0), ("test", 100)):
        rows = [
            {
                "label": number % 2,
                "movie": f"tt{number // 3}",
                "text": f"{('Bad', 'Good')[number % 2]} films!<br />the plot{' x' * number} was",
            }
            for number in range(first, first + 60)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (data_dir / "imdb" / f"{part}.jsonl").write_text(text, encoding="utf-8")
    return data_dir


def test_inputs_and_labels_belong_together(imdb):
    data = load_data("imdb", length=12)
    assert data.vocabulary is not None
    assert data.train.inputs.dtype == torch.int32
    assert data.train.labels.dtype == torch.int64
    for name in SPLITS:
        split = getattr(data, name)
        assert split.inputs.shape == (len(split), 12)
        for row, label in zip(split.inputs, split.labels, strict=True):
            words = [data.vocabulary[number] for number in row]
            assert words[:4] == ["[CLS]", ("bad", "good")[label], "film", "##s"]


def test_the_second_load_is_the_first(imdb, cache):
    first = load_data("imdb", length=16, keep="ends", vocab_size=12)
    (path,) = (cache / "prepared").iterdir()
    written = path.stat().st_mtime_ns
    second = load_data("imdb", length=16, keep="ends", vocab_size=12)
    assert path.stat().st_mtime_ns == written
    for name in SPLITS:
        assert getattr(first, name).inputs.equal(getattr(second, name).inputs)
        assert getattr(first, name).labels.equal(getattr(second, name).labels)
    assert (first.vocabulary, first.note) == (second.vocabulary, second.note)
    assert first.sha256 == second.sha256


def test_a_changed_file_is_read_anew(imdb):
    before = load_data("imdb", length=12)
    path = imdb / "imdb" / "test.jsonl"
    path.write_text(path.read_text().replace("Good", "Great"), encoding="utf-8")
    after = load_data("imdb", length=12)
    assert before.sha256["imdb/test.jsonl"] != after.sha256["imdb/test.jsonl"]
    assert not before.test.inputs.equal(after.test.inputs)


def test_splits_are_shuffled(imdb):
    labels = load_data("imdb").test.labels.tolist()
    assert sorted(labels) == [0] * 30 + [1] * 30
    assert labels != [number % 2 for number in range(60)]


def test_a_subset_is_the_beginning_of_a_larger_one(imdb):
    small, large = load_data("imdb", num_train=10), load_data("imdb", num_train=20)
    assert len(small.train) == 10
    assert small.train.labels.equal(large.train.labels[:10])
    assert len(small.test) == 60
    assert "random subset of 10" in small.note


def test_a_subset_larger_than_the_split_is_refused(imdb):
    with pytest.raises(DataError, match="num_train is 5000: give an integer from 1 to 51"):
        load_data("imdb", num_train=5000)


@pytest.mark.parametrize("num_train", [0, -3, 2.5])
def test_a_subset_of_nothing_is_refused(imdb, num_train):
    with pytest.raises(DataError, match="num_train"):
        load_data("imdb", num_train=num_train)


def test_a_short_vocabulary_has_special_tokens_first(imdb):
    whole, short = load_data("imdb", length=64), load_data("imdb", length=64, vocab_size=9)
    assert whole.vocabulary is not None
    assert short.vocabulary is not None
    assert short.vocabulary[:4] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    assert len(short.vocabulary) == 9
    assert short.vocabulary[4] == "x"  # by far the most frequent
    for row, new in zip(whole.test.inputs[:10], short.test.inputs[:10], strict=True):
        words = [whole.vocabulary[number] for number in row]
        kept = [word if word in short.vocabulary else "[UNK]" for word in words]
        assert [short.vocabulary[number] for number in new] == kept


def test_without_a_length_the_longest_text_fits(imdb):
    data = load_data("imdb")
    assert data.test.inputs.shape[1] == data.train.inputs.shape[1]
    assert (data.test.inputs[:, -1] != 0).sum() == 1


def test_progress_ends_at_the_number_of_texts(imdb):
    seen = []
    data = load_data("imdb", progress=lambda *numbers: seen.append(numbers))
    total = len(data.train) + len(data.validation) + len(data.test)
    assert seen[-1] == (total, total)


def test_encoded_texts_are_as_in_the_data_set(imdb):
    data = load_data("imdb", vocab_size=9)
    assert data.vocabulary is not None
    ids, pieces = make_encoder(data)("A good film, x")
    assert pieces[0] == "[CLS]"
    assert pieces[-2:] == ["x", "[SEP]"]
    assert [data.vocabulary[number] for number in ids] == pieces
    assert "[UNK]" in pieces


def test_raw_reviews_are_cleaned_as_those_of_training(imdb):
    data = load_data("imdb")
    texts = [json.loads(row)["text"] for row in (imdb / "imdb/test.jsonl").read_text().splitlines()]
    encoded = encode_texts(texts, data)
    expected = {tuple(row.tolist()) for row in data.test.inputs}
    assert {tuple(row.tolist()) for row in encoded} == expected


def test_a_model_of_images_encodes_no_text():
    with pytest.raises(DataError, match="a model of digits reads images, not texts"):
        make_encoder(load_data("digits"))


@pytest.mark.parametrize("vocab_size", [None, 9])
def test_the_form_of_inputs_survives_json(imdb, vocab_size):
    data = load_data("imdb", vocab_size=vocab_size, keep="ends")
    form = InputForm.read_form(json.loads(json.dumps(data.describe_form())))
    assert form.describe_form() == data.describe_form()
    assert not hasattr(form, "train")
    texts = ["A good film, x", "dull " * 600]
    assert torch.equal(encode_texts(texts, form), encode_texts(texts, data))
    with pytest.raises(DataError, match="describes no inputs of a model"):
        InputForm.read_form({"name": "imdb"})


def test_an_absent_set_names_the_folders_and_the_remedy(data_dir, cache):
    with pytest.raises(DataError) as caught:
        load_data("imdb")
    message = str(caught.value)
    assert str(data_dir) in message
    assert str(cache / "data") in message
    assert "imdb/imdb_train.jsonl.xz" in message
    assert "MIRRORMARGIN_DATA" in message
    assert "--download" in message


def test_an_absent_vocabulary_is_named(imdb):
    (imdb / "wordpiece" / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"the vocabulary wordpiece/vocab.txt, which is not in"):
        load_data("imdb")


def test_a_damaged_file_is_refused_by_name(data_dir):
    (data_dir / "mnist").mkdir()
    for source in LAYOUTS["mnist"][0]:
        assert source.size is not None
        (data_dir / source.name).write_bytes(b"0" * source.size)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is damaged: its sha256"):
        load_data("mnist")


@pytest.mark.parametrize("name", ["imbd", "no/such.json", "no/such/folder"])
def test_an_unknown_name_is_answered_with_those_there_are(name):
    with pytest.raises(DataError, match=r"there is no data set .* imdb, sst2.*\.jsonl, \.csv"):
        load_data(name)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"the file no/such\.CSV does not exist"):
        load_data("no/such.CSV")


def test_digits_come_without_files():
    pytest.importorskip("sklearn")
    data = load_data("digits")
    assert data.train.inputs.shape == (1297, 1, 8, 8)
    assert (len(data.validation), len(data.test)) == (250, 250)
    assert data.train.inputs.dtype == torch.uint8
    assert int(data.train.inputs.max()) == 255
    assert data.classes == tuple("0123456789")
    assert data.sha256.keys() == {"digits.csv.gz"}


def test_digits_are_all_there_and_in_one_split_each():
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    expected = sorted(
        (tuple(image), int(label)) for image, label in zip(pixels, labels, strict=True)
    )
    data = load_data("digits")
    found = []
    for name in SPLITS:
        split = getattr(data, name)
        values = (split.inputs.double() * 16 / 255).round().flatten(1).tolist()
        found += zip(map(tuple, values), split.labels.tolist(), strict=True)
    assert sorted(found) == expected


@pytest.mark.parametrize("option", [{"length": 128}, {"vocab_size": 100}, {"keep": "ends"}])
def test_options_of_texts_are_refused_for_images(option):
    with pytest.raises(DataError, match="are for texts, and digits is of images"):
        load_data("digits", **option)


def test_names_are_those_of_the_readers():
    assert set(DATA_SETS) == {*LAYOUTS, "digits"}
