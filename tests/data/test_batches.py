"""Order and augmentation: permutations that follow from seed and epoch, shifts and mirrors."""

import pytest
import torch

from mirrormargin.data import augment_images, order_epoch


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
