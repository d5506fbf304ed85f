"""Powers, norms and divergences of many vectors: each has the bits that it has alone."""

import numpy as np
import pytest
from layouts import layouts

import mirrormargin as mm
from mirrormargin.geometry import batched
from mirrormargin.geometry.batched import divergence_each, norm_each, power_each
from mirrormargin.geometry.compiler import has_numba

COMPILED = pytest.mark.skipif(not has_numba(), reason="compiled code needs Numba")

# 0.5 and 2 are those for which NumPy has routines of their own, if there is one exponent.
EXPONENTS = np.array([0.5, 2.0, 0.1, 1.0, 3.0, 0.75])
NORMS = np.array([1.5, 2.0, 3.0, 1.1, 11.0, 1.75])
COUNT = 100_000


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) * 10 ** rng.uniform(-3, 3, size=shape)


@COMPILED
def test_a_batch_has_the_bits_of_its_vectors_alone():
    x = numbers(len(EXPONENTS), COUNT)
    together = power_each(x, EXPONENTS)
    norms = norm_each(x, NORMS)
    divergences = divergence_each(x[:1], x, NORMS)
    for j in range(len(x)):
        np.testing.assert_array_equal(power_each(x[j : j + 1], EXPONENTS[j])[0], together[j])
        assert norm_each(x[j], NORMS[j]) == norms[j]
        assert divergence_each(x[0], x[j], NORMS[j]) == divergences[j]


@COMPILED
def test_a_power_has_the_bits_that_it_has_among_others():
    x = numbers(COUNT)
    for r in (0.5, 2.0, 0.1):
        whole = power_each(x[None], r)[0]
        # One exponent for each number, all of them different vectors.
        np.testing.assert_array_equal(power_each(x, np.full(COUNT, r)), whole)
        for start, length in [(0, 1), (1, 2), (3, 7), (5, 64), (17, 1001), (99_990, 10)]:
            part = x[start : start + length]
            np.testing.assert_array_equal(power_each(part[None], r)[0], whole[start:][:length])


@COMPILED
def test_the_layout_of_memory_changes_no_bit():
    x = numbers(len(EXPONENTS), 1001)
    powers, norms = power_each(x, EXPONENTS), norm_each(x, NORMS)
    divergences = divergence_each(x[::-1], x, NORMS)
    for other in layouts(x):
        np.testing.assert_array_equal(power_each(other, EXPONENTS), powers)
        np.testing.assert_array_equal(norm_each(other, NORMS), norms)
        np.testing.assert_array_equal(divergence_each(x[::-1], other, NORMS), divergences)
        np.testing.assert_array_equal(divergence_each(other[::-1], x, NORMS), divergences)


