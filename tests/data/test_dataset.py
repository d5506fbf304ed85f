"""Splits by hash, the order of an epoch, and augmentation."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from mirrormargin.data import augment_images, order_epoch
from mirrormargin.data.dataset import compute_share, normalize, shuffle, split_classes
from mirrormargin.errors import DataError


def test_share_is_the_hash_as_a_fraction():
    whole = int(hashlib.sha256(b"tt0453418").hexdigest(), 16) / 2**256
    assert compute_share("tt0453418") == pytest.approx(whole, abs=1e-13)


def test_shares_are_spread_evenly():
    shares = [compute_share(str(number)) for number in range(4000)]
    counts, _ = np.histogram(shares, 10, (0.0, 1.0))
    assert counts.min() > 320
    assert counts.max() < 480


def test_capital_letters_and_blanks_do_not_make_another_text():
    assert normalize("Boom ! \n Why?") == normalize("boom! why ?")
    assert normalize("boom") != normalize("boom!")


def test_shuffle_keeps_every_row_and_the_order_is_fixed():
    order = shuffle(range(100))
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() == shuffle(range(100)).tolist()
    assert order.tolist() != list(range(100))


def test_each_class_is_in_each_split():
    labels = ["b"] * 40 + ["a"] * 3 + ["10"] * 20 + ["9"] * 5
    keys = [str(number) for number in range(len(labels))]
    classes, rows = split_classes(labels, keys, Path("own.csv"))
    assert classes == ("9", "10", "a", "b")
    for name, sizes in {"test": (1, 2, 1, 4), "validation": (1, 2, 1, 4)}.items():
        found = [labels[row] for row in rows[name]]
        assert tuple(found.count(label) for label in classes) == sizes
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))


def test_a_row_keeps_its_split_when_the_file_is_in_another_order():
    labels = ["a", "b"] * 30
    keys = [str(number) for number in range(60)]
    rows = split_classes(labels, keys, Path("own.csv"))[1]
    back = split_classes(labels[::-1], keys[::-1], Path("own.csv"))[1]
    for name in ("train", "validation", "test"):
        assert {keys[row] for row in rows[name]} == {keys[::-1][row] for row in back[name]}


def test_one_class_is_refused():
    with pytest.raises(DataError, match=r"own.csv has 1 class \(good\): give two at least"):
        split_classes(["good"] * 9, list("abcdefghi"), Path("own.csv"))


def test_too_few_of_a_class_are_refused():
    with pytest.raises(DataError, match="2 of the class 'bad': give three at least"):
        split_classes(["good"] * 3 + ["bad"] * 2, list("abcde"), Path("own.csv"))


def test_epoch_has_every_example_at_most_once_in_full_batches():
    order = order_epoch(0, 0, 103, 10)
    assert order.shape == (10, 10)
    assert len(order.unique()) == 100
    assert int(order.max()) < 103


def test_batch_larger_than_the_data_is_all_of_it():
    assert sorted(order_epoch(0, 0, 5, 100)[0].tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}])
def test_order_follows_from_seed_and_epoch_alone(change):
    same = {"seed": 0, "epoch": 0, "size": 50, "batch_size": 5}
    order = order_epoch(**same)
    torch.randn(3)
    assert torch.equal(order_epoch(**same), order)
    assert not torch.equal(order_epoch(**(same | change)), order)


def test_batches_by_length_hold_texts_of_similar_length():
    lengths = torch.randint(3, 60, (1000,), generator=torch.Generator().manual_seed(0))
    plain, sorted_ = (order_epoch(0, 0, 1000, 10, by) for by in (None, lengths))
    assert sorted_.shape == plain.shape
    assert sorted(sorted_.flatten().tolist()) == sorted(plain.flatten().tolist())
    spread, usual = (
        (lengths[order].amax(dim=1) - lengths[order].amin(dim=1)).float().mean()
        for order in (sorted_, plain)
    )
    assert spread < 0.3 * usual
    first = lengths[sorted_].float().mean(dim=1)
    assert not torch.equal(first, first.sort().values)  # short ones do not come first
    assert not torch.equal(order_epoch(0, 1, 1000, 10, lengths), sorted_)


def test_order_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    order_epoch(0, 0, 50, 5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_augmented_image_is_a_shifted_and_perhaps_mirrored_one(dtype):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (150, 3, 10, 10), generator=generator).to(dtype)
    torch.manual_seed(0)
    augmented = augment_images(images)
    assert augmented.dtype == dtype
    assert augmented.shape == images.shape
    seen = []
    for before, after in zip(images, augmented, strict=True):
        padded = torch.nn.functional.pad(before, (4, 4, 4, 4))
        views = {
            (top, left, flip): padded[:, top : top + 10, left : left + 10].flip([2] * flip)
            for top in range(9)
            for left in range(9)
            for flip in (0, 1)
        }
        found = [key for key, view in views.items() if torch.equal(view, after)]
        assert len(found) == 1
        seen += found
    tops, lefts, flips = zip(*seen, strict=True)
    assert set(tops) == set(lefts) == set(range(9))
    assert abs(sum(flips) - 75) < 5 * 37.5**0.5


def test_augmentation_follows_the_global_seed():
    images = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8)
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(augment_images(images))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
