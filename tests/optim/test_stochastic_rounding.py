"""States in bfloat16: rounded at random, without bias, and the same again from a checkpoint."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from catalogue import bits, make_params, set_gradients
from torch import nn

from mirrormargin import LpPotential, MirrorAdam, MirrorDescent
from mirrormargin.optim.stochastic_rounding import AVERAGE, DUAL, Rounding, round_literally

PATH = pytest.mark.parametrize("path", [{}, {"foreach": True}], ids=["plain", "foreach"])
NARROW = {"state_dtype": torch.bfloat16}
LARGEST = torch.finfo(torch.bfloat16).max


def _round(x: torch.Tensor, number: int = 0, role: int = DUAL, step: int = 1) -> torch.Tensor:
    return Rounding([number], [torch.tensor(float(step))], [None])(0, role, x)


@pytest.mark.parametrize("number", [0, 1, 300])
@pytest.mark.parametrize("step", [1, 2, 70_000])
def test_the_torch_rounding_is_that_of_its_twin_to_the_bit(number, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(40, 25, generator=generator) * torch.logspace(-40, 38, 25)
    x[0, :6] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4e38])
    x[1, :3] = torch.tensor([1e-45, -1e-40, 1.0])
    for role in range(4):
        rounded = _round(x, number, role, step).float().numpy()
        expected = round_literally(x.numpy(), number, role, step)
        nan = np.isnan(expected)
        assert np.array_equal(nan, np.isnan(rounded))
        assert rounded[~nan].tobytes() == expected[~nan].astype(np.float32).tobytes()


def test_what_bfloat16_holds_is_left_alone_and_finite_numbers_stay_finite():
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    for step in range(3):
        rounded = _round(every.float(), step=step)
        same = (rounded.view(torch.int16) == every.view(torch.int16)) | every.isnan()
        assert bool(same.all())
        assert bool(rounded.isnan()[every.isnan()].all())
    assert _round(torch.tensor([3.4e38, -3.4e38])).tolist() == [LARGEST, -LARGEST]


def test_the_mean_of_what_is_rounded_is_what_was_given():
    x = torch.tensor([1 + 2**-10, -0.3, 7e-39, 1e30]).repeat_interleave(4096)
    steps = 25
    mean = sum(_round(x, step=step).double() for step in range(steps)).view(4, -1).mean(1) / steps
    x = x.view(4, -1)[:, 0].double()
    # A rounding is off by at most one ulp, 2^-7 of x; so the mean by ulp / 2 / sqrt(102,400).
    ulp = torch.maximum(x.abs(), torch.tensor(2.0**-126)) * 2.0**-7
    assert bool(((mean - x).abs() < 5 * ulp / 2 / 320).all())


def test_roles_steps_and_parameters_are_rounded_independently():
    x = torch.full((10_000,), 1 + 2**-8)  # half way between two neighbours
    variants = [_round(x), _round(x, number=1), _round(x, role=AVERAGE), _round(x, step=2)]
    signs = torch.stack([torch.where(one > 1, 1.0, -1.0) for one in variants])
    neighbours = (signs[:, 1:] * signs[:, :-1]).mean(1)
    assert float(((signs @ signs.T) / 10_000 - torch.eye(4)).abs().max()) < 0.05
    assert float(neighbours.abs().max()) < 0.05


def test_the_layout_of_memory_does_not_matter():
    x = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(_round(x), _round(x.t().contiguous().t()))


@PATH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [1.1, 2.0, 4.0])
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
def test_only_what_is_kept_is_narrow(path, dtype, p, kind):
    options = {"momentum": 0.9} if kind is MirrorDescent else {"amsgrad": True}
    params = make_params(dtype)
    start = {param: param.detach().clone() for param in params}
    optimizer = kind(params, lr=0.05, p=p, **NARROW, **options, **path)
    for k in range(2):
        set_gradients(params, k)
        optimizer.step()
    keys = {"step", "momentum_buffer"}
    if kind is MirrorAdam:
        keys = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    for param in params:
        state = optimizer.state[param]
        has_dual = p != 2.0 or dtype != torch.float32
        assert state.keys() == keys | ({"dual", "dual_of"} if has_dual else set())
        assert all(state[key].dtype == torch.bfloat16 for key in state.keys() - {"step", "dual_of"})
        assert state["step"] == 2
        if has_dual:  # weights that have moved are the nearest images
            potential = LpPotential(p)
            image = potential.to_primal(state["dual"].float()).to(dtype)
            moved = state["dual"] != potential.to_dual(start[param].float()).bfloat16()
            assert torch.equal(param[moved], image[moved])
            assert param.numel() < 10 or bool(moved.any())


@PATH
@pytest.mark.parametrize("p", [1.5, 2.0, 1.1])
def test_short_steps_add_up_in_bfloat16(path, p):
    """Rounded to the nearest number, no step of 1e-4 would move u = 1."""
    weight = nn.Parameter(torch.ones(3000, dtype=torch.bfloat16))
    optimizer = MirrorDescent([weight], lr=1e-4, p=p, **NARROW, **path)
    for _ in range(400):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    mean = float(optimizer.state[weight]["dual"].double().mean())
    assert mean == pytest.approx(0.96, abs=5e-4)


@PATH
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
def test_a_run_is_repeated_to_the_bit_from_a_checkpoint(path, kind, tmp_path):
    def make():
        params = make_params()
        options = {"momentum": 0.5} if kind is MirrorDescent else {}
        return params, kind(params, lr=0.02, p=1.2, **NARROW, **options, **path)

    params, optimizer = make()
    for k in range(3):
        set_gradients(params, k)
        optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    others, resumed = make()
    with torch.no_grad():
        for mine, other in zip(params, others, strict=True):
            other.copy_(mine)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    random = torch.get_rng_state()
    for k in range(3, 6):
        for tensors, stepper in ((params, optimizer), (others, resumed)):
            set_gradients(tensors, k)
            stepper.step()
    assert bits(params) == bits(others)
    assert torch.equal(random, torch.get_rng_state())


def test_the_precision_of_the_state_comes_from_the_checkpoint():
    params = make_params()
    wide, narrow = MirrorAdam(params, p=1.3), MirrorAdam(params, p=1.3, **NARROW)
    for optimizer in (wide, narrow):
        set_gradients(params, 0)
        optimizer.step()
    saved = copy.deepcopy([wide.state_dict(), narrow.state_dict()])
    assert saved[1]["param_groups"][0]["state_dtype"] == "torch.bfloat16"
    for optimizer, other, dtype in (
        (wide, saved[1], torch.bfloat16),
        (narrow, saved[0], torch.float32),
    ):
        optimizer.load_state_dict(other)
        assert {optimizer.state[w]["exp_avg"].dtype for w in params} == {dtype}
        set_gradients(params, 1)
        optimizer.step()
        assert {optimizer.state[w]["dual"].dtype for w in params} == {dtype}


@PATH
def test_edits_are_followed_and_unmoved_weights_keep_their_dual(path):
    params = make_params()
    optimizer = MirrorDescent(params, lr=0.05, p=1.2, **NARROW, **path)
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    before = bits(params), bits([optimizer.state[w]["dual"].float() for w in params])
    with torch.no_grad():
        for param in params:
            param.add_(0.0)
    optimizer.step()
    assert before == (bits(params), bits([optimizer.state[w]["dual"].float() for w in params]))
    with torch.no_grad():
        params[0].fill_(0.25)
    optimizer.step()
    expected = LpPotential(1.2).to_dual(torch.tensor(0.25)).bfloat16()
    assert bool((optimizer.state[params[0]]["dual"] == expected).all())
