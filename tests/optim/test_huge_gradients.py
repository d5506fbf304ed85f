"""Gradients whose squares overflow, or that follow far larger ones: every path does the same."""

from __future__ import annotations

import pytest
import torch
from catalogue import PATHS

import mirrormargin as mm
from mirrormargin.optim.reference import ReferenceMirrorAdam, ReferenceMirrorDescent

LIMIT = 2.0**63
WIDE = [torch.float32, torch.float64, torch.bfloat16]
DTYPES = {path: [torch.float32] if path == "fused" else WIDE for path in PATHS}
EXPONENTS = (1.1, 1.5, 2.0, 3.0, 4.0)


def _pair(values, dtype):
    return [torch.nn.Parameter(torch.tensor(values, dtype=dtype)) for _ in range(2)]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("path", PATHS)
def test_a_gradient_whose_square_overflows_makes_a_step(path, p, amsgrad):
    for dtype in DTYPES[path]:
        huge = 1e200 if dtype is torch.float64 else 1e30
        mine, other = _pair([1.0, -2.0, 0.5, 3.0], dtype)
        options = {"lr": 0.05, "p": p, "amsgrad": amsgrad}
        optimizer = mm.MirrorAdam([mine], **options, **PATHS[path])
        reference = ReferenceMirrorAdam([other], **options)
        start = mine.detach().clone()
        for _ in range(2):
            for w in (mine, other):
                w.grad = torch.tensor([huge, -huge, 1.0, -1e-3], dtype=dtype)
            optimizer.step()
            reference.step()
        assert bool(mine.isfinite().all())
        assert bool((mine != start)[:2].all())
        tolerance = 3e-5 if dtype in (torch.float32, torch.float64) else 0.03
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=0.0)
        state = optimizer.state[mine]
        assert bool(state["exp_avg_sq"].isfinite().all())
        # It counts as the limit, not as more.
        limit = 2.0**511 if dtype is torch.float64 else LIMIT
        assert state["exp_avg"][:2].abs().tolist() == pytest.approx([0.19 * limit] * 2, rel=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_gradients_up_to_the_limit_are_taken_as_they_are(path):
    mine, other = _pair([1.0, 1.0, 1.0], torch.float32)
    options = {"lr": 0.05, "p": 1.1, "betas": (0.5, 0.9)}
    optimizer = mm.MirrorAdam([mine], **options, **PATHS[path])
    mine.grad = torch.tensor([LIMIT, -LIMIT / 2, 3.0])
    optimizer.step()
    assert optimizer.state[mine]["exp_avg"].tolist() == [LIMIT / 2, -LIMIT / 4, 1.5]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("path", PATHS)
def test_an_infinite_gradient_is_not_clipped(path, value):
    (w, _) = _pair([1.0, 1.0], torch.float32)
    optimizer = mm.MirrorAdam([w], lr=0.05, p=1.1, **PATHS[path])
    w.grad = torch.tensor([value, 1.0])
    optimizer.step()
    assert bool(w[0].isnan())
    assert bool(w[1].isfinite())


@pytest.mark.parametrize("path", PATHS)
def test_without_averaging_a_small_gradient_after_a_large_one_keeps_its_digits(path):
    w, _ = _pair([1.0], torch.float32)
    optimizer = mm.MirrorAdam([w], lr=0.05, p=1.1, betas=(0.0, 0.9), **PATHS[path])
    for gradient in (1.0, 1.2345e-7):
        w.grad = torch.tensor([gradient])
        optimizer.step()
    assert optimizer.state[w]["exp_avg"].item() == w.grad.item()


@pytest.mark.parametrize("p", [1.3, 2.0, 4.0])
def test_polyak_steps_far_below_the_weights_keep_their_digits(p):
    """The predicted decrease of a step of 1e-14 of u cancels to two digits in a difference."""
    mine, other = _pair([1e4, -3e4, 2e4], torch.float64)
    gradient = torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64)
    optimizer = mm.MirrorDescent([mine], lr=1.0, p=p, step_rule="polyak")
    reference = ReferenceMirrorDescent([other], lr=1.0, p=p, step_rule="polyak")
    mine.grad, other.grad = gradient.clone(), gradient.clone()
    # To first order the decrease is lr sum g^2 w / ((p - 1) u).
    w = mine.detach().abs()
    slope = float((gradient**2 * w ** (2 - p)).sum()) / (p - 1)
    loss = 1e-10
    optimizer.step(loss=loss)
    assert optimizer.effective_lr[0] == pytest.approx(loss / slope, rel=1e-10)
    assert reference.polyak([gradient], loss) == pytest.approx(loss / slope, rel=1e-10)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("p", [1.3, 2.0])
@pytest.mark.parametrize("path", PATHS)
def test_polyak_has_no_step_for_a_gradient_that_is_not_finite(path, p, value):
    w, _ = _pair([1.0, 1.0], torch.float32)
    optimizer = mm.MirrorDescent([w], lr=1.0, p=p, step_rule="polyak", **PATHS[path])
    w.grad = torch.tensor([value, 1.0])
    optimizer.step(loss=1.0)
    assert bool(w.isnan().all())


@pytest.mark.parametrize(("p", "size"), [(3.0, 1e20), (10.0, 1e6), (100.0, 3.0)])
@pytest.mark.parametrize("kind", [mm.MirrorDescent, mm.MirrorAdam])
def test_a_weight_whose_dual_overflows_is_refused_before_anything_moves(kind, p, size):
    """Its u would be infinite, and the weight would stand still without a word."""
    small, vast = (torch.nn.Parameter(torch.tensor([0.5, one])) for one in (1.0, -size))
    optimizer = kind([("small", small), ("vast", vast)], lr=0.1, p=p)
    for weight in (small, vast):
        weight.grad = torch.ones(2)
    with pytest.raises(mm.OptimizerError, match=r"'vast' holds a weight of size .* smaller p"):
        optimizer.step()
    assert small.tolist() == [0.5, 1.0]
    vast.data[1] = -1.0
    optimizer.step()
    assert small[1] < 1.0
