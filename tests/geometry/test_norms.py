"""Norms and signed powers: torch and NumPy agree, along any axis, over the whole range."""

import math

import numpy as np
import pytest
import torch

from mirrormargin.errors import GeometryError
from mirrormargin.geometry.norms import lp_norm, signed_power

EXPONENTS = [1.0, 1.01, 1.1, 1.5, 2.0, 3.0, 11.0, 101.0, math.inf]


def sample(*shape):
    rng = np.random.default_rng(0)
    return rng.normal(size=shape) * 10 ** rng.uniform(-3, 3, shape)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, -2)])
def test_torch_and_numpy_agree_along_any_axis(exponent, axis):
    x = sample(3, 4, 5)
    expected = np.linalg.norm if axis is None else None
    found, tensor = lp_norm(x, exponent, axis), lp_norm(torch.from_numpy(x), exponent, axis)
    np.testing.assert_allclose(found, tensor.numpy(), rtol=1e-14)
    if expected is not None:
        np.testing.assert_allclose(found, expected(x.reshape(-1), exponent), rtol=1e-12)
    else:
        axes = (axis,) if isinstance(axis, int) else axis
        rest = [k for k in range(3) if k not in [one % 3 for one in axes]]
        rows = x.transpose(*rest, *(one % 3 for one in axes)).reshape(*found.shape, -1)
        each = [lp_norm(row, exponent) for row in rows.reshape(-1, rows.shape[-1])]
        np.testing.assert_allclose(found.reshape(-1), each, rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1.0, 1e200, 1e300])
@pytest.mark.parametrize("exponent", [1.1, 2.0, 11.0])
def test_norms_along_an_axis_neither_overflow_nor_underflow(scale, exponent):
    x = np.random.default_rng(0).normal(size=(4, 9))
    for found in (lp_norm(scale * x, exponent, 1), lp_norm(torch.tensor(scale * x), exponent, 1)):
        np.testing.assert_allclose(np.asarray(found) / scale, lp_norm(x, exponent, 1), rtol=1e-13)


def test_norms_of_special_rows():
    rows = np.array([[0.0, 0.0], [1.0, -math.inf], [math.nan, 1.0], [math.nan, math.inf]])
    for exponent in (1.5, math.inf):
        for x in (rows, torch.from_numpy(rows)):
            found = np.asarray(lp_norm(x, exponent, axis=1))
            np.testing.assert_array_equal(found, [0.0, math.inf, math.nan, math.nan])
    np.testing.assert_array_equal(lp_norm(np.empty((2, 0)), 3.0, axis=1), [0.0, 0.0])


def test_norms_keep_the_type():
    assert lp_norm(np.ones(3, np.float32), 3.0).dtype == np.float32
    assert lp_norm(np.ones((2, 3), np.float32), 3.0, axis=0).dtype == np.float32
    assert lp_norm([1, 2, 3], 3.0).dtype == np.float64
    assert lp_norm(torch.ones(3, dtype=torch.bfloat16), 3.0).dtype == torch.float32
    with pytest.raises(TypeError, match="real numbers"):
        lp_norm(["a"], 2.0)


@pytest.mark.parametrize("r", [0.1, 0.5, 1.0, 2.0, 3.7])
def test_signed_powers_of_tensors_and_arrays_agree(r):
    x = np.array([-2.0, -0.0, 0.0, 3.0, -math.inf, 1e-3])
    expected = np.sign(x) * np.abs(x) ** r
    np.testing.assert_allclose(signed_power(x, r), expected, rtol=1e-15)
    np.testing.assert_allclose(signed_power(torch.from_numpy(x), r).numpy(), expected, rtol=1e-15)
    assert np.signbit(signed_power(x, r)).tolist() == np.signbit(x).tolist()


@pytest.mark.parametrize("exponent", [1.01, 1.1, 1.5, 2.0, 3.0, 11.0, 101.0])
@pytest.mark.parametrize("magnitude", [1e-30, 1e-10, 1.0, 1e10, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_accurate_at_every_magnitude(exponent, magnitude, dtype):
    x = (torch.randn(5000, dtype=torch.float64) * magnitude).to(dtype)
    scaled = (x.double() / magnitude).abs().numpy()
    exact = float(np.sum(scaled**exponent) ** (1 / exponent)) * magnitude
    assert float(lp_norm(x, exponent)) == pytest.approx(exact, rel=1e-6)
    assert float(lp_norm(x, exponent)) >= float(x.abs().max()) * (1 - 1e-6)


def test_norms_of_special_vectors():
    assert float(lp_norm(torch.zeros(3), 3.0)) == 0
    assert float(lp_norm(torch.empty(0), 3.0)) == 0
    assert float(lp_norm(torch.tensor([1.0, math.inf]), 3.0)) == math.inf
    assert math.isnan(float(lp_norm(torch.tensor([1.0, math.nan]), 3.0)))
    assert float(lp_norm([3.0, -4.0], math.inf)) == 4
    with pytest.raises(GeometryError, match="exponent >= 1"):
        lp_norm([1.0], 0.5)
