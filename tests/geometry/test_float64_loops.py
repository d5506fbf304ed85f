"""The compiled float64 loops, against high precision and NumPy."""

import functools
import itertools
import math
from collections import namedtuple

import mpmath
import numpy as np
import pytest

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)
from compiled_once import compile_once
from numba import types

from mirrormargin.geometry import float64_loops

EXPONENTS = [0.05, 0.1, 1 / 9, 0.25, 1 / 3, 2 / 3, 0.95, 1.1, 4 / 3, 1.5, 2.5, 3.0, 4.0, 10.0, 12.0]
LEAST, MOST = np.finfo(np.float64).tiny, np.finfo(np.float64).max


# The functions are called by other compiled functions alone.


def make_run(version):
    def run(name, x, r, factor, out):
        _ = version
        if name == 0:
            float64_loops.signed_powers(x, r, out)
        elif name == 1:
            float64_loops.exponentials(x, out)
        elif name == 2:
            return float64_loops.power_sum(x, factor, r, out)
        elif name == 3:
            return float64_loops.largest(x)
        elif name == 4:
            return float64_loops.absolute_sum(x)
        return 0.0

    return run


def make_weigh_rows(version):
    def run(weights, weight_block, weight_stride, rows, row_block, width, out, blocks, num):
        _ = version
        float64_loops.weigh_rows(
            weights, weight_block, weight_stride, rows, row_block, width, out, blocks, num
        )

    return run


@functools.cache
def load(make, *examples):
    return compile_once(make, *(np.zeros(1) if one == "array" else one for one in examples))


def run(name, x, r=0.0, factor=0.0, out=None):
    x = np.asarray(x, dtype=float)
    out = np.full_like(x, 7.0) if out is None else out
    return load(make_run, 0, "array", 0.0, 0.0, "array")(name, x, r, factor, out), out


def signed_powers(x, r, out=None):
    return run(0, x, r, out=out)[1]


def exponentials(x):
    return run(1, x)[1]


def power_sum(x, factor, r):
    return run(2, x, r, factor)[0]


def largest(x):
    return run(3, x)[0]


def absolute_sum(x):
    return run(4, x)[0]


def weigh_rows(weights, weight_block, weight_stride, rows, row_block, width, out, blocks, num):
    load(make_weigh_rows, *[0] * 9)(
        *(weights.ctypes.data, weight_block, weight_stride, rows.ctypes.data, row_block),
        *(width, out.ctypes.data, blocks, num),
    )


def ulps(found, exact):
    """How far a float is from an exact number, in units of its last place."""
    return float(abs(mpmath.mpf(float(found)) - exact)) / np.spacing(abs(float(exact)))


def log_uniform(seed, low, high, count):
    return 10 ** np.random.default_rng(seed).uniform(low, high, count)


@pytest.mark.parametrize("r", EXPONENTS)
def test_powers_are_as_accurate_as_their_logarithm(r):
    # Where the results are normal, and below 2^1023.5; near 1, where the logarithm is small, too.
    # The most in 10^6 numbers was 2.1 ulp at r = 0.05, 3.9 at 3, 14.2 at 10 and 16.2 at 12.
    low, high = max(-300.0, -307.0 / r), min(300.0, 307.0 / r)
    near = 1 + np.concatenate([[0.0], 2.0 ** -np.arange(1, 52), -(2.0 ** -np.arange(2, 53))])
    x = np.concatenate([log_uniform(0, low, high, 300), log_uniform(1, -2, 2, 100), near])
    x *= np.random.default_rng(2).choice([-1.0, 1.0], x.size)
    found = signed_powers(x, r)
    assert (np.sign(found) == np.sign(x)).all()
    with mpmath.workdps(40):
        exact = [mpmath.mpf(abs(float(one))) ** mpmath.mpf(r) for one in x]
        assert max(ulps(abs(a), b) for a, b in zip(found, exact, strict=True)) <= 2.5 + 1.3 * r


def test_powers_of_powers_of_two_are_exact():
    # Nothing but the exponent is left, which a float holds.
    powers = np.arange(-300, 301, 3)
    for r in (1 / 4, 3.0, 1.5, 2.5):
        whole = powers[powers * r == np.floor(powers * r)]
        np.testing.assert_array_equal(signed_powers(2.0**whole, r), 2.0 ** (whole * r))


