"""Potentials: the maps invert each other, divergences are divergences, norms are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mirrormargin import (
    ElasticNetPotential,
    GeometryError,
    GroupLpPotential,
    HypentropyPotential,
    LpPotential,
    directional_divergence,
)

exponents = st.floats(1.05, 20.0)
entries = st.floats(-100, 100).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
vectors = arrays(np.float64, st.integers(1, 8), elements=entries)
pairs = st.integers(1, 8).flatmap(
    lambda n: st.tuples(*(arrays(np.float64, n, elements=entries) for _ in range(2)))
)
# Of an even number of rows and columns, so that all have blocks of two.
shapes = st.tuples(st.sampled_from((2, 4)), st.sampled_from((2, 4)))
matrices = arrays(np.float64, shapes, elements=entries)
matrix_pairs = shapes.flatmap(
    lambda shape: st.tuples(*(arrays(np.float64, shape, elements=entries) for _ in range(2)))
)
POTENTIALS = [
    *(LpPotential(p) for p in (1.05, 1.1, 1.5, 1.75, 2.0, 3.0, 7.5)),
    *(LpPotential(p, scale=0.3) for p in (1.2, 2.0, 5.0)),
    HypentropyPotential(0.5),
    HypentropyPotential(3.0),
    ElasticNetPotential(0.5, delta=2.0),
    ElasticNetPotential(0.0),
    *(GroupLpPotential(p) for p in (1.05, 1.5, 2.0, 7.5)),
    GroupLpPotential(1.2, "rows", block=2),
    GroupLpPotential(3.0, "columns"),
    GroupLpPotential(1.2, "columns", block=2),
]


@given(matrices)
@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
def test_maps_invert_each_other(potential, w):
    np.testing.assert_allclose(potential.to_primal(potential.to_dual(w)), w, rtol=1e-12)


@given(matrices)
@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
def test_only_potentials_that_say_so_map_several_duals_to_a_weight(potential, u):
    again = potential.to_dual(potential.to_primal(u))
    if potential.is_invertible:
        np.testing.assert_allclose(again, u, rtol=1e-9, atol=1e-9)
    else:
        lost = np.abs(u) <= potential.l1
        np.testing.assert_allclose(again[~lost], u[~lost], rtol=1e-12)
        assert not again[lost].any()


def test_the_elastic_net_is_exactly_zero_up_to_its_threshold():
    potential = ElasticNetPotential(1.0, delta=3.0)
    u = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.7, 1.0, 1.5, math.nan])
    w = potential.to_primal(u)
    torch.testing.assert_close(w[:7], torch.tensor([-3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.5]))
    assert not torch.signbit(w[1:6]).any()
    assert w[7].isnan()


@given(matrices)
@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
def test_to_dual_is_the_gradient_of_the_value(potential, w):
    w = np.where(np.abs(w) < 0.1, 0.1, w)  # away from 0, where p < 2 has no second derivative
    tensor = torch.tensor(w, requires_grad=True)
    potential.value(tensor).backward()
    np.testing.assert_allclose(tensor.grad.numpy(), potential.to_dual(w), rtol=1e-9)


@given(matrix_pairs)
@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
def test_bregman_divergence_is_its_definition_and_at_least_zero(potential, pair):
    a, b = pair
    value = float(potential.bregman(a, b))
    terms = (potential.value(a), -potential.value(b), -np.sum(potential.to_dual(b) * (a - b)))
    assert value >= 0
    assert value == pytest.approx(float(sum(terms)), abs=1e-10 * (1 + sum(map(abs, terms))))
    assert float(potential.bregman(a, a)) <= 1e-12 * (1 + abs(float(potential.value(a))))


@given(pairs, exponents)
def test_fenchel_young_and_hoelder(pair, p):
    w, g = pair
    potential, q = LpPotential(p), p / (p - 1)
    inner = float(np.sum(w * g))
    conjugate = float(potential.dual_norm(g)) ** q / q
    assert inner <= float(potential.value(w)) + conjugate * (1 + 1e-9) + 1e-9
    assert inner <= float(potential.norm(w)) * float(potential.dual_norm(g)) * (1 + 1e-9)


@given(vectors, exponents)
def test_dual_of_a_vector_has_matching_dual_norm(w, p):
    """||grad psi(w)||_q = ||w||_p^(p-1)."""
    potential = LpPotential(p)
    norm = float(potential.norm(w))
    dual = float(potential.dual_norm(potential.to_dual(w)))
    assert dual == pytest.approx(norm ** (p - 1), rel=1e-9, abs=1e-280)


@given(pairs, exponents)
def test_directional_divergence_is_scale_free_and_bounded(pair, p):
    u, v = pair
    if not (u.any() and v.any()):
        return
    value = float(directional_divergence(u, v, p))
    assert -1e-12 <= value <= 2 + 1e-9
    assert value == pytest.approx(float(directional_divergence(7 * u, 0.01 * v, p)), abs=1e-10)
    potential = LpPotential(p)
    unit_u, unit_v = u / potential.norm(u), v / potential.norm(v)
    assert value == pytest.approx(1 - np.sum(potential.to_dual(unit_v) * unit_u), abs=1e-9)
    assert float(directional_divergence(u, 3 * u, p)) == pytest.approx(0, abs=1e-12)


@given(pairs)
def test_directional_divergence_at_p2_is_one_minus_cosine(pair):
    u, v = pair
    if u.any() and v.any():
        cosine = np.sum(u * v) / np.linalg.norm(u) / np.linalg.norm(v)
        assert float(directional_divergence(u, v, 2.0)) == pytest.approx(1 - cosine, abs=1e-12)


@pytest.mark.parametrize("p", [1.0, 0.5, 0, -2, math.nan, math.inf, "x", None])
def test_exponents_outside_one_to_infinity_are_refused(p):
    with pytest.raises(GeometryError, match=r"p is .*: give a number above 1 and below inf"):
        LpPotential(p)
    assert issubclass(GeometryError, ValueError)


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, "std"])
def test_wrong_scales_are_refused(scale):
    with pytest.raises(GeometryError, match=r"scale is .*: give a number above 0"):
        LpPotential(2.0, scale)
    with pytest.raises(GeometryError, match=r"beta is .*: give a number above 0"):
        HypentropyPotential(0.0)
    with pytest.raises(GeometryError, match=r"delta is .*: give a number above 0"):
        ElasticNetPotential(1.0, delta=0.0)
    with pytest.raises(GeometryError, match=r"l1 is .*: give a number"):
        ElasticNetPotential(-1.0)


def test_scale_one_divides_by_p_minus_one():
    w = np.array([0.5, -2.0])
    plain, scaled = LpPotential(1.25), LpPotential(1.25, scale=1.0)
    np.testing.assert_allclose(scaled.to_dual(w) * 0.25, plain.to_dual(w))
    assert float(scaled.value(w)) * 0.25 == pytest.approx(float(plain.value(w)))


@pytest.mark.parametrize("p", [1.1, 2.0, 5.0])
def test_scaled_potential_has_unit_curvature_at_its_scale(p):
    potential, h = LpPotential(p, scale=0.02), 1e-6
    slope = (potential.to_dual(0.02 + h) - potential.to_dual(0.02 - h)) / (2 * h)
    assert float(slope) == pytest.approx(1, rel=1e-6)


def test_scaled_maps_round_once():
    """float32 and float16 hold the result where they do not hold |w|^(p-1)."""
    dual = LpPotential(10.0, scale=1e-3).to_dual(torch.tensor(1e-5))
    assert float(dual) == pytest.approx(1e-3 / 9 * 1e-2**9, rel=1e-6)
    half = LpPotential(3.0, scale=100.0).to_dual(torch.tensor(300.0, dtype=torch.float16))
    assert float(half) == 450


def test_rms_scale_is_bound_to_a_tensor():
    potential = LpPotential(1.5, scale="rms")
    with pytest.raises(GeometryError, match="bind"):
        potential.to_dual([1.0])
    assert potential.bind([3.0, 4.0]).scale == pytest.approx(math.sqrt(12.5))
    assert potential.bind(torch.zeros(4)).scale == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_keep_their_dtype_and_shape(dtype):
    w = torch.tensor([[0.5, -2.0], [0.0, 1.0]]).to(dtype)
    for potential in POTENTIALS:
        dual = potential.to_dual(w)
        assert (dual.dtype, dual.shape) == (dtype, w.shape)
        exact = potential.to_dual(w.double())
        torch.testing.assert_close(dual.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-30)


def test_numpy_in_numpy_out():
    potential = LpPotential(3.0)
    readonly = np.array([1.0, -2.0], dtype=">f8")
    readonly.flags.writeable = False
    assert isinstance(potential.to_dual(readonly), np.ndarray)
    assert isinstance(potential.value([1, 2]), np.floating)
    assert isinstance(potential.norm(torch.ones(2)), torch.Tensor)
    with pytest.raises(TypeError, match="real numbers"):
        potential.to_dual(["a"])


def test_directions_need_two_vectors_of_one_shape():
    with pytest.raises(GeometryError, match=r"shape \(2,\) and iterate \(3,\)"):
        directional_divergence([1.0, 2.0], [1.0, 2.0, 3.0], 2.0)
    with pytest.raises(GeometryError, match="iterate has p-norm 0"):
        directional_divergence([1.0, 2.0], [0.0, 0.0], 2.0)
