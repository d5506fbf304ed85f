"""The smallest entries of many tensors: an exact number of them, of equal ones the last."""

import numpy as np
import pytest
import torch

from mirrormargin.optim.ranking import rank_smallest


def sort_smallest(scores, count):
    """The slow twin: what is below 0 comes first, then the smallest, of equal ones the last."""
    flat = torch.cat([one.flatten() for one in scores]).tolist()
    order = sorted(range(len(flat)), key=lambda k: (max(flat[k], -1.0), -k))
    smallest = torch.zeros(len(flat), dtype=torch.bool)
    smallest[order[:count]] = True
    parts = smallest.split([one.numel() for one in scores])
    return [part.view_as(one) for part, one in zip(parts, scores, strict=True)]


def make_scores(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 9, (3,), generator=generator).tolist()
    scores = [torch.rand(size, 7, generator=generator, dtype=dtype) for size in sizes]
    if seed % 2:  # few values, many of them equal
        scores = [(3 * one).floor() / 3 for one in scores]
    if seed % 3 == 0:  # denormal numbers
        scores = [one * 1e-39 for one in scores]
    if seed % 5 == 0:
        scores = [torch.where(one > one.mean(), one, -1.0) for one in scores]
    return scores


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(12))
def test_the_smallest_are_those_of_a_sorted_list(seed, dtype):
    scores = make_scores(seed, dtype)
    total = sum(one.numel() for one in scores)
    for count in {0, 1, total // 3, total // 2, total - 1, total} - {-1}:
        found = rank_smallest(scores.__getitem__, scores, count).smallest
        for own, wanted in zip(found, sort_smallest(scores, count), strict=True):
            assert torch.equal(own, wanted)


def test_the_threshold_is_the_largest_of_the_smallest():
    scores = [torch.tensor([0.3, 0.1]), torch.tensor([0.2, 5.0])]
    assert rank_smallest(scores.__getitem__, scores, 3).threshold == pytest.approx(0.3)
    assert rank_smallest(scores.__getitem__, scores, 0).threshold == 0.0


def test_nan_and_infinity_are_the_largest():
    scores = [torch.tensor([torch.nan, 1.0, torch.inf, 0.0])]
    for dtype in (torch.float32, torch.float64):
        own = [one.to(dtype) for one in scores]
        found = rank_smallest(own.__getitem__, own, 2).smallest
        assert found[0].tolist() == [False, True, False, True]


def make_weights(seed, size=400):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(size, 60), (17,), (0,), (3, 700)]
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    if seed % 2:
        weights = [(2 * w).round() / 2 for w in weights]
    masks = [torch.rand(w.shape, generator=generator) < 0.6 for w in weights]
    weights = [w * mask for w, mask in zip(weights, masks, strict=True)]
    if seed % 3 == 0:  # somebody has written to weights that are removed
        weights[0][~masks[0]] = torch.randn(int((~masks[0]).sum()), generator=generator)
    return weights, masks


@pytest.mark.parametrize("size", [4, 400, 3000])
@pytest.mark.parametrize("seed", range(6))
def test_compiled_code_removes_what_the_generic_one_does(seed, size):
    pytest.importorskip("numba", exc_type=ImportError)
    from mirrormargin.optim.compiled_ranking import remove_smallest

    weights, masks = make_weights(seed, size)
    scores = [torch.where(m | (w != 0), w.abs(), -1.0) for w, m in zip(weights, masks, strict=True)]
    gone = sum(int((one < 0).sum()) for one in scores)
    total = sum(one.numel() for one in scores)
    for count in {gone, (gone + total) // 2, int(0.98 * total), total}:
        wanted = rank_smallest(scores.__getitem__, scores, max(count, gone)).smallest
        w, m = [one.clone() for one in weights], [one.clone() for one in masks]
        duals, averages = ([torch.ones_like(one) for one in weights] for _ in range(2))
        remove_smallest(w, m, duals, [*averages[:-1], None], max(count, gone))
        for k, its in enumerate(wanted):
            new = its & (masks[k] | (weights[k] != 0))
            assert torch.equal(m[k], ~its)
            assert torch.equal(w[k], torch.where(its, 0.0, weights[k]))
            assert torch.equal(duals[k] == 0, new)
            assert torch.equal(averages[k] == 0, new & (k < len(wanted) - 1))


def test_most_weights_are_equal_and_digits_are_counted():
    pytest.importorskip("numba", exc_type=ImportError)
    from mirrormargin.optim import compiled_ranking

    weights = [torch.full((200, 300), 0.5), torch.zeros(100, 300)]
    masks = [torch.ones_like(w, dtype=torch.bool) for w in weights]
    sizes = [w.numel() for w in weights]
    pointers = [[x.data_ptr() for x in row] for row in (weights, masks, weights, weights)]
    assert compiled_ranking._find_quickly(weights, masks, sizes, pointers, 45_000) is None
    compiled_ranking.remove_smallest(weights, masks, [None] * 2, [None] * 2, 45_000)
    assert [int((~mask).sum()) for mask in masks] == [15_000, 30_000]
    kept = np.flatnonzero(masks[0].numpy())
    assert kept.tolist() == list(range(45_000))  # of equal ones the first