def test_first_and_second_powers_and_roots_are_correctly_rounded():
    x = log_uniform(0, -300, 300, 1000) * np.random.default_rng(1).choice([-1.0, 1.0], 1000)
    moderate = x[np.abs(np.log10(np.abs(x))) < 150]
    np.testing.assert_array_equal(signed_powers(x, 1.0), x)
    np.testing.assert_array_equal(signed_powers(moderate, 2.0), moderate * np.abs(moderate))
    np.testing.assert_array_equal(signed_powers(x, 0.5), np.sign(x) * np.sqrt(np.abs(x)))


@pytest.mark.parametrize("r", [*EXPONENTS, 0.5, 1.0, 2.0])
def test_zeros_keep_their_sign_and_are_zero(r):
    found = signed_powers([0.0, -0.0], r)
    np.testing.assert_array_equal(found, [0.0, 0.0])
    np.testing.assert_array_equal(np.signbit(found), [False, True])


@pytest.mark.parametrize("r", [1.1, 3.0, 12.0])
def test_powers_below_the_normal_numbers_are_zero(r):
    x = -(10 ** (-310.0 / r))
    found = signed_powers([x, -x, 0.0, 1e-310, -1e-310], r)
    np.testing.assert_array_equal(found, np.zeros(5))
    np.testing.assert_array_equal(np.signbit(found), [True, False, False, False, True])


def test_powers_of_numbers_below_the_normal_ones_are_zero():
    found = signed_powers([5e-324, -1e-310, LEAST], 0.1)
    np.testing.assert_array_equal(found[:2], [0.0, -0.0])
    assert found[2] == pytest.approx(LEAST**0.1)


@pytest.mark.parametrize("r", [1.1, 3.0, 12.0])
def test_powers_beyond_the_range_are_infinite(r):
    x = 10 ** (309.0 / r)
    np.testing.assert_array_equal(signed_powers([x, -x, MOST], r), [np.inf, -np.inf, np.inf])
    assert (signed_powers([10 ** (307.9 / r)], r) < np.inf).all()


@pytest.mark.parametrize("r", [*EXPONENTS, 0.5, 1.0, 2.0])
def test_powers_of_inf_and_nan_are_inf_and_nan(r):
    np.testing.assert_array_equal(
        signed_powers([np.inf, -np.inf, np.nan, -np.nan], r), [np.inf, -np.inf, np.nan, np.nan]
    )


def test_powers_may_overwrite_their_argument():
    x = log_uniform(0, -5, 5, 33) * np.random.default_rng(1).choice([-1.0, 1.0], 33)
    for r in (0.3, 0.5, 1.0, 2.0, 3.0):
        expected = signed_powers(x, r)
        there = x.copy()
        signed_powers(there, r, there)
        np.testing.assert_array_equal(there, expected)


def test_exponentials_are_within_a_little_more_than_two_ulp():
    rng = np.random.default_rng(0)
    x = -np.concatenate([rng.uniform(0, 700, 1000), log_uniform(1, -20, 2, 500), [0.0, 700.0]])
    # The most in 10^6 numbers was 2.1 ulp.
    with mpmath.workdps(40):
        exact = [mpmath.exp(mpmath.mpf(float(one))) for one in x]
        assert max(ulps(a, b) for a, b in zip(exponentials(x), exact, strict=True)) <= 2.2
    assert exponentials([0.0, -0.0]).tolist() == [1.0, 1.0]


def test_exponentials_below_the_normal_numbers_are_zero():
    x = [-708.5, -745.0, -746.0, -1e4, -1e6, -1e300, -np.inf]
    np.testing.assert_array_equal(exponentials(x), np.zeros(len(x)))
    assert exponentials([-708.3])[0] == pytest.approx(math.exp(-708.3), rel=1e-15)


def test_exponentials_of_positive_numbers_are_as_accurate_up_to_their_end():
    x = np.concatenate([np.random.default_rng(0).uniform(0, 709, 500), [709.0]])
    with mpmath.workdps(40):
        exact = [mpmath.exp(mpmath.mpf(float(one))) for one in x]
        assert max(ulps(a, b) for a, b in zip(exponentials(x), exact, strict=True)) <= 2.2
    np.testing.assert_array_equal(exponentials([709.5, 710.0, 1e4, 1e300, np.inf]), np.inf)


def test_exponential_of_nan_is_nan():
    np.testing.assert_array_equal(exponentials([np.nan, -1.0])[:1], [np.nan])


