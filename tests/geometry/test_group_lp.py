"""The group potential: its formulas entry by entry, the ends of the range, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from layouts import layouts

from mirrormargin import GeometryError, GroupLpPotential, LpPotential

SHAPES = [(4, 6), (6, 4), (4, 2, 3), (2, 4, 3, 3)]
exponents = st.floats(1.05, 20.0)
entries = st.floats(-100, 100).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
pairs = st.tuples(*(arrays(np.float64, (4, 6), elements=entries) for _ in range(2)))
kinds = st.tuples(st.sampled_from(("rows", "columns")), st.sampled_from((1, 2)))


def list_groups(shape, groups, block):
    """The entries of each group: of all whose row, or column, is in the same block."""
    found = {}
    for index in np.ndindex(*shape):
        found.setdefault(index[0 if groups == "rows" else 1] // block, []).append(index)
    return list(found.values())


def map_literally(x, exponent, groups, block):
    """||x_g||^(exponent - 2) x_g, one group after the other."""
    mapped = np.zeros_like(x)
    for group in list_groups(x.shape, groups, block):
        size = math.sqrt(sum(x[i] ** 2 for i in group))
        for i in group:
            mapped[i] = size ** (exponent - 2) * x[i] if size else 0.0
    return mapped


def find_sizes(x, groups, block):
    return [math.hypot(*(x[i] for i in g)) for g in list_groups(x.shape, groups, block)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("groups", ["rows", "columns"])
@pytest.mark.parametrize("p", [1.05, 1.3, 2.0, 3.0, 8.0])
def test_maps_and_norms_are_their_formulas(p, groups, block, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    x[0], x[:, 0] = 0.0, 0.0
    potential, q = GroupLpPotential(p, groups, block), p / (p - 1)
    sizes = np.array(find_sizes(x, groups, block))
    np.testing.assert_allclose(
        potential.to_dual(x), map_literally(x, p, groups, block), rtol=1e-12, atol=1e-300
    )
    np.testing.assert_allclose(
        potential.to_primal(x), map_literally(x, q, groups, block), rtol=1e-12, atol=1e-300
    )
    assert float(potential.value(x)) == pytest.approx((sizes**p).sum() / p)
    assert float(potential.norm(x)) == pytest.approx((sizes**p).sum() ** (1 / p))
    assert float(potential.dual_norm(x)) == pytest.approx((sizes**q).sum() ** (1 / q))


@given(pairs, exponents, kinds)
def test_fenchel_young_and_hoelder(pair, p, kind):
    w, g = pair
    potential, q = GroupLpPotential(p, *kind), p / (p - 1)
    inner = float(np.sum(w * g))
    conjugate = float(potential.dual_norm(g)) ** q / q
    assert inner <= float(potential.value(w)) + conjugate * (1 + 1e-9) + 1e-9
    assert inner <= float(potential.norm(w)) * float(potential.dual_norm(g)) * (1 + 1e-9) + 1e-9
    dual = float(potential.dual_norm(potential.to_dual(w)))
    assert dual == pytest.approx(float(potential.norm(w)) ** (p - 1), rel=1e-9, abs=1e-280)


def test_small_groups_count_beside_large_ones_in_the_divergence():
    a, b = np.array([[1e9, 0.0], [1e-6, 0.0]]), np.array([[1e9, 0.0], [0.0, 1e-6]])
    expected = 0.5 * np.square(a - b).sum()
    assert float(GroupLpPotential(2.0).bregman(a, b)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_p2_is_gradient_descent(dtype):
    w = torch.randn(4, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    potential, plain = GroupLpPotential(2.0, block=2), LpPotential(2.0)
    assert torch.equal(potential.to_dual(w), plain.to_dual(w))
    assert torch.equal(potential.to_primal(w), plain.to_primal(w))
    for name in ("value", "norm", "dual_norm"):
        mine, other = getattr(potential, name)(w), getattr(plain, name)(w)
        torch.testing.assert_close(mine, other, rtol=4 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("p", [1.05, 1.5, 3.0, 8.0])
def test_a_group_of_one_entry_is_the_lp_potential(p):
    x = np.random.default_rng(1).standard_normal((5, 1))
    potential, plain = GroupLpPotential(p), LpPotential(p)
    for name in ("to_dual", "to_primal", "value", "norm", "dual_norm"):
        np.testing.assert_allclose(getattr(potential, name)(x), getattr(plain, name)(x), rtol=1e-12)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-200, 1e200, 1e308])
def test_maps_reach_the_ends_of_the_range(size):
    """Where ||w_g||^(p-2), or a square, is out of range and the image is not."""
    w = np.array([[size, 0.0], [0.0, size / 2]])
    for p in (1.01, 1.5, 1.9):
        logs = np.log(w, where=w > 0, out=np.full_like(w, -np.inf)) * (p - 1)
        np.testing.assert_allclose(GroupLpPotential(p).to_dual(w), np.exp(logs), rtol=1e-12)
    even = np.full((2, 16), size)
    assert float(GroupLpPotential(2.5).norm(even / 16)) == pytest.approx(
        4 * 2**0.4 * float(even[0, 0] / 16), rel=1e-12
    )


def test_small_entries_of_large_groups_are_not_lost():
    w = np.array([[1e200, 1e-200]])
    np.testing.assert_allclose(GroupLpPotential(1.5).to_dual(w), [[1e100, 1e-300]], rtol=1e-12)
    w = np.array([[1e100, 1e-200]])
    np.testing.assert_allclose(GroupLpPotential(4.0).to_dual(w), [[1e300, 1.0]], rtol=1e-12)


def test_powers_beyond_the_range_make_no_nan():
    w = np.array([[1e10, 0.0], [1e-10, 0.0], [0.0, 0.0]])
    with np.errstate(over="ignore"):
        dual = GroupLpPotential(400.0).to_dual(w)
    np.testing.assert_array_equal(dual, [[np.inf, 0.0], [0.0, 0.0], [0.0, 0.0]])


def test_nan_stays_in_its_group():
    w = torch.tensor([[math.nan, 1.0], [1.0, 2.0]])
    dual = GroupLpPotential(1.5).to_dual(w)
    assert bool(dual[0].isnan().all())
    assert torch.equal(dual[1:], GroupLpPotential(1.5).to_dual(w[1:]))


def test_zero_groups_map_to_zero_and_have_a_gradient():
    w = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    potential = GroupLpPotential(1.2)
    potential.value(w).backward()
    torch.testing.assert_close(w.grad, potential.to_dual(w.detach()))
    assert not potential.to_dual(w.detach())[0].any()
    assert float(potential.bregman(w.detach(), torch.zeros(2, 2))) == pytest.approx(5**1.2 / 1.2)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (2, 0, 3)])
def test_tensors_without_entries_are_mapped(shape):
    empty = torch.zeros(shape)
    for groups in ("rows", "columns"):
        potential = GroupLpPotential(1.3, groups)
        assert potential.to_dual(empty).shape == empty.shape
        assert float(potential.norm(empty)) == float(potential.value(empty)) == 0


@pytest.mark.parametrize("groups", ["rows", "columns"])
def test_the_layout_of_memory_changes_no_bit(groups):
    x = np.random.default_rng(2).standard_normal((6, 1000))
    potential = GroupLpPotential(1.3, groups, block=2)
    expected = potential.to_dual(x)
    for other in layouts(x):
        np.testing.assert_array_equal(potential.to_dual(other), expected)
    transposed = torch.from_numpy(x).t().contiguous().t()
    assert torch.equal(potential.to_dual(transposed), torch.from_numpy(expected))


@pytest.mark.parametrize("potential", [GroupLpPotential(1.3), GroupLpPotential(1.3, "columns", 2)])
def test_what_is_coupled_is_the_whole_group(potential):
    changed = np.zeros((4, 6), dtype=bool)
    changed[1, 3] = True
    expected = np.zeros_like(changed)
    for group in list_groups((4, 6), potential.groups, potential.block):
        if (1, 3) in group:
            expected[tuple(zip(*group, strict=True))] = True
    found = potential.find_coupled(torch.from_numpy(changed))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 1.0}, "p is 1.0: give a number above 1"),
        ({"p": 1.5, "groups": "heads"}, "groups is 'heads': give one of rows, columns"),
        ({"p": 1.5, "block": 0}, "block is 0: give a positive integer"),
        ({"p": 1.5, "block": 1.5}, "block is 1.5: give a positive integer"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(GeometryError, match=message):
        GroupLpPotential(**arguments)


def test_tensors_without_such_groups_are_refused():
    with pytest.raises(GeometryError, match=r"needs a matrix, and was given the shape \(3,\)"):
        GroupLpPotential(1.5).to_dual(torch.ones(3))
    for name in ("to_primal", "value", "norm", "dual_norm"):
        with pytest.raises(GeometryError, match="does not divide the 4 columns"):
            getattr(GroupLpPotential(1.5, "columns", 3), name)(torch.ones(3, 4))
    with pytest.raises(GeometryError, match="does not divide the 4 rows"):
        GroupLpPotential(1.5, block=3).bregman(torch.ones(4, 2), torch.ones(4, 2))


def test_repr_shows_every_parameter():
    text = repr(GroupLpPotential(1.5, "columns", block=16))
    assert text == "GroupLpPotential(p=1.5, groups='columns', block=16)"
