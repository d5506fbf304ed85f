"""New texts and images are read as those of training."""

import json

import numpy as np
import pytest

from mirrormargin.data import encode_images, encode_texts, load_data
from mirrormargin.data.files import Source
from mirrormargin.data.published import LAYOUTS
from mirrormargin.errors import DataError

Image = pytest.importorskip("PIL.Image")


def write_rows(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def find_rows(data):
    splits = (data.train, data.validation, data.test)
    return {tuple(row.tolist()) for split in splits for row in split.inputs}


@pytest.mark.parametrize("keep", ["head", "ends"])
@pytest.mark.parametrize("vocab_size", [None, 9])
def test_texts_are_the_rows_of_the_data_set(data_dir, keep, vocab_size):
    texts = [f"{('Bad', 'Good')[k % 2]} films! the{' x' * k} was a dull plot." for k in range(40)]
    rows = [{"text": text, "label": k % 2} for k, text in enumerate(texts)]
    write_rows(data_dir / "own.jsonl", rows)
    data = load_data(data_dir / "own.jsonl", length=12, keep=keep, vocab_size=vocab_size)
    encoded = encode_texts(texts, data)
    assert encoded.dtype == data.train.inputs.dtype
    assert {tuple(row.tolist()) for row in encoded} == find_rows(data)


def test_pairs_have_a_tab_between(data_dir, monkeypatch):
    names = ("multinli/train.jsonl", "multinli/dev.jsonl")
    monkeypatch.setitem(LAYOUTS, "mnli", (tuple(Source(name) for name in names),))
    pairs = [(f"a film{' x' * k}", f"the plot was{' !' * (k % 5)}") for k in range(160)]
    rows = [
        {"premise": first, "hypothesis": second, "label": ("entailment", "neutral")[k % 2]}
        for k, (first, second) in enumerate(pairs)
    ]
    write_rows(data_dir / names[0], rows[:-20])
    write_rows(data_dir / names[1], rows[-20:])
    data = load_data("mnli", length=20)
    encoded = encode_texts(["\t".join(pair) for pair in pairs], data)
    assert {tuple(row.tolist()) for row in encoded} == find_rows(data)
    with pytest.raises(DataError, match="compares two texts, give both with a tab between"):
        encode_texts(["a film"], data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "has no words: give a text"),
        ("\u200b", "has no words: give a text"),
        ("caf\udce9", "is no text in UTF-8"),
    ],
)
def test_a_text_needs_words(data_dir, text, message):
    rows = [{"text": f"a film{' x' * k}", "label": k % 2} for k in range(20)]
    write_rows(data_dir / "own.jsonl", rows)
    data = load_data(data_dir / "own.jsonl")
    with pytest.raises(DataError, match=message):
        encode_texts(["good", text], data)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3)])
def test_images_are_those_of_the_data_set(tmp_path, shape):
    random = np.random.default_rng(0)
    paths = []
    for k in range(20):
        path = tmp_path / "animals" / ("cat", "dog")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(path)
        paths.append(path)
    data = load_data(tmp_path / "animals")
    encoded = encode_images(paths, data)
    expected = {image.numpy().tobytes() for image in data.train.inputs}
    assert len(expected & {image.numpy().tobytes() for image in encoded}) == len(data.train)
    assert encoded.shape == (20, *data.train.inputs.shape[1:])


def test_an_image_that_does_not_fit_is_named(tmp_path):
    data = load_data("digits")
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / "wide.png")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "colour.png")
    with pytest.raises(DataError, match=r"wide.png has 9 x 8 pixels, but .* on 8 x 8: resize it"):
        encode_images([tmp_path / "wide.png"], data)
    with pytest.raises(DataError, match=r"colour.png is stored in colours, but .* on grey images"):
        encode_images([tmp_path / "colour.png"], data)


def test_grey_images_fit_a_model_of_coloured_ones(tmp_path):
    for k in range(20):
        path = tmp_path / "animals" / ("cat", "dog")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 6, 3), k, np.uint8)).save(path)
    Image.fromarray(np.full((6, 6), 7, np.uint8)).save(tmp_path / "grey.png")
    encoded = encode_images([tmp_path / "grey.png"], load_data(tmp_path / "animals"))
    assert encoded.shape == (1, 3, 6, 6)
    assert bool((encoded == 7).all())
