"""Cautious steps follow the gradient's signs; clipping bounds its dual norm."""

from __future__ import annotations

import math

import pytest
import torch
from catalogue import PATHS, bits, make_params, set_gradients
from torch import nn

from mirrormargin import LpPotential, MirrorAdam, MirrorDescent

PATH = pytest.mark.parametrize("path", PATHS)


@PATH
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize("maximize", [False, True])
def test_no_weight_moves_against_its_gradient(path, kind, maximize):
    options = {"momentum": 0.9} if kind is MirrorDescent else {}
    params = make_params()
    optimizer = kind(
        params, lr=0.05, p=1.3, caution=True, maximize=maximize, **options, **PATHS[path]
    )
    held = 0
    for k in range(6):
        set_gradients(params, k)
        before = [param.detach().clone() for param in params]
        optimizer.step()
        for param, old in zip(params, before, strict=True):
            change = param.detach() - old
            held += int((change == 0).sum())
            assert bool((change * param.grad * (1 if maximize else -1) >= 0).all())
    assert held > 0


def test_the_kept_entries_make_up_for_the_others():
    weight = nn.Parameter(torch.zeros(4))
    optimizer = MirrorDescent([weight], lr=1.0, momentum=0.5, caution=True)
    weight.grad = torch.tensor([1.0, 1.0, 1.0, 1.0])
    optimizer.step()
    weight.grad = torch.tensor([1.0, -0.25, 0.0, -1.0])
    before = weight.detach().clone()
    optimizer.step()  # b = (1.5, 0.25, 0.5, -0.5): the first and the last agree
    assert (weight.detach() - before).tolist() == [-3.0, 0.0, 0.0, 1.0]


def test_the_factor_is_at_most_a_thousand():
    weight = nn.Parameter(torch.zeros(5000))
    optimizer = MirrorAdam([weight], lr=1e-3, caution=True)
    weight.grad = torch.zeros(5000)
    weight.grad[7] = 1.0
    optimizer.step()
    assert float(weight.detach()[7]) == pytest.approx(-1.0)


@PATH
@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("norm_over", ["tensor", "group"])
def test_a_clipped_step_has_at_most_dual_length_clip(path, p, norm_over):
    params = make_params()
    potential = LpPotential(p)
    optimizer = MirrorDescent(params, lr=0.1, p=p, clip=0.05, norm_over=norm_over, **PATHS[path])
    starts = [potential.to_dual(param.detach().double()) for param in params]
    set_gradients(params, 0)
    optimizer.step()
    moves = [
        (start - potential.to_dual(param.detach().double())) / 0.1
        for param, start in zip(params, starts, strict=True)
    ]
    if norm_over == "group":
        moves = [torch.cat([move.flatten() for move in moves])]
        assert float(potential.dual_norm(moves[0])) == pytest.approx(0.05, rel=1e-3)
    assert all(float(potential.dual_norm(move)) < 0.0501 for move in moves)


@PATH
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize("norm_over", ["tensor", "group"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_below_the_bound_are_taken_as_they_are(path, kind, norm_over, dtype):
    params, twins = make_params(dtype), make_params(dtype)
    optimizer = kind(params, lr=0.1, p=1.3, clip=1e6, norm_over=norm_over, **PATHS[path])
    twin = kind(twins, lr=0.1, p=1.3, **PATHS[path])
    for k in range(2):
        for tensors, stepper in ((params, optimizer), (twins, twin)):
            set_gradients(tensors, k)
            stepper.step()
    assert bits(params) == bits(twins)


@PATH
@pytest.mark.parametrize("size", [1e-45, 1e38])
def test_clipping_holds_for_huge_gradients(path, size):
    """clip / norm alone would be 1e-48, which float32 cannot hold; a tiny norm clips nothing."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = MirrorDescent([weight], lr=1.0, clip=1e-10, **PATHS[path])
    weight.grad = torch.tensor([size])
    optimizer.step()
    assert float(weight.detach()) == pytest.approx(-min(size, 1e-10), rel=1e-5, abs=1e-45)


@PATH
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
def test_a_nan_poisons_what_is_clipped_with_it(path, kind):
    params = make_params()
    optimizer = kind(params, lr=0.1, p=1.3, clip=1.0, **PATHS[path])
    set_gradients(params, 0)
    params[1].grad[0] = math.nan
    optimizer.step()
    assert bool(params[1].isnan().all())
    assert bool(params[0].isfinite().all())
