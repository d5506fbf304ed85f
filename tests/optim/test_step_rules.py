"""The step rules do what their equations say."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from catalogue import PATHS, make_params, set_gradients
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mirrormargin import (
    LpPotential,
    MirrorDescent,
    NonFiniteGradientError,
    OptimizerError,
    synthetic,
)
from mirrormargin.optim.polyak import make_step_finder

find_step = make_step_finder(lambda step, decrease: decrease(step))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 7.0])
@pytest.mark.parametrize("magnitude", [1e-42, 1e-20, 1.0, 1e20])
def test_a_normalized_step_has_dual_length_lr(path, p, magnitude):
    weight = nn.Parameter(torch.zeros(50))
    gradient = torch.linspace(-1, 1, 50) * magnitude
    group = {"params": [weight], "p": p}  # from 0 on purpose
    optimizer = MirrorDescent([group], lr=0.3, step_rule="normalized", **PATHS[path])
    weight.grad = gradient.clone()
    optimizer.step()
    potential = LpPotential(p)
    dual = potential.to_dual(weight.detach().double())
    assert float(potential.dual_norm(dual)) == pytest.approx(0.3, rel=1e-4)
    cosine = torch.nn.functional.cosine_similarity(dual, -gradient.double() / magnitude, dim=0)
    assert float(cosine) == pytest.approx(1, abs=1e-4)


def test_denormal_float64_gradients_are_normalized_too():
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = MirrorDescent([weight], lr=1.0, step_rule="normalized")
    weight.grad = torch.tensor([3e-310, 0.0, -4e-310], dtype=torch.float64)
    optimizer.step()
    assert weight.detach().tolist() == pytest.approx([-0.6, 0.0, 0.8])


def test_norm_over_group_is_sngd_at_p2():
    params, twins = make_params(torch.float64), make_params(torch.float64)
    optimizer = MirrorDescent(params, lr=0.1, step_rule="normalized", norm_over="group")
    for k in range(3):
        set_gradients(params, k)
        norm = torch.cat([param.grad.flatten() for param in params]).norm()
        with torch.no_grad():
            for mine, other in zip(params, twins, strict=True):
                other -= 0.1 * mine.grad / norm
        optimizer.step()
        torch.testing.assert_close(params, twins, rtol=1e-13, atol=1e-15)


def _attention():
    """The attention loss of a problem and its gradient, as plain functions of W."""
    problem = synthetic.unit_sphere(seed=3)
    scores = problem.scores
    floor = float(np.mean(np.logaddexp(0, -scores.max(axis=1))))
    return problem, floor


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_polyak_at_p2_is_the_classical_rule(factor):
    problem, floor = _attention()
    weight = nn.Parameter(torch.zeros(10, 10, dtype=torch.float64))
    optimizer = MirrorDescent([weight], lr=factor, step_rule="polyak", f_min=floor, max_lr=10.0)
    classical = np.zeros((10, 10))
    for _ in range(30):
        loss, gradient = problem.loss(classical), problem.gradient(classical)
        classical -= min(10.0, factor * (loss - floor) / np.sum(gradient**2)) * gradient
        weight.grad = torch.from_numpy(problem.gradient(weight.detach()))
        optimizer.step(loss=problem.loss(weight.detach()))
    np.testing.assert_allclose(weight.detach().numpy(), classical, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("p", [1.1, 1.5, 1.75, 2.0, 3.0, 6.0])
def test_a_polyak_step_is_the_bregman_projection(p):
    """It lands where the linearised loss equals the floor, and does not depend on units."""
    problem, floor = _attention()
    for unit in (1.0, 10.0):
        start = torch.full((10, 10), 0.1, dtype=torch.float64)
        weight = nn.Parameter(start.clone())
        weight.grad = torch.from_numpy(problem.gradient(start)) * unit
        loss = problem.loss(start)
        optimizer = MirrorDescent([weight], lr=1.0, p=p, step_rule="polyak", f_min=floor * unit)
        optimizer.step(loss=loss * unit)
        decrease = float((weight.grad * (start - weight.detach())).sum())
        assert decrease == pytest.approx(unit * (loss - floor), rel=1e-9)
        if unit == 1.0:
            first = weight.detach().clone()
    torch.testing.assert_close(weight.detach(), first, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("p", [1.3, 2.0, 3.0])
def test_polyak_reaches_the_floor_of_a_feasible_problem(p):
    target = torch.linspace(0.2, 1.0, 20, dtype=torch.float64)
    weight = nn.Parameter(torch.full((20,), 0.5, dtype=torch.float64))
    optimizer = MirrorDescent([weight], lr=1.0, p=p, step_rule="polyak")

    def closure():
        optimizer.zero_grad()
        loss = ((weight - target) ** 2).sum()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(100)]
    assert losses[-1] < 1e-9 * losses[0]


def test_polyak_caps_and_stops():
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = MirrorDescent([weight], lr=1.0, p=1.5, step_rule="polyak", max_lr=0.01)
    weight.grad = torch.tensor([0.5])
    optimizer.step(loss=100.0)
    assert optimizer.effective_lr == [0.01]
    before = weight.detach().clone()
    optimizer.step(loss=-1.0)  # below the floor: nothing to gain
    assert optimizer.effective_lr == [0.0]
    assert torch.equal(weight.detach(), before)


def test_polyak_ignores_groups_that_stand_still():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    groups = [{"params": [first], "lr": 0.0}, {"params": [second]}]
    optimizer = MirrorDescent(groups, lr=1.0, step_rule="polyak")
    first.grad, second.grad = torch.ones(2), torch.zeros(2)
    optimizer.step(loss=1.0)
    assert torch.equal(first, torch.ones(2))
    assert torch.equal(second, torch.ones(2))


def test_a_nan_loss_obeys_the_policy():
    for policy in ("raise", "skip"):
        weight = nn.Parameter(torch.ones(2))
        optimizer = MirrorDescent([weight], lr=1.0, step_rule="polyak", nonfinite=policy)
        weight.grad = torch.ones(2)
        if policy == "raise":
            with pytest.raises(NonFiniteGradientError, match="the loss is nan"):
                optimizer.step(loss=math.nan)
        else:
            optimizer.step(loss=math.nan)
        assert torch.equal(weight, torch.ones(2))


def test_effective_lr_survives_copies_and_new_groups():
    optimizer = MirrorDescent(make_params()[:1], lr=0.5)
    assert copy.deepcopy(optimizer).effective_lr == [0.5]
    optimizer.add_param_group({"params": make_params()[1:2], "lr": 0.25})
    assert optimizer.effective_lr == [0.5, 0.25]


def test_polyak_survives_tiny_gradients():
    weight = nn.Parameter(torch.full((3,), 0.5, dtype=torch.float64))
    optimizer = MirrorDescent([weight], lr=1.0, step_rule="polyak")
    weight.grad = torch.full((3,), 1e-200, dtype=torch.float64)  # its square underflows
    optimizer.step(loss=3e-200)
    torch.testing.assert_close(weight.detach(), torch.full((3,), -0.5, dtype=torch.float64))


def test_polyak_groups_share_one_root_and_one_floor():
    first, second = (nn.Parameter(torch.ones(4, dtype=torch.float64)) for _ in range(2))
    groups = [{"params": [first], "p": 1.5}, {"params": [second], "p": 3.0, "lr": 0.5}]
    optimizer = MirrorDescent(groups, lr=1.0, step_rule="polyak")
    first.grad, second.grad = torch.full_like(first, 0.3), torch.full_like(second, -0.2)
    optimizer.step(loss=0.7)
    steps = optimizer.effective_lr
    assert steps[1] == pytest.approx(0.5 * steps[0])
    decrease = 0.3 * (1 - first.detach()).sum() - 0.2 * (1 - second.detach()).sum()
    assert float(decrease) == pytest.approx(0.7, rel=1e-9)
    optimizer.param_groups[1]["f_min"] = 0.1
    with pytest.raises(OptimizerError, match="their f_min must be equal"):
        optimizer.step(loss=0.7)


def test_dual_norm_polyak_is_its_formula():
    weight = nn.Parameter(torch.ones(6, dtype=torch.float64))
    optimizer = MirrorDescent([weight], lr=2.0, p=1.5, step_rule="polyak", polyak="dual_norm")
    weight.grad = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    norm = float(LpPotential(1.5).dual_norm(weight.grad))
    optimizer.step(loss=0.3)
    assert optimizer.effective_lr[0] == pytest.approx(2 * 0.3 / norm**2, rel=1e-12)


@given(
    st.floats(0.05, 20.0),
    st.floats(-30, 30),
    st.floats(-40, 40),
    st.floats(-60, 60),
)
def test_step_finder_inverts_sums_of_powers(power, log_c, log_root, log_guess):
    """Where decrease = c lr^a + lr, any guess leads to the root."""
    c, root = math.exp(log_c), math.exp(log_root)

    def decrease(lr):
        try:
            return c * lr**power + lr
        except OverflowError:
            return math.inf

    target = decrease(root)
    if not 0 < target < math.inf:
        return
    found, _ = find_step(target, math.inf, log_guess, decrease)
    assert decrease(found) == pytest.approx(target, rel=1e-10)


def test_step_finder_edge_cases():
    assert find_step(0.0, math.inf, 0.0, lambda lr: lr)[0] == 0.0
    assert find_step(5.0, 2.0, 0.0, lambda lr: lr)[0] == 2.0
    assert find_step(math.inf, 2.0, 0.0, lambda lr: lr)[0] == 2.0
    assert math.isnan(find_step(math.nan, math.inf, 0.0, lambda lr: lr)[0])
    assert find_step(1.0, 1e6, 0.0, lambda lr: min(lr, 0.5))[0] == 1e6
    assert find_step(1.0, math.inf, 0.0, lambda lr: min(lr, 0.5)) == (math.inf, math.inf)
    assert find_step(1.0, math.inf, 0.0, lambda lr: 2.0) == (0.0, -math.inf)


def test_the_step_finder_gives_the_same_when_compiled():
    """The lab compiles what the optimizer runs as Python."""
    numba = pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)

    def decrease(step, slope):
        return step**slope + step

    plain = make_step_finder(decrease)
    compiled = make_step_finder(numba.njit(decrease), numba.njit)
    for slope, goal, guess in ((0.1, 3.0, -20.0), (1.0, -9.0, 0.0), (9.0, 40.0, 30.0)):
        target = math.exp(goal)
        step, log_step = plain(target, math.inf, guess, slope)
        assert decrease(step, slope) == pytest.approx(target, rel=1e-12)
        assert math.log(step) == pytest.approx(log_step, rel=1e-12)
        for cap in (math.inf, 1e-3):
            found = plain(target, cap, guess, slope)
            assert found == pytest.approx(compiled(target, cap, guess, slope), rel=1e-12)
    for target in (0.0, math.inf, math.nan):
        found = plain(target, 2.0, 0.0, 1.0), compiled(target, 2.0, 0.0, 1.0)
        np.testing.assert_array_equal(*found)
