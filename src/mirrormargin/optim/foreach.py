"""The plain step on many tensors at once, for accelerators: few kernels are launched.

The arithmetic is that of ``plain.py``, done with a :class:`TensorList` instead of a tensor.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.optim.plain import (
    find_adam_direction,
    find_direction,
    move,
    open_state,
    scaled_power_sums,
    to_dual,
    to_primal,
    write,
)
from mirrormargin.optim.stochastic_rounding import AVERAGE, LARGEST, SQUARE, Rounding

__all__ = [
    "TensorList",
    "mirror_adam",
    "mirror_descent",
    "scaled_power_sums",
    "to_dual",
    "to_primal",
]

takes_masks = False


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
    centers: list[Tensor] | None = None,
    rounding: Rounding | None = None,
) -> None:
    """Take one step of mirror descent; arguments as in ``plain.py``."""
    u = _open_duals(duals, params, potential)
    b = None if buffers is None else _open(buffers, params)
    first, second = zip(*grad_scales, strict=True)
    x = find_direction(
        _widen(grads, u),
        u,
        b,
        (_simplify(first), _simplify(second)),
        _simplify(coupled_decays),
        momentum,
        nesterov,
    )
    _write(params, u, move(u, x, lrs, decay), potential, duals, centers, rounding)
    _close([(AVERAGE, buffers, b)], rounding)


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
    centers: list[Tensor] | None = None,
    rounding: Rounding | None = None,
) -> None:
    """Take one step of MirrorAdam; arguments as in ``plain.py``."""
    u = _open_duals(duals, params, potential)
    v_max = None if max_exp_avg_sqs is None else _open(max_exp_avg_sqs, params)
    g = -_widen(grads, u) if maximize else _widen(grads, u)
    m, v = _open(exp_avgs, params), _open(exp_avg_sqs, params)
    x = find_adam_direction(g, m, v, v_max, sq_corrections, betas, eps)
    _write(params, u, move(u, x, lrs, decay), potential, duals, centers, rounding)
    kept = [(AVERAGE, exp_avgs, m), (SQUARE, exp_avg_sqs, v), (LARGEST, max_exp_avg_sqs, v_max)]
    _close(kept, rounding)


def _open(kept: list[Tensor], params: list[Tensor]) -> TensorList:
    return TensorList([open_state(one, w) for one, w in zip(kept, params, strict=True)])


def _open_duals(
    duals: list[Tensor] | None, params: list[Tensor], potential: Potential
) -> TensorList:
    if duals is None:
        return TensorList([to_dual(w, potential) for w in params])
    return _open(duals, params)


def _close(
    states: list[tuple[int, list[Tensor] | None, TensorList | None]], rounding: Rounding | None
) -> None:
    """Round what was opened."""
    for role, kept, opened in states:
        if rounding is not None and kept is not None and opened is not None:
            for i, (one, value) in enumerate(zip(kept, opened.tensors, strict=True)):
                one.copy_(rounding(i, role, value))


def _widen(grads: list[Tensor], u: TensorList) -> TensorList:
    return TensorList([g.to(dual.dtype) for g, dual in zip(grads, u.tensors, strict=True)])


def _simplify(numbers: Sequence[float]) -> float | list[float]:
    """One number where all are equal: operations with 0 or 1 can then be left out."""
    return numbers[0] if all(n == numbers[0] for n in numbers) else list(numbers)


def _write(
    params: list[Tensor],
    u: TensorList,
    moved: TensorList,
    potential: Potential,
    duals: list[Tensor] | None,
    centers: list[Tensor] | None,
    rounding: Rounding | None,
) -> None:
    for i, w in enumerate(params):
        write(w, u.tensors[i], moved.tensors[i], potential, duals, centers, rounding, i)


class TensorList:
    """Many tensors with which one calculates as with one, by torch's multi-tensor operations.

    A number in an operation is for all tensors; a list of numbers has one for each.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    def __neg__(self) -> TensorList:
        return TensorList(torch._foreach_neg(self.tensors))

    def __mul__(self, factor: float | list[float]) -> TensorList:
        return TensorList(torch._foreach_mul(self.tensors, factor))

    def __sub__(self, other: TensorList) -> TensorList:
        return TensorList(torch._foreach_sub(self.tensors, other.tensors))

    def __truediv__(self, other: TensorList) -> TensorList:
        return TensorList(torch._foreach_div(self.tensors, other.tensors))

    def sqrt(self) -> TensorList:
        return TensorList(torch._foreach_sqrt(self.tensors))

    def add(self, other: TensorList, *, alpha: float | list[float]) -> TensorList:
        if isinstance(alpha, list):
            return TensorList(torch._foreach_add(self.tensors, (other * alpha).tensors))
        return TensorList(torch._foreach_add(self.tensors, other.tensors, alpha=alpha))

    def clamp(self, least: float, most: float) -> TensorList:
        clamped = torch._foreach_mul(self.tensors, 1.0)  # DTensor has the clamps in place alone
        torch._foreach_clamp_min_(clamped, least)
        torch._foreach_clamp_max_(clamped, most)
        return TensorList(clamped)

    def add_(self, other: TensorList | float, *, alpha: float = 1.0) -> TensorList:
        if isinstance(other, TensorList):
            torch._foreach_add_(self.tensors, other.tensors, alpha=alpha)
        else:
            torch._foreach_add_(self.tensors, other)
        return self

    def mul_(self, factor: float | list[float]) -> TensorList:
        torch._foreach_mul_(self.tensors, factor)
        return self

    def lerp_(self, end: TensorList, weight: float) -> TensorList:
        torch._foreach_lerp_(self.tensors, end.tensors, weight)
        return self

    def addcmul_(self, first: TensorList, second: TensorList, *, value: float) -> TensorList:
        torch._foreach_addcmul_(self.tensors, first.tensors, second.tensors, value=value)
        return self

    def clamp_min_(self, other: TensorList) -> TensorList:
        torch._foreach_maximum_(self.tensors, other.tensors)
        return self
