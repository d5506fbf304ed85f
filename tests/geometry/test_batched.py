"""Powers, norms and divergences of many vectors: each has the bits that it has alone."""

import numpy as np
import pytest
from layouts import layouts

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)

import mirrormargin as mm
from mirrormargin.geometry.batched import divergence_each, norm_each, power_each

# 0.5 and 2 are those for which NumPy has routines of their own, if there is one exponent.
EXPONENTS = np.array([0.5, 2.0, 0.1, 1.0, 3.0, 0.75])
NORMS = np.array([1.5, 2.0, 3.0, 1.1, 11.0, 1.75])
COUNT = 100_000


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) * 10 ** rng.uniform(-3, 3, size=shape)


def test_a_batch_has_the_bits_of_its_vectors_alone():
    x = numbers(len(EXPONENTS), COUNT)
    together = power_each(x, EXPONENTS)
    norms = norm_each(x, NORMS)
    divergences = divergence_each(x[:1], x, NORMS)
    for j in range(len(x)):
        np.testing.assert_array_equal(power_each(x[j : j + 1], EXPONENTS[j])[0], together[j])
        assert norm_each(x[j], NORMS[j]) == norms[j]
        assert divergence_each(x[0], x[j], NORMS[j]) == divergences[j]


def test_a_power_has_the_bits_that_it_has_among_others():
    x = numbers(COUNT)
    for r in (0.5, 2.0, 0.1):
        whole = power_each(x[None], r)[0]
        # One exponent for each number, all of them different vectors.
        np.testing.assert_array_equal(power_each(x, np.full(COUNT, r)), whole)
        for start, length in [(0, 1), (1, 2), (3, 7), (5, 64), (17, 1001), (99_990, 10)]:
            part = x[start : start + length]
            np.testing.assert_array_equal(power_each(part[None], r)[0], whole[start:][:length])


def test_the_layout_of_memory_changes_no_bit():
    x = numbers(len(EXPONENTS), 1001)
    powers, norms = power_each(x, EXPONENTS), norm_each(x, NORMS)
    divergences = divergence_each(x[::-1], x, NORMS)
    for other in layouts(x):
        np.testing.assert_array_equal(power_each(other, EXPONENTS), powers)
        np.testing.assert_array_equal(norm_each(other, NORMS), norms)
        np.testing.assert_array_equal(divergence_each(x[::-1], other, NORMS), divergences)
        np.testing.assert_array_equal(divergence_each(other[::-1], x, NORMS), divergences)


def test_powers_roots_and_squares_are_those_of_numpy():
    x = numbers(2, 1000)
    found = power_each(x, [0.5, 2.0])
    np.testing.assert_array_equal(found[0], np.copysign(np.sqrt(np.abs(x[0])), x[0]))
    np.testing.assert_array_equal(found[1], x[1] * np.abs(x[1]))
    np.testing.assert_allclose(
        power_each(x, [0.3, 2.7]), np.sign(x) * np.abs(x) ** [[0.3], [2.7]], rtol=2e-15
    )


def test_norms_are_those_of_geometry():
    x = numbers(len(NORMS), 37)
    expected = [mm.LpPotential(p).norm(row) for p, row in zip(NORMS, x, strict=True)]
    np.testing.assert_allclose(norm_each(x, NORMS), expected, rtol=4e-15)
    stacked = norm_each(numbers(2, 3, 4), [[1.5], [3.0]])
    assert stacked.shape == (2, 3)


def test_norms_at_the_ends_of_the_range():
    rows = [[3e-308, 4e-308], [1.2e308, -1.6e308], [0.0, 0.0], [np.inf, 1], [np.nan, np.inf]]
    found = norm_each(rows, 2.0)
    np.testing.assert_allclose(found, [5e-308, np.inf, 0.0, np.inf, np.nan], rtol=1e-15)
    np.testing.assert_allclose(norm_each([[1e308, 1e308]], 11.0), [1e308 * 2 ** (1 / 11)])
    assert norm_each(np.empty((2, 0)), 3.0).tolist() == [0.0, 0.0]


def test_divergences_are_those_of_geometry():
    U, V = numbers(len(NORMS), 37), numbers(len(NORMS), 37, seed=1)
    expected = [mm.directional_divergence(*one) for one in zip(U, V, NORMS, strict=True)]
    np.testing.assert_allclose(divergence_each(U, V, NORMS), expected, rtol=1e-14)


@pytest.mark.parametrize("p", NORMS)
def test_close_directions_have_a_small_divergence(p):
    V = np.random.default_rng(0).normal(size=(50, 100))
    assert (divergence_each(V, V, p) <= 1e-16).all()
    assert (divergence_each(3.7 * V, V, p) <= 1e-15).all()
    # A step of relative size t costs about t^2.
    near = divergence_each(V * (1 + 1e-6 * np.sin(np.arange(100))), V, p)
    assert ((near > 1e-16) & (near < 1e-9)).all()


def test_what_has_no_direction_has_no_divergence():
    V = np.array([[1.0, 2.0], [0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0]])
    np.testing.assert_array_equal(
        np.isnan(divergence_each(V[0], V, 2.0)), [False, True, True, True]
    )
    assert np.isnan(divergence_each(V[1:], np.broadcast_to(V[0], (3, 2)), 1.5)).all()
