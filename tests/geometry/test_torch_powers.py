"""Powers in float32 torch operations: accurate, and what accelerators use instead of float64."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch
from float32_range import ulp_error, whole_range
from torch.utils._python_dispatch import TorchDispatchMode

from mirrormargin.geometry import (
    GroupLpPotential,
    HypentropyPotential,
    LpPotential,
    norms,
    potential,
    torch_powers,
)
from mirrormargin.optim import foreach, plain

R = (0.001, 0.05, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.05, 4 / 3, 2.0, 3.0, 10 / 3, 4.0, 9.0, 10.0)
R += (20.0, 21.0, 33.3, 50.0, 77.7, 100.0, 101.0)
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("r", R)
def test_powers_are_within_four_ulp(r):
    x = whole_range(r)
    with np.errstate(over="ignore", under="ignore"):
        exact = np.copysign(np.abs(x.astype(np.float64)) ** r, x)
    assert ulp_error(torch_powers.signed_power(torch.from_numpy(x), r).numpy(), exact) <= 4


@pytest.mark.parametrize("r", R)
def test_special_values_are_exact(r):
    x = torch.tensor(SPECIAL)
    y = torch_powers.signed_power(x, r)
    torch.testing.assert_close(y, x, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(y[:-1].signbit(), x[:-1].signbit())


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_shapes_without_entries_are_kept(shape):
    assert torch_powers.signed_power(torch.ones(shape), 1.7).shape == shape


@pytest.mark.parametrize("r", [0.1, 1 / 3, 9.99999999999999, 100.0])
def test_the_products_that_count_are_exact(r):
    """So that it does not matter whether a compiler contracts them with a sum."""
    k = torch_powers.split_exponent(r)
    assert k.r_high + k.r_low == pytest.approx(r, rel=2**-39)
    assert k.c_high + k.c_low == pytest.approx(2 * r / math.log(2), rel=2**-35)
    assert all(float(np.float32(k.r_high * e)) == k.r_high * e for e in range(-149, 129))
    m = torch.linspace(0.70711, 1.41421, 10_001)
    s_high, s_low = torch_powers._find_ratio(m)
    assert bool((s_high.view(torch.int32) & 0xFFF == 0).all())  # 12 bits, as the halves of m + 1
    assert torch.equal((s_high * k.c_high).double(), s_high.double() * k.c_high)
    exact = (m.double() - 1) / (m.double() + 1)
    assert float((s_high.double() + s_low.double() - exact).abs().max()) < 2**-35


COMPILERS = [
    "aot_eager",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
        ],
    ),
]


@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.filterwarnings("ignore")  # those of the compiler
def test_a_compiled_power_has_the_same_accuracy(backend):
    torch._dynamo.reset()
    power = torch.compile(torch_powers.signed_power, backend=backend, fullgraph=True)
    x = torch.from_numpy(whole_range(1 / 0.3))
    exact = np.copysign(np.abs(x.double().numpy()) ** (1 / 0.3), x.numpy())
    assert ulp_error(power(x, 1 / 0.3).numpy(), exact) <= 4


class Recorded(TorchDispatchMode):
    """Notes the operations that make float64."""

    def __init__(self):
        super().__init__()
        self.wide = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(one, torch.Tensor) and one.dtype == torch.float64:
                self.wide.add(str(function))
        return result


@pytest.fixture
def accelerator(monkeypatch):
    """A device other than the CPU: torch's own for shapes, which is refused elsewhere."""
    monkeypatch.setattr(potential, "check_dense", lambda tensor: None)
    return torch.device("meta")


@pytest.mark.parametrize("path", [plain, foreach])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "geometry",
    [
        *(LpPotential(1.1), LpPotential(1.5), LpPotential(4.0), HypentropyPotential()),
        *(GroupLpPotential(1.1), GroupLpPotential(4.0, "columns")),
    ],
)
def test_steps_on_accelerators_need_no_float64(accelerator, geometry, dtype, path):
    w, g = (torch.empty(5, 3, dtype=dtype, device=accelerator) for _ in range(2))
    with Recorded() as recorded:
        u = path.to_dual(w, geometry)
        m, v = torch.empty_like(u), torch.empty_like(u)
        path.mirror_adam(
            [w], [g], [u], [m], [v], None, potential=geometry, lrs=[0.1], sq_corrections=[1.0],
            decay=1.0, betas=(0.9, 0.99), eps=1e-8, maximize=False,
        )  # fmt: skip
    assert recorded.wide == set()


def test_powers_that_float32_cannot_hold_take_float64(accelerator):
    x = torch.empty(5, device=accelerator)
    with Recorded() as recorded:
        norms.signed_power(x, 1000.0)
    assert recorded.wide != set()


def test_gradients_flow_through_powers_on_accelerators(accelerator):
    """Bits have no derivative: what is differentiated takes torch's own power."""
    x = torch.empty(5, device=accelerator, requires_grad=True)
    for function in (LpPotential(3.3).value, lambda x: LpPotential(1.3).to_dual(x).sum()):
        (gradient,) = torch.autograd.grad(function(x), x)
        assert gradient.shape == x.shape


@pytest.mark.parametrize("exponent", [1.1, 2.0, 11.0, 101.0])
@pytest.mark.parametrize("magnitude", [1e-40, 1e-5, 1e30])
def test_norms_in_float32_are_accurate(exponent, magnitude, monkeypatch):
    x = torch.randn(3000, generator=torch.Generator().manual_seed(0)) * magnitude
    m, s = map(float, norms.scaled_power_sum(x, exponent))
    by_rows = norms.lp_norm(x.view(3, 1000), exponent, axis=1)
    monkeypatch.setattr(norms, "_has_slow_float64", lambda x: x.dtype != torch.float64)
    got_m, got_s = map(float, norms.scaled_power_sum(x, exponent))
    assert got_m == m
    assert got_s ** (1 / exponent) == pytest.approx(s ** (1 / exponent), rel=1e-6)
    torch.testing.assert_close(norms.lp_norm(x.view(3, 1000), exponent, axis=1), by_rows)
    assert norms.scaled_power_sum(torch.tensor([1.0, -math.inf]), exponent) == (math.inf, 1.0)
    assert math.isnan(norms.scaled_power_sum(torch.tensor([1.0, math.nan]), exponent)[0])
    assert norms.scaled_power_sum(torch.zeros(2), exponent) == (0.0, 0.0)
    assert norms.scaled_power_sum(torch.zeros(0), exponent) == (0.0, 0.0)
