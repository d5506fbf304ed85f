"""Vectors as a number type: each lane does what NumPy does to one number, alone."""

import functools

import numpy as np
import pytest

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)
from compiled_once import compile_once

from mirrormargin.geometry import lanes
from mirrormargin.geometry.float64_loops import weigh_rows
from mirrormargin.geometry.lanes import (
    LANES,
    any_of,
    load,
    make_lists,
    multiply,
    select,
    splat,
    store,
)

SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 5e-324, 1e308, 1 / 3]


def make_calculate(version):
    def calculate(first, second, out):
        _ = version
        for j in range(len(first) // LANES):
            a, b = load(first, j), load(second, j)
            store(out, 9 * j, a + b)
            store(out, 9 * j + 1, a - b)
            store(out, 9 * j + 2, a * b)
            store(out, 9 * j + 3, a / b)
            store(out, 9 * j + 4, abs(a))
            store(out, 9 * j + 5, select(a < b, a, b))
            store(out, 9 * j + 6, select(~(a > b) & (a != b), a, b))
            store(out, 9 * j + 7, select((a == b) | (a > b), splat(1.0), splat(0.0)))
            store(out, 9 * j + 8, splat(1.0 if any_of(a == b) else 0.0))

    return calculate


def make_multiply(version):
    def run(a, a_row, a_next, b, b_column, b_next, out, rows, columns, count):
        _ = version
        multiply(
            *(a.ctypes.data, a_row, a_next, b.ctypes.data, b_column, b_next),
            *(out.ctypes.data, rows, columns, count),
        )

    return run


def make_one_product(version):
    def run(a, b, out, rows, columns, count):
        _ = version
        weigh_rows(
            *(a.ctypes.data, count, 1, b.ctypes.data, 0, columns, out.ctypes.data, rows, count)
        )

    return run


@functools.cache
def load_compiled(make, *examples):
    return compile_once(make, *(np.zeros(8) if one == "array" else one for one in examples))


def as_list(values):
    """A list of vectors with these numbers, (..., 8)."""
    (found,) = make_lists(values.size // LANES)
    found[:] = values.reshape(-1)
    return found


def test_lists_begin_at_multiples_of_a_vector_and_do_not_overlap():
    for counts in ((1,), (3, 1, 7), (480, 60, 100, 1)):
        lists = make_lists(*counts)
        assert [len(one) for one in lists] == [LANES * count for count in counts]
        assert all(one.ctypes.data % (8 * LANES) == 0 for one in lists)
        assert not any(one.any() for one in lists)
        for j, one in enumerate(lists):
            one[:] = j + 1
        assert [set(one) for one in lists] == [{j + 1.0} for j in range(len(lists))]


def test_each_operation_is_that_of_numpy_in_every_lane():
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL] + [(0.0, 1.0)] * 4)
    a, b = (as_list(column) for column in pairs.T)
    out = as_list(np.full((9 * len(pairs) // LANES, LANES), 7.0))
    load_compiled(make_calculate, *["array"] * 3)(a, b, out)
    found = out.reshape(-1, 9, LANES).swapaxes(0, 1).reshape(9, -1)
    with np.errstate(all="ignore"):
        expected = (
            *(a + b, a - b, a * b, a / b, np.abs(a), np.where(a < b, a, b)),
            np.where(~(a > b) & (a != b), a, b),
            ((a == b) | (a > b)).astype(float),
            np.repeat((a == b).reshape(-1, LANES).any(axis=1), LANES).astype(float),
        )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        usual = ~np.isnan(one)
        np.testing.assert_array_equal(np.signbit(one)[usual], np.signbit(other)[usual])
    assert 0 < found[8].sum() < len(pairs)


@pytest.mark.parametrize("rows", range(1, 6))
@pytest.mark.parametrize("columns", [1, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_product_has_the_bits_of_the_one_for_one_problem(rows, columns, count):
    rng = np.random.default_rng(rows + 10 * columns + 100 * count)
    a, b = rng.normal(size=(rows, count, LANES)), rng.normal(size=(count, columns, LANES))
    out = as_list(np.full((rows * columns + 1, LANES), 7.0))
    run = load_compiled(make_multiply, *("array", 0, 0) * 2, "array", 0, 0, 0)
    run(as_list(a), count, 1, as_list(b), 1, columns, out, rows, columns, count)
    found = out.reshape(-1, LANES)
    assert (found[-1] == 7.0).all()
    single = load_compiled(make_one_product, *["array"] * 3, 0, 0, 0)
    width = -(-columns // 4) * 4
    for lane in range(LANES):
        padded = np.zeros((count, width))
        padded[:, :columns] = b[:, :, lane]
        expected = np.empty((rows, width))
        weights = np.ascontiguousarray(a[:, :, lane])
        single(weights.reshape(-1), padded.reshape(-1), expected.reshape(-1), rows, width, count)
        mine = found[:-1, lane].reshape(rows, columns)
        np.testing.assert_array_equal(mine, expected[:, :columns])


def test_a_product_may_be_of_transposed_factors():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 3, LANES)), rng.normal(size=(6, 4, LANES))
    out = as_list(np.zeros((3 * 6, LANES)))
    run = load_compiled(make_multiply, *("array", 0, 0) * 2, "array", 0, 0, 0)
    run(as_list(a), 1, 3, as_list(b), 4, 1, out, 3, 6, 4)
    expected = np.einsum("krl,ckl->rcl", a, b)
    np.testing.assert_allclose(out.reshape(3, 6, LANES), expected, atol=1e-14)


def test_the_sources_of_the_lanes_are_listed():
    assert lanes.__file__ in lanes.SOURCES