@pytest.fixture(params=["compiled", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(batched, "has_numba", lambda: False)
    elif not has_numba():
        pytest.skip("compiled code needs Numba")


@pytest.mark.usefixtures("way")
class TestBothWays:
    """In compiled loops, and without Numba."""

    def test_powers_roots_and_squares_are_those_of_numpy(self):
        x = numbers(2, 1000)
        found = power_each(x, [0.5, 2.0])
        np.testing.assert_array_equal(found[0], np.copysign(np.sqrt(np.abs(x[0])), x[0]))
        np.testing.assert_array_equal(found[1], x[1] * np.abs(x[1]))
        np.testing.assert_allclose(
            power_each(x, [0.3, 2.7]), np.sign(x) * np.abs(x) ** [[0.3], [2.7]], rtol=2e-15
        )

    def test_norms_are_those_of_geometry(self):
        x = numbers(len(NORMS), 37)
        expected = [mm.LpPotential(p).norm(row) for p, row in zip(NORMS, x, strict=True)]
        np.testing.assert_allclose(norm_each(x, NORMS), expected, rtol=4e-15)
        stacked = norm_each(numbers(2, 3, 4), [[1.5], [3.0]])
        assert stacked.shape == (2, 3)

    def test_norms_at_the_ends_of_the_range(self):
        rows = [[3e-308, 4e-308], [1.2e308, -1.6e308], [0.0, 0.0], [np.inf, 1], [np.nan, np.inf]]
        found = norm_each(rows, 2.0)
        np.testing.assert_allclose(found, [5e-308, np.inf, 0.0, np.inf, np.nan], rtol=1e-15)
        np.testing.assert_allclose(norm_each([[1e308, 1e308]], 11.0), [1e308 * 2 ** (1 / 11)])
        assert norm_each(np.empty((2, 0)), 3.0).tolist() == [0.0, 0.0]

    def test_divergences_are_those_of_geometry(self):
        U, V = numbers(len(NORMS), 37), numbers(len(NORMS), 37, seed=1)
        expected = [mm.directional_divergence(*one) for one in zip(U, V, NORMS, strict=True)]
        np.testing.assert_allclose(divergence_each(U, V, NORMS), expected, rtol=1e-14)

    @pytest.mark.parametrize("p", NORMS)
    def test_close_directions_have_a_small_divergence(self, p):
        V = np.random.default_rng(0).normal(size=(50, 100))
        assert (divergence_each(V, V, p) <= 1e-16).all()
        assert (divergence_each(3.7 * V, V, p) <= 1e-15).all()
        # A step of relative size t costs about t^2.
        near = divergence_each(V * (1 + 1e-6 * np.sin(np.arange(100))), V, p)
        assert ((near > 1e-16) & (near < 1e-9)).all()

    def test_what_has_no_direction_has_no_divergence(self):
        V = np.array([[1.0, 2.0], [0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0]])
        np.testing.assert_array_equal(
            np.isnan(divergence_each(V[0], V, 2.0)), [False, True, True, True]
        )
        assert np.isnan(divergence_each(V[1:], np.broadcast_to(V[0], (3, 2)), 1.5)).all()

    @pytest.mark.parametrize("p", NORMS)
    def test_norms_of_matrices_neither_overflow_nor_underflow(self, p):
        W = np.random.default_rng(0).normal(size=(4, 3, 3))
        for scale in (1e-200, 1.0, 1e200):
            expected = [scale * float(mm.LpPotential(p).norm(one)) for one in W]
            np.testing.assert_allclose(norm_each(scale * W, p, axes=2), expected, rtol=1e-13)
        assert not norm_each(np.zeros((2, 3, 3)), p, axes=2).any()
        np.testing.assert_array_equal(norm_each(np.array([[[1.0, -np.inf]]]), p, axes=2), [np.inf])
        np.testing.assert_array_equal(norm_each(np.array([[[1.0, np.nan]]]), p, axes=2), [np.nan])

    @pytest.mark.parametrize("p", NORMS)
    def test_divergence_is_the_directional_one(self, p):
        rng = np.random.default_rng(0)
        target, W = rng.normal(size=(2, 1, 4, 4)), rng.normal(size=(2, 3, 4, 4))
        W[0, 0] = 1e-150 * target[0, 0]
        W[1, 1] = -target[1, 0]
        found = divergence_each(target, W, p, axes=2)
        assert found.shape == (2, 3)
        for i, k in np.ndindex(2, 3):
            expected = float(mm.directional_divergence(target[i, 0], W[i, k], p))
            assert found[i, k] == pytest.approx(expected, rel=1e-12, abs=1e-15)
        assert found[0, 0] < 1e-15
        assert found[1, 1] == pytest.approx(2.0)

    def test_divergence_from_or_of_nothing_is_nan(self):
        W, zero, nan = np.ones((2, 2)), np.zeros((2, 2)), np.full((2, 2), [np.nan])
        for pair in ((zero, W), (W, zero), (nan, W), (W, nan)):
            assert np.isnan(divergence_each(*pair, 1.5, axes=2))

    def test_large_batches_are_done_in_blocks(self, monkeypatch):
        U, V = numbers(2, 1, 5), numbers(2, 3, 5, seed=1)
        whole = divergence_each(U, V, [[1.5], [3.0]])
        monkeypatch.setattr(batched, "BLOCK", 4)
        np.testing.assert_array_equal(divergence_each(U, V, [[1.5], [3.0]]), whole)
