r"""The step in plain torch operations, for every device and dtype.

    x  = grad_scale g + coupled_decay u             (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

The operations are torch's on lists of tensors: with one tensor in the lists they are the ordinary
ones, with many tensors on an accelerator few kernels are launched (``foreach=True``).

Duals, buffers and moments are float32 or wider whatever the weights are; half-precision weights
are rounded once, at the end. ``compiled.py`` has the same functions for float32 on the CPU, and
``reference.py`` the formulas that both are compared with.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.norms import scaled_power_sum

__all__ = [
    "mirror_adam",
    "mirror_descent",
    "scaled_power_sums",
    "state_dtype",
    "to_dual",
    "to_primal",
]


def mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    buffers: list[Tensor] | None,
    *,
    potential: Potential,
    grad_scales: list[tuple[float, float]],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """Take one step of mirror descent.

    Args:
        params: Weights w, changed in place.
        grads: Gradients g.
        duals: u of each tensor, changed in place; None where it is computed from w.
        buffers: Momentum buffers b, changed in place; None without momentum.
        potential: Maps w to u and back; its scale, if any, is already part of ``lrs``.
        grad_scales: Two factors of each gradient whose product is 1, 1 / norm, or Polyak's step,
            negative to maximize. (1 / norm alone may overflow.)
        lrs: Step length of each tensor in the coordinates of u.
        coupled_decays: Multiple of u added to each gradient.
        decay: Factor of u, 1 without decoupled weight decay.
        momentum: mu.
        nesterov: Whether to look one momentum step ahead.
    """
    us = _current_duals(params, duals, potential)
    xs = [g.to(u.dtype) for g, u in zip(grads, us, strict=True)]
    for factors in zip(*grad_scales, strict=True):
        if any(factor != 1 for factor in factors):
            xs = list(torch._foreach_mul(xs, list(factors)))
    if any(c != 0 for c in coupled_decays):
        xs = list(torch._foreach_add(xs, torch._foreach_mul(us, coupled_decays)))
    if buffers is not None:
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, xs)
        xs = list(torch._foreach_add(xs, buffers, alpha=momentum)) if nesterov else buffers
    _move(params, us, duals, xs, lrs, decay, potential)


def mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor] | None,
    *,
    potential: Potential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
) -> None:
    """Take one step of MirrorAdam.

    Args:
        params: Weights w, changed in place.
        grads: Gradients g.
        duals: u of each tensor, changed in place; None where it is computed from w.
        exp_avgs: m, changed in place.
        exp_avg_sqs: v, changed in place.
        max_exp_avg_sqs: Largest v so far, changed in place; None without AMSGrad.
        potential: Maps w to u and back; its scale, if any, is already part of ``lrs``.
        lrs: lr / (1 - beta1^t) of each tensor, in the coordinates of u.
        sq_corrections: (1 - beta2^t)^(-1/2) of each tensor.
        decay: Factor of u, 1 without weight decay.
        betas: Decay rates of m and v.
        eps: Added to the denominator.
        maximize: Whether to climb.
    """
    us = _current_duals(params, duals, potential)
    gs = [g.to(u.dtype) for g, u in zip(grads, us, strict=True)]
    gs = list(torch._foreach_neg(gs)) if maximize else gs
    torch._foreach_lerp_(exp_avgs, gs, 1 - betas[0])
    torch._foreach_mul_(exp_avg_sqs, betas[1])
    torch._foreach_addcmul_(exp_avg_sqs, gs, gs, value=1 - betas[1])
    squares = exp_avg_sqs
    if max_exp_avg_sqs is not None:
        torch._foreach_maximum_(max_exp_avg_sqs, exp_avg_sqs)
        squares = max_exp_avg_sqs
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_mul_(denominators, sq_corrections)
    torch._foreach_add_(denominators, eps)
    xs = list(torch._foreach_div(exp_avgs, denominators))
    _move(params, us, duals, xs, lrs, decay, potential)


def _current_duals(
    params: list[Tensor], duals: list[Tensor] | None, potential: Potential
) -> list[Tensor]:
    return [to_dual(w, potential) for w in params] if duals is None else duals


def _move(
    params: list[Tensor],
    us: list[Tensor],
    duals: list[Tensor] | None,
    xs: list[Tensor],
    lrs: list[float],
    decay: float,
    potential: Potential,
) -> None:
    """Write u' and w', leaving untouched, to the bit, the weights whose dual did not change."""
    moved = us if decay == 1 else torch._foreach_mul(us, decay)
    moved = torch._foreach_sub(moved, torch._foreach_mul(xs, lrs))
    for w, u, new in zip(params, us, moved, strict=True):
        value = to_primal(new, potential).to(w.dtype)
        w.copy_(torch.where((new == u) | u.isnan(), w, value))
        if duals is not None:
            u.copy_(new)


def to_dual(weight: Tensor, potential: Potential) -> Tensor:
    """u of a tensor, in the dtype of its state."""
    return potential.to_dual(weight.to(state_dtype(weight)))


def to_primal(dual: Tensor, potential: Potential) -> Tensor:
    """w of a tensor, in the dtype of its state."""
    return potential.to_primal(dual)


def state_dtype(param: Tensor) -> torch.dtype:
    """float32 or wider: in bfloat16 small steps of u would be rounded away."""
    return torch.float64 if param.dtype is torch.float64 else torch.float32


def scaled_power_sums(tensors: list[Tensor], exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """``(m, s)`` with m = max |x| and s = sum (|x| / m)^exponent for each tensor."""
    parts = np.array([scaled_power_sum(x, exponent) for x in tensors])
    return parts[:, 0], parts[:, 1]