@pytest.mark.parametrize("r", [1.1, 1.5, 2.0, 3.0, 11.0])
@pytest.mark.parametrize("count", [1, 3, 4, 101])
def test_power_sums_are_sums_of_powers(r, count):
    x = np.random.default_rng(count).normal(size=count)
    factor = 1 / np.abs(x).max()
    with mpmath.workdps(40):
        exact = mpmath.fsum(mpmath.mpf(factor * abs(float(one))) ** r for one in x)
    # Terms as accurate as powers are, and a sum of positive numbers.
    found = power_sum(x, factor, r)
    assert found == pytest.approx(float(exact), rel=(2.5 + 1.3 * r + count) * 2**-52, abs=0)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 100])
def test_largest_and_absolute_sum_are_those_of_numpy(count):
    x = np.random.default_rng(count).normal(size=count)
    assert largest(x) == np.abs(x).max(initial=0.0)
    assert absolute_sum(x) == pytest.approx(math.fsum(np.abs(x)), rel=count * 2**-53)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 8, 101, 120])
def test_sums_have_an_order_of_their_own_whatever_the_cpu(count):
    x = np.random.default_rng(count).normal(size=count)
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(0, count // 4 * 4, 4):
        a, b, c, d = (total + abs(one) for total, one in zip((a, b, c, d), x[j:], strict=False))
    expected = (a + b) + (c + d)
    for one in x[count // 4 * 4 :]:
        expected += abs(one)
    assert absolute_sum(x) == expected
    roots = np.sqrt(np.abs(x))
    squares = roots * roots
    assert power_sum(roots, 1.0, 2.0) == absolute_sum(squares)


def test_no_compiled_function_counts_references():
    # Counting would take half the time of a step: two locked additions for each array and use.
    Pair = namedtuple("Pair", "x y")

    @float64_loops.compiled
    def add_halves(pair):
        total = 0.0
        for k in range(3):
            half = pair.x[: len(pair.y)]
            total += float64_loops.absolute_sum(half) + pair.y.reshape(-1)[k]
        return total

    vector = types.float64[::1]
    add_halves.compile((types.NamedUniTuple(vector, 2, Pair),))
    assert "NRT_incref" not in "".join(add_halves.inspect_llvm().values())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 36])
def test_absolute_sum_shows_entries_that_are_not_finite(bad, place):
    x = np.ones(37)
    x[place] = bad
    assert not absolute_sum(x) < np.inf
    assert math.isnan(absolute_sum(x)) == math.isnan(bad)


@pytest.mark.parametrize("width", range(4, 72, 4))
def test_weighted_rows_are_einsum(width):
    rng = np.random.default_rng(width)
    for blocks, num in ((1, 1), (3, 5), (2, 0), (4, 9)):
        weights = rng.normal(size=(blocks, num))
        rows = rng.normal(size=(blocks, num, width))
        out = np.full(blocks * width + 4, 7.0)
        weigh_rows(weights, num, 1, rows, num * width, width, out, blocks, num)
        expected = np.einsum("ik,ikj->ij", weights, rows)
        np.testing.assert_allclose(out[:-4].reshape(expected.shape), expected, atol=1e-14)
        np.testing.assert_array_equal(out[-4:], 7.0)


@pytest.mark.parametrize("width", range(4, 72, 4))
def test_weighted_sums_of_the_same_rows_are_a_product(width):
    # Columns of a padded matrix as weights.
    rng = np.random.default_rng(width)
    for blocks, num in itertools.product((1, 2, 3, 4, 5, 7, 8, 9), (0, 1, 6)):
        weights, rows = rng.normal(size=(num, 12)), rng.normal(size=(num, width))
        out = np.full(blocks * width + 4, 7.0)
        weigh_rows(weights, 1, 12, rows, 0, width, out, blocks, num)
        expected = weights[:, :blocks].T @ rows
        np.testing.assert_allclose(out[:-4].reshape(expected.shape), expected, atol=1e-14)
        np.testing.assert_array_equal(out[-4:], 7.0)


def test_weighted_rows_may_share_their_weights():
    rng = np.random.default_rng(0)
    weights, rows = rng.normal(size=6), rng.normal(size=(3, 6, 20))
    out = np.empty((3, 20))
    weigh_rows(weights, 0, 1, rows, 120, 20, out, 3, 6)
    np.testing.assert_allclose(out, np.einsum("k,ikj->ij", weights, rows), atol=1e-14)
