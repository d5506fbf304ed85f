r"""The step in plain torch operations, for every device and dtype.

    x  = grad_scale g + coupled_decay u             (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

Duals, buffers and moments are float32 or wider whatever the weights are; half-precision weights
are rounded once, at the end. ``foreach.py`` does the same for many tensors at once,
``compiled.py`` for float32 on the CPU. All are compared with the formulas in ``reference.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.norms import scaled_power_sum

__all__ = [
    "find_adam_direction",
    "find_direction",
    "mirror_adam",
    "mirror_descent",
    "move",
    "scaled_power_sums",
    "square_limit",
    "state_dtype",
    "to_dual",
    "to_primal",
    "write",
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
    for i, w in enumerate(params):
        u = to_dual(w, potential) if duals is None else duals[i]
        g, b = grads[i].to(u.dtype), None if buffers is None else buffers[i]
        x = find_direction(g, u, b, grad_scales[i], coupled_decays[i], momentum, nesterov)
        write(w, u, move(u, x, lrs[i], decay), potential, keep=duals is not None)


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
    for i, w in enumerate(params):
        u = to_dual(w, potential) if duals is None else duals[i]
        g, v_max = grads[i].to(u.dtype), None if max_exp_avg_sqs is None else max_exp_avg_sqs[i]
        g = -g if maximize else g
        x = find_adam_direction(
            g, exp_avgs[i], exp_avg_sqs[i], v_max, sq_corrections[i], betas, eps
        )
        write(w, u, move(u, x, lrs[i], decay), potential, keep=duals is not None)


# Each tensor here may also be a TensorList, and each number a list with one for each tensor.


def find_direction(
    g: Any, u: Any, b: Any, scales: tuple[Any, Any], coupled_decay: Any, mu: float, nesterov: bool
) -> Any:
    """x of mirror descent; b, if any, is changed in place."""
    for scale in scales:
        g = g * scale if scale != 1 else g
    x = g.add(u, alpha=coupled_decay) if coupled_decay != 0 else g
    if b is None:
        return x
    b.mul_(mu).add_(x)
    return x.add(b, alpha=mu) if nesterov else b


def find_adam_direction(
    g: Any, m: Any, v: Any, v_max: Any, sq_correction: Any, betas: tuple[float, float], eps: float
) -> Any:
    """x of Adam, without the correction of m; m, v and v_max, if any, are changed in place."""
    limit = square_limit(g.dtype)
    # Adding 0 g makes inf, which the clamp would hide, a nan. Pinned by
    # ``test_a_gradient_whose_square_overflows_makes_a_step``.
    g = g.clamp(-limit, limit).add_(g, alpha=0.0)
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    if v_max is not None:
        v = v_max.clamp_min_(v)
    return m / v.sqrt().mul_(sq_correction).add_(eps)


def move(u: Any, x: Any, lr: Any, decay: float) -> Any:
    """u' = decay u - lr x."""
    return (u if decay == 1 else u * decay) - x * lr


def write(w: Tensor, u: Tensor, moved: Tensor, potential: Potential, keep: bool) -> None:
    """Write w', leaving untouched, to the bit, weights whose dual did not change, and keep u'."""
    value = to_primal(moved, potential).to(w.dtype)
    w.copy_(torch.where((moved == u) | u.isnan(), w, value))
    if keep:
        u.copy_(moved)


def to_dual(weight: Tensor, potential: Potential) -> Tensor:
    """u of a tensor, in the dtype of its state."""
    return potential.to_dual(weight.to(state_dtype(weight)))


def to_primal(dual: Tensor, potential: Potential) -> Tensor:
    """w of a tensor, in the dtype of its state."""
    return potential.to_primal(dual)


def state_dtype(param: Tensor) -> torch.dtype:
    """float32 or wider: in bfloat16 small steps of u would be rounded away."""
    return torch.float64 if param.dtype is torch.float64 else torch.float32


def square_limit(dtype: torch.dtype) -> float:
    """The largest gradient that Adam's moments take in: its square is in the range of the dtype.

    2^63 = 9.2e18 in float32, 2^511 = 6.7e153 in float64.
    """
    return 2.0**511 if dtype is torch.float64 else 2.0**63


def scaled_power_sums(tensors: list[Tensor], exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """``(m, s)`` with m = max |x| and s = sum (|x| / m)^exponent for each tensor."""
    parts = np.array([scaled_power_sum(x, exponent) for x in tensors])
    return parts[:, 0], parts[:, 1]
