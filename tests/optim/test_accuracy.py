"""Every path within 4 ulp of a float64 evaluation, over the whole float32 range."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)

from float32_range import ulp_error, whole_range

from mirrormargin import MirrorDescent
from mirrormargin.geometry.float32_norms import largest_entries, scaled_power_sums
from mirrormargin.geometry.float32_powers import power_constants, power_tensors
from mirrormargin.geometry.integer_powers import INTEGER_POWERS, to_integer
from mirrormargin.geometry.norms import scaled_power_sum, signed_power

EXPONENTS = (
    1.001,
    1.005,
    1.009,
    1.01,
    1.05,
    1.1,
    1.2,
    1.25,
    1.3,
    1.5,
    1.75,
    1.9,
    2.0,
    2.05,
    2.3,
    3.0,
    4.0,
    10.0,
    101.0,
)


def _compiled(x: torch.Tensor, r: float) -> torch.Tensor:
    y = torch.empty_like(x)
    power_tensors([x], [y], r)
    return y


@pytest.mark.parametrize("power", [_compiled, signed_power], ids=["compiled", "plain"])
@pytest.mark.parametrize("direction", ["dual", "primal"])
@pytest.mark.parametrize("p", EXPONENTS)
def test_every_path_is_within_four_ulp(power, direction, p):
    r = p - 1 if direction == "dual" else 1 / (p - 1)
    x = whole_range(r)
    with np.errstate(over="ignore", under="ignore"):
        exact = np.copysign(np.abs(x.astype(np.float64)) ** r, x)
    assert ulp_error(power(torch.from_numpy(x), r).numpy(), exact) <= 4


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("p", EXPONENTS)
def test_a_step_lands_within_four_ulp_of_its_dual(fused, p):
    """From w = u = 0 a step of length 1 along -u reaches the dual u exactly."""
    u = whole_range(1 / (p - 1))
    u = u[u != 0]
    weight = torch.nn.Parameter(torch.zeros(len(u)))
    weight.grad = torch.from_numpy(-u)
    MirrorDescent([{"params": [weight], "p": p}], lr=1.0, fused=fused).step()
    with np.errstate(over="ignore", under="ignore"):
        exact = np.copysign(np.abs(u.astype(np.float64)) ** (1 / (p - 1)), u)
    got = weight.detach().numpy()
    underflow = (got == 0) & (np.abs(exact) < 1.4e-45)  # a kept +0 has no sign to compare
    assert ulp_error(got[~underflow], exact[~underflow]) <= 4


@pytest.mark.parametrize("exponent", [1.01, 1.1, 1.5, 2.0, 3.0, 4.0, 11.0, 101.0])
@pytest.mark.parametrize("magnitude", [1e-40, 1e-30, 1e-5, 1.0, 1e30])
@pytest.mark.parametrize("size", [1, 511, 512, 513, 40_000])
def test_compiled_norms_are_accurate(exponent, magnitude, size):
    rng = np.random.default_rng(size)
    x = (rng.standard_normal(size) * magnitude).astype(np.float32)
    wide = np.abs(x.astype(np.float64))
    exact = wide.max() * ((wide / wide.max()) ** exponent).sum() ** (1 / exponent)
    tensor = torch.from_numpy(x)
    for largest, total in (
        tuple(part[0] for part in scaled_power_sums([tensor], exponent)),
        scaled_power_sum(tensor, exponent),
    ):
        assert largest == wide.max()
        assert largest * total ** (1 / exponent) == pytest.approx(exact, rel=1e-6)


def test_compiled_maximum_sees_nan_and_inf():
    x = torch.linspace(-3, 2, 100)
    y, z = x.clone(), x.clone()
    y[50], z[3] = float("nan"), -float("inf")
    largest = largest_entries([x, y, z, torch.empty(0)])
    assert largest[0] == 3
    assert np.isnan(largest[1])
    assert largest[2] == np.inf
    assert largest[3] == 0


def test_powers_of_one_and_zero_are_exact():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0])
    for r in (0.1, 1 / 3, 1.25, 10.0, 100.0):
        assert torch.equal(_compiled(x, r), x)
        assert bool((_compiled(x, r).signbit() == x.signbit()).all())


@pytest.mark.parametrize("n", INTEGER_POWERS)
def test_integer_powers_are_rounded_almost_once(n):
    """Two float32 carry the intermediate results: repeated squaring in one is off by 4 ulp."""
    x = whole_range(n)
    with np.errstate(over="ignore", under="ignore"):
        exact = np.copysign(np.abs(x.astype(np.longdouble)) ** n, x).astype(np.float64)
    assert ulp_error(_compiled(torch.from_numpy(x), float(n)).numpy(), exact) <= 1.01


@pytest.mark.parametrize("p", [p for p in EXPONENTS if p >= 1.01])
def test_the_fast_path_is_what_the_accuracy_test_tests(p):
    """Most of the sample must qualify for the polynomial."""
    r = 1 / (p - 1)
    x = np.abs(whole_range(r))
    low, high = (np.array(c, np.int32).view(np.float32) for c in power_constants(r)[9:11])
    with np.errstate(invalid="ignore"):
        assert np.mean((x >= low) & (x < high)) > 0.2


def test_only_nearby_exponents_count_as_integers():
    assert [to_integer(1 / (p - 1)) for p in (1.25, 1.2, 1.1, 1.05)] == [4, 5, 10, 20]
    assert to_integer(10 + 1e-9) == 0
    assert to_integer(3.0) == 0


def test_exponent_constants_split_exactly():
    for r in (0.1, 1 / 3, 9.99999999999999, 100.0):
        constants = power_constants(r)
        high, low = constants[1] * 2.0**23, constants[2] * 2.0**23
        assert high + low == pytest.approx(r, rel=1e-15)
        assert all(float(np.float32(high * e)) == high * e for e in range(-149, 129))
