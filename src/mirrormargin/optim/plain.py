r"""The step in plain torch operations, for every device and dtype.

    x  = grad_scale g + coupled_decay u             (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit; c + to_primal(u') for
                        weights with a centre c; of a group as soon as one u' of it differs

Duals, buffers and moments are float32 or wider whatever the weights are, or are bfloat16 and are
opened to float32 for the step; half-precision weights are rounded once, at the end. Each number
may be a tensor without axes, which is not read, so that the step can be captured.

``foreach.py`` does the same for many tensors at once, ``compiled.py`` for float32 on the CPU. All
are compared with the formulas in ``reference.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.norms import scaled_power_sum
from mirrormargin.optim.stochastic_rounding import (
    AVERAGE,
    DUAL,
    LARGEST,
    SQUARE,
    Rounding,
)

__all__ = [
    "add_center",
    "find_adam_direction",
    "find_direction",
    "fit",
    "mirror_adam",
    "mirror_descent",
    "move",
    "open_state",
    "scaled_power_sums",
    "square_limit",
    "state_dtype",
    "to_dual",
    "to_primal",
    "write",
]

takes_masks = False


def mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    buffers: list[Tensor] | None,
    *,
    potential: Potential,
    grad_scales: list[tuple[Any, Any]],
    lrs: list[Any],
    coupled_decays: list[float],
    decay: Any,
    momentum: float,
    nesterov: bool,
    centers: list[Tensor] | None = None,
    rounding: Rounding | None = None,
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
        centers: c of each tensor; None where u belongs to w itself. They need ``duals``.
        rounding: Rounds states that are kept in bfloat16; None where none is.
    """
    for i, w in enumerate(params):
        u = to_dual(w, potential) if duals is None else open_state(duals[i], w)
        g, b = grads[i].to(u.dtype), None if buffers is None else open_state(buffers[i], w)
        x = find_direction(g, u, b, grad_scales[i], coupled_decays[i], momentum, nesterov)
        write(w, u, move(u, x, lrs[i], decay), potential, duals, centers, rounding, i)
        if rounding is not None and buffers is not None:
            buffers[i].copy_(rounding(i, AVERAGE, b))  # pyright: ignore[reportArgumentType]


def mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor] | None,
    *,
    potential: Potential,
    lrs: list[Any],
    sq_corrections: list[Any],
    decay: Any,
    betas: tuple[Any, Any],
    eps: float,
    maximize: bool,
    centers: list[Tensor] | None = None,
    rounding: Rounding | None = None,
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
        centers: c of each tensor; None where u belongs to w itself. They need ``duals``.
        rounding: Rounds states that are kept in bfloat16; None where none is.
    """
    for i, w in enumerate(params):
        u = to_dual(w, potential) if duals is None else open_state(duals[i], w)
        kept = [exp_avgs[i], exp_avg_sqs[i]]
        kept += [] if max_exp_avg_sqs is None else [max_exp_avg_sqs[i]]
        m, v, *rest = opened = [open_state(one, w) for one in kept]
        g = -grads[i].to(u.dtype) if maximize else grads[i].to(u.dtype)
        v_max = rest[0] if rest else None
        x = find_adam_direction(g, m, v, v_max, sq_corrections[i], betas, eps)
        write(w, u, move(u, x, lrs[i], decay), potential, duals, centers, rounding, i)
        if rounding is not None:
            for role, one, value in zip((AVERAGE, SQUARE, LARGEST), kept, opened, strict=False):
                one.copy_(rounding(i, role, value))


# Each tensor here may also be a TensorList, and each number a list with one for each tensor.


def find_direction(
    g: Any, u: Any, b: Any, scales: tuple[Any, Any], coupled_decay: Any, mu: float, nesterov: bool
) -> Any:
    """x of mirror descent; b, if any, is changed in place."""
    for scale in scales:
        g = g if _is(scale, 1) else g * fit(scale, g)
    x = g if _is(coupled_decay, 0) else g.add(u, alpha=coupled_decay)
    if b is None:
        return x
    b.mul_(mu).add_(x)
    return x.add(b, alpha=mu) if nesterov else b


def find_adam_direction(
    g: Any, m: Any, v: Any, v_max: Any, sq_correction: Any, betas: tuple[Any, Any], eps: float
) -> Any:
    """x of Adam, without the correction of m; m, v and v_max, if any, are changed in place."""
    limit = square_limit(g.dtype)
    # Adding 0 g makes inf, which the clamp would hide, a nan. Pinned by
    # ``test_a_gradient_whose_square_overflows_makes_a_step``.
    g = g.clamp(-limit, limit).add_(g, alpha=0.0)
    beta1, beta2 = betas
    m.lerp_(g, (1 - beta1).to(m) if isinstance(beta1, Tensor) else 1 - beta1)
    if isinstance(beta2, Tensor):
        v.mul_(fit(beta2, v)).addcmul_(g, g * fit(1 - beta2, g))  # value=tensor would be read
    else:
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    if v_max is not None:
        v = v_max.clamp_min_(v)
    return m / v.sqrt().mul_(fit(sq_correction, v)).add_(eps)


def move(u: Any, x: Any, lr: Any, decay: Any) -> Any:
    """u' = decay u - lr x."""
    return (u if _is(decay, 1) else u * fit(decay, u)) - x * fit(lr, x)


def _is(number: Any, value: int) -> bool:
    """Whether a factor or a term can be left out; a tensor is not looked into."""
    return not isinstance(number, Tensor) and number == value


def fit(number: Any, x: Any) -> Any:
    """A number that is a tensor in the dtype of x, which a wider one would change if x is 0-d."""
    return number.reshape(()).to(x.dtype) if isinstance(number, Tensor) else number


def write(
    w: Tensor,
    u: Tensor,
    moved: Tensor,
    potential: Potential,
    duals: list[Tensor] | None,
    centers: list[Tensor] | None,
    rounding: Rounding | None,
    i: int,
) -> None:
    """Write w', leaving untouched, to the bit, weights that no change of u moves, and keep u'."""
    if duals is not None and rounding is not None:
        moved = rounding(i, DUAL, moved).to(u.dtype)
    value = add_center(to_primal(moved, potential), None if centers is None else centers[i])
    stays = ~potential.find_coupled(moved != u) | u.isnan()
    w.copy_(torch.where(stays, w, value.to(w.dtype)))
    if duals is not None:
        duals[i].copy_(moved)


def add_center(value: Tensor, center: Tensor | None) -> Tensor:
    """c + to_primal(u), in the dtype of the latter."""
    return value if center is None else center.to(value.dtype) + value


def open_state(tensor: Tensor, param: Tensor) -> Tensor:
    """A state tensor itself, or a float32 copy of one in bfloat16."""
    return tensor.to(state_dtype(param))


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


def scaled_power_sums(tensors: list[Tensor], exponent: float) -> tuple[Tensor, Tensor]:
    """``(m, s)`` with m = max |x| and s = sum (|x| / m)^exponent for each tensor."""
    device = tensors[0].device
    parts = [scaled_power_sum(x, exponent) for x in tensors]
    largest, sums = zip(*parts, strict=True)
    return (
        torch.stack([one.to(device) for one in largest]),
        torch.stack([one.to(device) for one in sums]),
    )
