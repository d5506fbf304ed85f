"""The published data sets: sizes, classes, digests, nothing in two splits."""

import hashlib

import numpy as np
import pytest

from mirrormargin.data import load_data
from mirrormargin.data.image_sets import IMAGE_SETS
from mirrormargin.data.tokens import CLS, SEP, UNK

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("real_cache")]

SPLITS = ("train", "validation", "test")


def get_rows(data):
    return {name: {row.numpy().tobytes() for row in getattr(data, name).inputs} for name in SPLITS}


def count(data):
    return {name: np.bincount(getattr(data, name).labels).tolist() for name in SPLITS}


@pytest.mark.slow
def test_imdb_is_complete_and_its_splits_are_apart(real_data):
    data = load_data("imdb", data_dir=real_data, length=256, keep="ends")
    assert count(data) == {
        "train": [11191, 11045],
        "validation": [1207, 1425],
        "test": [12500, 12500],
    }
    rows = get_rows(data)
    assert rows["train"].isdisjoint(rows["validation"])
    assert (rows["train"] | rows["validation"]).isdisjoint(rows["test"])
    assert data.vocabulary is not None
    assert len(data.vocabulary) == 30_522
    assert set(data.train.inputs[:, 0].tolist()) == {101}


@pytest.mark.slow
def test_a_short_vocabulary_of_imdb_leaves_little_unknown(real_data):
    data = load_data("imdb", data_dir=real_data, length=128, keep="ends", vocab_size=12_000)
    assert data.vocabulary is not None
    assert len(data.vocabulary) == 12_000
    unknown = (data.test.inputs == 1).sum() / (data.test.inputs > 0).sum()
    assert 0.001 < unknown < 0.03


@pytest.mark.slow
def test_sst2_is_complete(real_data):
    data = load_data("sst2", data_dir=real_data)
    assert count(data) == {
        "train": [28304, 35708],
        "validation": [1476, 1861],
        "test": [428, 444],
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cola", {"train": [2274, 5410], "validation": [252, 598], "test": [322, 721]}),
        ("mrpc", {"train": [1077, 2291], "validation": [124, 260], "test": [578, 1147]}),
        ("rte", {"train": [1035, 1045], "validation": [114, 84], "test": [146, 131]}),
    ],
)
def test_tasks_of_glue_are_complete_but_for_texts_in_common(real_data, name, expected):
    data = load_data(name, data_dir=real_data)
    assert count(data) == expected
    assert data.num_texts == (1 if name == "cola" else 2)
    rows = get_rows(data)
    assert rows["train"].isdisjoint(rows["validation"])
    assert (rows["train"] | rows["validation"]).isdisjoint(rows["test"])


@pytest.mark.slow
def test_validation_of_sst2_by_sentence_looks_like_its_test(real_data):
    data = load_data("sst2-sentences", data_dir=real_data)
    assert count(data) == {
        "train": [25800, 32195],
        "validation": [353, 389],
        "test": [428, 444],
    }
    validation, test = (
        (split.inputs > 0).sum(1).double().mean() for split in (data.validation, data.test)
    )
    assert abs(validation - test) < 2


@pytest.mark.slow
def test_the_subset_of_mnli_is_balanced_and_in_pairs(real_data):
    data = load_data("mnli-subset", data_dir=real_data, length=128)
    counts = count(data)
    assert np.add(counts["train"], counts["validation"]).tolist() == [11581] * 3
    assert counts["test"] == [3479, 3123, 3213]
    assert ((data.test.inputs == 102).sum(1) == 2).all()


def test_the_subset_of_civil_comments_is_complete(real_data):
    data = load_data("civil-subset", data_dir=real_data, length=128)
    assert count(data) == {"train": [2333, 2879], "validation": [283, 351], "test": [275, 375]}
    assert "Dropped: 52 texts" in data.note
    rows = get_rows(data)
    # Comments that are one overlong word are different texts, and all look like this.
    unknown = np.zeros(128, np.int32)
    unknown[:3] = CLS, UNK, SEP
    assert rows["train"] & rows["test"] <= {unknown.tobytes()}
    assert rows["train"] & rows["validation"] <= {unknown.tobytes()}


def test_mnist_is_complete(real_data):
    data = load_data("mnist", data_dir=real_data)
    counts = count(data)
    assert [sum(counts[name]) for name in SPLITS] == [55_000, 5_000, 10_000]
    whole = np.add(counts["train"], counts["validation"]).tolist()
    assert whole == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.mean == pytest.approx((0.1307,), abs=1e-3)
    assert data.std == pytest.approx((0.3081,), abs=1e-3)
    rows = get_rows(data)
    assert rows["train"].isdisjoint(rows["validation"])


def test_fashion_is_complete(real_data):
    data = load_data("fashion", data_dir=real_data)
    counts = count(data)
    assert np.add(counts["train"], counts["validation"]).tolist() == [6000] * 10
    assert counts["test"] == [1000] * 10
    assert data.mean == pytest.approx((0.2860,), abs=1e-3)
    assert data.std == pytest.approx((0.3530,), abs=1e-3)
    assert "Fashion-MNIST" in data.note


@pytest.mark.slow
def test_cifar10_is_complete(real_data):
    data = load_data("cifar10", data_dir=real_data)
    counts = count(data)
    assert np.add(counts["train"], counts["validation"]).tolist() == [5000] * 10
    assert counts["test"] == [1000] * 10
    assert data.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-3)
    assert data.std == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-3)


@pytest.mark.slow
def test_both_layouts_of_cifar10_give_the_same_images(real_data, tmp_path):
    from mirrormargin.data.image_files import read_sprite
    from mirrormargin.data.published import LAYOUTS

    compact = [real_data / source.name for source in LAYOUTS["cifar10"][0]]
    with np.load(compact[6]) as file:
        labels = np.concatenate([file["y_train"], file["y_test"]]).reshape(6, 10_000, 1)
    paths = []
    for path, part, source in zip(compact, labels, LAYOUTS["cifar10"][1], strict=False):
        record = np.concatenate([part, read_sprite(path).reshape(10_000, 3072)], axis=1)
        assert hashlib.sha256(record.tobytes()).hexdigest() == source.sha256
        paths.append(tmp_path / path.with_suffix(".bin").name)
        record.tofile(paths[-1])
    first, second = (IMAGE_SETS["cifar10"].read(files)[0] for files in (compact, paths))
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name
