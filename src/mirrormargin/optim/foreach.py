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
    scaled_power_sums,
    to_dual,
    to_primal,
    write,
)

__all__ = [
    "TensorList",
    "mirror_adam",
    "mirror_descent",
    "scaled_power_sums",
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
    """Take one step of mirror descent; arguments as in ``plain.py``."""
    u = TensorList([to_dual(w, potential) for w in params] if duals is None else duals)
    b = None if buffers is None else TensorList(buffers)
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
    _write(params, u, move(u, x, lrs, decay), potential, keep=duals is not None)


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
    """Take one step of MirrorAdam; arguments as in ``plain.py``."""
    u = TensorList([to_dual(w, potential) for w in params] if duals is None else duals)
    v_max = None if max_exp_avg_sqs is None else TensorList(max_exp_avg_sqs)
    g = -_widen(grads, u) if maximize else _widen(grads, u)
    m, v = TensorList(exp_avgs), TensorList(exp_avg_sqs)
    x = find_adam_direction(g, m, v, v_max, sq_corrections, betas, eps)
    _write(params, u, move(u, x, lrs, decay), potential, keep=duals is not None)


def _widen(grads: list[Tensor], u: TensorList) -> TensorList:
    return TensorList([g.to(dual.dtype) for g, dual in zip(grads, u.tensors, strict=True)])


def _simplify(numbers: Sequence[float]) -> float | list[float]:
    """One number where all are equal: operations with 0 or 1 can then be left out."""
    return numbers[0] if all(n == numbers[0] for n in numbers) else list(numbers)


def _write(
    params: list[Tensor], u: TensorList, moved: TensorList, potential: Potential, keep: bool
) -> None:
    for w, old, new in zip(params, u.tensors, moved.tensors, strict=True):
        write(w, old, new, potential, keep)


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
