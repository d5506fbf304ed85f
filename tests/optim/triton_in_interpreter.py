"""The Triton path in Triton's interpreter, on CPU tensors; ``test_triton_step.py`` runs this.

The interpreter must be asked for before Triton is imported, so these tests have a process of their
own. Weights are compared with the image of their u, and u with the reference: rounding of u is
multiplied by 1/(p-1) in w.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from covering import cover
from float32_range import ulp_error, whole_range

from mirrormargin import LpPotential, MirrorAdam, MirrorDescent
from mirrormargin.cli import doctor
from mirrormargin.geometry import triton_kernels
from mirrormargin.geometry.norms import scaled_power_sum
from mirrormargin.geometry.triton_powers import find_kind, power_tensors, scaled_power_sums
from mirrormargin.optim import mirror_optimizer, plain, triton_step
from mirrormargin.optim.devices import is_interpreted
from mirrormargin.optim.dual_state import WITHOUT_DUAL
from mirrormargin.optim.reference import ReferenceMirrorAdam, ReferenceMirrorDescent

P = (1.05, 1.1, 1.25, 1.3, 1.5, 1.75, 2.0, 3.0, 4.0, 10.0)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((0,), (1025,), (2, 3, 4, 5))  # the last of them in the order channels_last
DESCENT = {
    "constant": {},
    "coupled decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "normalized": {"step_rule": "normalized", "weight_decay": 0.1},
    "normalized over the group": {"step_rule": "normalized", "norm_over": "group"},
    "maximize": {"maximize": True, "scale": 0.3},
    "caution": {"momentum": 0.9, "caution": True},
    "clipping": {"clip": 0.1},
    "center": {"momentum": 0.9, "center": True},
}
ADAM = {
    "adam": {},
    "decay": {"weight_decay": 0.1},
    "amsgrad": {"amsgrad": True, "maximize": True},
    "other betas": {"betas": (0.3, 0.9), "scale": 0.3},
    "adam center": {"weight_decay": 0.1, "center": True},
}
SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 1.1754944e-38, 0.3, -2.0, 1e30, float("inf"), float("nan")]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflow and nan


@pytest.fixture(autouse=True)
def everything_takes_triton(monkeypatch):
    assert is_interpreted()
    monkeypatch.setattr(mirror_optimizer, "choose_path", lambda *_: triton_step)


def make_params(dtype, shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(shape, generator=generator).mul(0.3).to(dtype) for shape in shapes]
    params[-1] = params[-1].contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(param) for param in params]


def set_gradients(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)


def exact_image(u, p):
    return u.double().abs().pow(1 / (p - 1)).copysign(u)


def in_ulps(difference, value, dtype):
    """A difference in units of the last place that a number of this size has in the type."""
    limits = torch.finfo(dtype)
    exponent = torch.frexp(value.double().abs().clamp_min(limits.tiny))[1]
    spacing = limits.eps * torch.exp2(exponent.double() - 1)
    return float((difference.abs() / spacing).max()) if difference.numel() else 0.0


KINDS = [(MirrorDescent, ReferenceMirrorDescent, n, o) for n, o in DESCENT.items()]
KINDS += [(MirrorAdam, ReferenceMirrorAdam, n, o) for n, o in ADAM.items()]
PRODUCT = list(itertools.product(P, DTYPES, KINDS))
STEPS = cover(
    [
        pytest.param(p, dtype, *kind, id=f"{p}-{str(dtype)[6:]}-{kind[0].__name__}-{kind[2]}")
        for p, dtype, kind in PRODUCT
    ],
    [
        ((p, kind[0]), (p, kind[2] in ADAM, dtype) if p in WITHOUT_DUAL else dtype, kind[2])
        for p, dtype, kind in PRODUCT
    ],
    strength=1,
)


@pytest.mark.parametrize(("p", "dtype", "make", "reference", "name", "options"), STEPS)
def test_steps_equal_the_reference(p, dtype, make, reference, name, options):
    params, twins = make_params(dtype), make_params(dtype)
    optimizer, slow = make(params, lr=0.02, p=p, **options), reference(twins, 0.02, p, **options)
    kappa = slow.kappa
    for seed in range(2):
        set_gradients(params, seed)
        set_gradients(twins, seed)
        optimizer.step()
        slow.step()
    for param, u in zip(params, slow.u, strict=True):
        assert param._version == 2
        w = param.detach()
        state = optimizer.state[param].get("dual")
        if state is None:
            # The weights are the state, and rounded at each step, when they may have been larger.
            ours = w.double().abs().pow(p - 1).copysign(w)
            allowed = 3 * max(1.0, p - 1) * torch.finfo(dtype).eps * (0.3 + (u / kappa).abs())
        else:
            assert state.dtype == torch.float32
            ours, allowed = state.double(), 1e-6 * (1 + (u / kappa).abs())
            change = exact_image(state, p)
            center = optimizer.state[param].get("center", torch.zeros(())).double()
            limit = 4 if dtype is torch.float32 else 0.51
            size = center.abs() + change.abs()  # they may cancel
            assert in_ulps(w.double() - (center + change), size, dtype) <= limit
        assert bool(((ours - u / kappa).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", P)
def test_float32_duals_serve_half_precision_at_every_exponent(p, dtype):
    """Also where u is a square or a root away: as state it holds what half precision rounds off.

    The gradients are in half precision too, as on a GPU.
    """
    (w,) = make_params(dtype, [(4, 4, 3, 11)])
    u = LpPotential(p).to_dual(w.detach().float())
    expected = u - 1e-3 * torch.ones_like(u)
    triton_step.mirror_descent(
        [w], [torch.ones_like(w)], [u], None, potential=LpPotential(p), grad_scales=[(1.0, 1.0)],
        lrs=[1e-3], coupled_decays=[0.0], decay=1.0, momentum=0.0, nesterov=False,
    )  # fmt: skip
    assert torch.allclose(u, expected, rtol=1e-6, atol=1e-9)
    image = exact_image(u, p)
    assert in_ulps(w.detach().double() - image, image, dtype) <= 0.51


P_AND_DTYPE = cover(
    [pytest.param(p, dtype, id=f"{p}-{str(dtype)[6:]}") for p in P for dtype in DTYPES],
    [(p, dtype) for p in P for dtype in DTYPES],
    strength=1,
)


@pytest.mark.parametrize(("p", "dtype"), P_AND_DTYPE)
def test_zero_gradients_keep_every_bit(p, dtype):
    weights = torch.cat([torch.tensor(SPECIAL), torch.randn(100) * 0.1]).to(dtype)
    for make, options in (
        (MirrorDescent, {}),
        (MirrorDescent, {"step_rule": "normalized"}),
        (MirrorAdam, {}),
    ):
        param = torch.nn.Parameter(weights.clone())
        param.grad = torch.zeros_like(param)
        make([{"params": [param], "p": p}], lr=0.1, **options).step()
        assert torch.equal(param.detach().view(torch.uint8), weights.view(torch.uint8))


@pytest.mark.parametrize("make", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize("p", P)
def test_special_values_end_as_on_the_plain_path(p, make, monkeypatch):
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)))
    outcomes = []
    for path in (triton_step, plain):
        monkeypatch.setattr(mirror_optimizer, "choose_path", lambda *_, path=path: path)
        monkeypatch.setattr(mirror_optimizer, "check_starts", lambda _: None)
        param = torch.nn.Parameter(pairs[:, 0].clone())
        param.grad = pairs[:, 1].clone()
        make([{"params": [param], "p": p}], lr=0.01).step()
        outcomes.append(param.detach())
    torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-43, equal_nan=True)


def test_denormal_weights_make_steps_of_their_size():
    param = torch.nn.Parameter(torch.tensor([3e-40, -5e-42]))
    param.grad = torch.tensor([1e-40, 2e-42])
    MirrorDescent([param], lr=1.0, p=2.0).step()
    assert torch.equal(param.detach(), torch.tensor([3e-40, -5e-42]) - torch.tensor([1e-40, 2e-42]))


@pytest.mark.parametrize("p", [p for p in P if p not in WITHOUT_DUAL])
def test_to_primal_gives_the_bits_of_the_step(p):
    """What the optimizer relies on to notice weights that somebody else wrote."""
    params = make_params(torch.float32)
    optimizer = MirrorDescent(params, lr=0.1, p=p)
    set_gradients(params, 0)
    optimizer.step()
    for param in params:
        dual = optimizer.state[param]["dual"]
        assert torch.equal(triton_step.to_primal(dual, LpPotential(p)), param)


def test_a_backward_pass_notices_the_step():
    param = torch.nn.Parameter(torch.ones(3))
    loss = (param**2).sum()
    param.grad = torch.ones(3)
    MirrorDescent([param], lr=0.1, p=1.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_many_tensors_take_one_launch(monkeypatch):
    sizes = [*range(40), 1023, 1024, 1025, 2048]
    kernel, calls = triton_step.adam_kernel, []

    class Counting:
        def __getitem__(self, grid):
            calls.append(grid)
            return kernel[grid]

    monkeypatch.setattr(triton_step, "adam_kernel", Counting())
    params = [torch.nn.Parameter(torch.full((size,), 0.1 + size)) for size in sizes]
    for param in params:
        param.grad = torch.ones_like(param)
    MirrorAdam(params, lr=0.1, p=2.0).step()
    assert calls == [(39 + 1 + 1 + 2 + 2,)]
    for size, param in zip(sizes, params, strict=True):
        assert torch.allclose(param, torch.tensor(float(size)), rtol=1e-6, atol=1e-6)


POWERS = [p - 1 for p in P] + [1 / (p - 1) for p in P] + [0.05, 1.05, 33.3, 77.7, 100.0, 101.0]
FAST_POWERS = (1 / (1.1 - 1), 1 / (1.3 - 1), 0.5, 0.75, 100.0)


@pytest.mark.parametrize(
    "r", [r if r in FAST_POWERS else pytest.param(r, marks=pytest.mark.slow) for r in POWERS]
)
def test_powers_are_within_four_ulp(r, monkeypatch):
    monkeypatch.setattr(triton_kernels, "BLOCK", 2**16)  # fewer blocks to interpret
    x = whole_range(r)
    y = torch.empty(len(x))
    power_tensors([torch.from_numpy(x)], [y], r)
    exact = np.copysign(np.abs(x.astype(np.float64)) ** r, x)
    limit = {0: 4, -2: 0.5, 1: 0, 2: 0.5}.get(find_kind(r), 1.01)
    assert ulp_error(y.numpy(), exact) <= limit


def test_bfloat16_is_rounded_to_nearest_even(monkeypatch):
    monkeypatch.setattr(triton_kernels, "BLOCK", 2**16)
    high = torch.arange(2**16, dtype=torch.int32)[:, None] << 16
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    x = (high | low).view(torch.float32).flatten()
    w = torch.full_like(x, 0.0, dtype=torch.bfloat16)
    triton_step.mirror_descent(
        [w], [torch.zeros_like(w)], [x / 2], None, potential=LpPotential(2.0),
        grad_scales=[(1.0, 1.0)], lrs=[1.0], coupled_decays=[0.0], decay=2.0, momentum=0.0,
        nesterov=False,
    )  # fmt: skip
    doubled = (x / 2) * 2
    moves = (doubled != x / 2) & ~x.isnan()
    assert torch.equal(w[moves], doubled.to(torch.bfloat16)[moves])
    assert bool((w[~moves] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "exponent",
    [1.1, 11.0, *(pytest.param(q, marks=pytest.mark.slow) for q in (4 / 3, 2.0, 3.0, 5.0, 101.0))],
)
def test_norms_are_accurate(exponent, dtype):
    generator = torch.Generator().manual_seed(0)
    sizes = (1, 1023, 0, 2500)
    tensors = [
        (torch.randn(size, generator=generator) * scale).to(dtype)
        for size in sizes
        for scale in ((1e-40, 1e-5, 1e30) if dtype is torch.float32 else (1e-5, 1.0, 1e3))
    ]
    largest, sums = scaled_power_sums(tensors, exponent)
    for tensor, m, s in zip(tensors, largest, sums, strict=True):
        exact_m, exact_s = map(float, scaled_power_sum(tensor, exponent))
        assert m == exact_m
        assert s ** (1 / exponent) == pytest.approx(exact_s ** (1 / exponent), rel=1e-6)


def test_norms_see_nan_and_inf():
    x = torch.linspace(-3, 2, 3000)
    y, z = x.clone(), x.clone()
    y[50], y[2000], z[3] = float("nan"), float("inf"), -float("inf")
    largest, sums = scaled_power_sums([x, y, z, torch.zeros(5)], 3.0)
    assert largest[0] == 3
    assert np.isnan(largest[1])
    assert largest[2] == np.inf
    assert list(sums[2:]) == [1, 0]
    assert largest[3] == 0


def test_the_doctor_tests_the_kernels(monkeypatch):
    ((name, check),) = doctor._find_gpu_checks().items()
    assert name == "Triton step in the interpreter equals the reference"
    check()
    step = triton_step.mirror_descent
    monkeypatch.setattr(
        triton_step,
        "mirror_descent",
        lambda *tensors, **options: step(*tensors, **options | {"lrs": [0.02]}),
    )
    with pytest.raises(ArithmeticError, match="weights differ"):
        check()
