"""The step in plain torch operations, for every device and dtype: one tensor at a time, or foreach.

    x  = grad_scale g + coupled_decay u             (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

All functions share one signature with ``fused.py``, their compiled twin. ``duals`` holds the
optimizer's u, or None where it is computed from w. Duals, buffers and moments are float32 or
wider whatever the weights are; half-precision weights are rounded once, at the end.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import torch
from torch import Tensor

from mirrormargin.geometry import Potential

__all__ = [
    "foreach_mirror_adam",
    "foreach_mirror_descent",
    "plain_mirror_adam",
    "plain_mirror_descent",
    "state_dtype",
]


def state_dtype(param: Tensor) -> torch.dtype:
    """float32 or wider: in bfloat16 small steps of u would be rounded away."""
    return torch.float64 if param.dtype is torch.float64 else torch.float32


def plain_mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    buffers: list[Tensor | None],
    *,
    potential: Potential,
    grad_scales: list[tuple[float, float]],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One mirror-descent step, tensor by tensor.

    Args:
        params: Weights w, changed in place.
        grads: Gradients g.
        duals: u of each tensor, changed in place, or None.
        buffers: Momentum buffers b, changed in place, or None.
        potential: Maps w to u and back; its scale, if any, is already part of ``lrs``.
        grad_scales: Two factors of each gradient whose product is 1, 1 / norm, or Polyak's step,
            negative to maximize. (1 / norm alone may overflow.)
        lrs: Step length of each tensor in the coordinates of u.
        coupled_decays: Multiple of u added to each gradient.
        decay: Factor of u, 1 without decoupled weight decay.
        momentum: mu.
        nesterov: Whether to look one momentum step ahead.
    """
    for i, w in enumerate(params):
        u = _dual(w, duals[i], potential)
        x = _scaled(grads[i].to(u.dtype), grad_scales[i])
        if coupled_decays[i] != 0:
            x = x.add(u, alpha=coupled_decays[i])
        buffer = buffers[i]
        if buffer is not None:
            buffer.mul_(momentum).add_(x)
            x = x.add(buffer, alpha=momentum) if nesterov else buffer
        _move(w, u, duals[i], (u if decay == 1 else u * decay) - x * lrs[i], potential)


def plain_mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor | None],
    *,
    potential: Potential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
) -> None:
    """One MirrorAdam step, tensor by tensor.

    Args:
        params: Weights w, changed in place.
        grads: Gradients g.
        duals: u of each tensor, changed in place, or None.
        exp_avgs: m, changed in place.
        exp_avg_sqs: v, changed in place.
        max_exp_avg_sqs: Largest v so far (AMSGrad), changed in place, or None.
        potential: Maps w to u and back; its scale, if any, is already part of ``lrs``.
        lrs: lr / (1 - beta1^t) of each tensor, in the coordinates of u.
        sq_corrections: (1 - beta2^t)^(-1/2) of each tensor.
        decay: Factor of u, 1 without weight decay.
        betas: Decay rates of m and v.
        eps: Added to the denominator.
        maximize: Whether to climb.
    """
    for i, w in enumerate(params):
        u = _dual(w, duals[i], potential)
        g = grads[i].to(u.dtype)
        g = -g if maximize else g
        exp_avgs[i].lerp_(g, 1 - betas[0])
        exp_avg_sqs[i].mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        square, largest = exp_avg_sqs[i], max_exp_avg_sqs[i]
        if largest is not None:
            square = torch.maximum(largest, square, out=largest)
        x = exp_avgs[i] / (square.sqrt() * sq_corrections[i]).add_(eps)
        _move(w, u, duals[i], (u if decay == 1 else u * decay) - x * lrs[i], potential)


def foreach_mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    buffers: list[Tensor | None],
    *,
    potential: Potential,
    grad_scales: list[tuple[float, float]],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """The same step with few kernel launches: for many tensors on an accelerator."""
    us = [_dual(w, u, potential) for w, u in zip(params, duals, strict=True)]
    xs = [g.to(u.dtype) for g, u in zip(grads, us, strict=True)]
    for factors in zip(*grad_scales, strict=True):
        xs = list(torch._foreach_mul(xs, list(factors)))
    if any(c != 0 for c in coupled_decays):
        torch._foreach_add_(xs, torch._foreach_mul(us, coupled_decays))
    averages = [b for b in buffers if b is not None]
    if averages:
        torch._foreach_mul_(averages, momentum)
        torch._foreach_add_(averages, xs)
        xs = list(torch._foreach_add(xs, averages, alpha=momentum)) if nesterov else averages
    _foreach_move(params, us, duals, xs, lrs, decay, potential)


def foreach_mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor | None],
    *,
    potential: Potential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
) -> None:
    """The same step with few kernel launches: for many tensors on an accelerator."""
    us = [_dual(w, u, potential) for w, u in zip(params, duals, strict=True)]
    gs = [g.to(u.dtype) for g, u in zip(grads, us, strict=True)]
    gs = list(torch._foreach_neg(gs)) if maximize else gs
    torch._foreach_lerp_(exp_avgs, gs, 1 - betas[0])
    torch._foreach_mul_(exp_avg_sqs, betas[1])
    torch._foreach_addcmul_(exp_avg_sqs, gs, gs, value=1 - betas[1])
    squares, largest = exp_avg_sqs, [t for t in max_exp_avg_sqs if t is not None]
    if largest:
        torch._foreach_maximum_(largest, squares)
        squares = largest
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_mul_(denominators, sq_corrections)
    torch._foreach_add_(denominators, eps)
    xs = list(torch._foreach_div(exp_avgs, denominators))
    _foreach_move(params, us, duals, xs, lrs, decay, potential)


def _dual(w: Tensor, stored: Tensor | None, potential: Potential) -> Tensor:
    return potential.to_dual(w.to(state_dtype(w))) if stored is None else stored


def _scaled(g: Tensor, factors: tuple[float, float]) -> Tensor:
    return g if factors == (1.0, 1.0) else g * factors[0] * factors[1]


def _move(w: Tensor, u: Tensor, stored: Tensor | None, moved: Tensor, potential: Potential) -> None:
    """Commit u' and w', leaving untouched, to the bit, the weights whose dual did not change."""
    value = potential.to_primal(moved).to(w.dtype)
    w.copy_(torch.where((moved == u) | u.isnan(), w, value))
    if stored is not None:
        stored.copy_(moved)


def _foreach_move(
    params: list[Tensor],
    us: list[Tensor],
    duals: list[Tensor | None],
    xs: list[Tensor],
    lrs: list[float],
    decay: float,
    potential: Potential,
) -> None:
    moved = list(us) if decay == 1 else list(torch._foreach_mul(us, decay))
    moved = torch._foreach_sub(moved, torch._foreach_mul(xs, lrs))
    for w, u, stored, new in zip(params, us, duals, moved, strict=True):
        _move(w, u, stored, new, potential)
