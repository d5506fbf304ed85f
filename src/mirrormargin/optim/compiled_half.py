"""The compiled step of half-precision weights on the CPU: what moves is u, in float32.

    u' = decay u - lr x                           the kernels of p = 2, where weights are their dual
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

The functions are those of ``plain.py``, which documents their arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry import LpPotential
from mirrormargin.optim import compiled
from mirrormargin.optim.compiled import scaled_power_sums
from mirrormargin.optim.tensor_batch import WITHOUT_DUAL

__all__ = ["mirror_adam", "mirror_descent", "scaled_power_sums", "to_dual", "to_primal"]

_EUCLIDEAN = LpPotential(2.0)


def mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor],
    *buffers: Any,
    potential: LpPotential,
    **options: Any,
) -> None:
    """Take one step of mirror descent; arguments as in ``plain.py``."""
    old = [u.clone() for u in duals]
    compiled.mirror_descent(duals, grads, None, *buffers, potential=_EUCLIDEAN, **options)
    _write(params, old, duals, potential)


def mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor],
    *moments: Any,
    potential: LpPotential,
    **options: Any,
) -> None:
    """Take one step of MirrorAdam; arguments as in ``plain.py``."""
    old = [u.clone() for u in duals]
    compiled.mirror_adam(duals, grads, None, *moments, potential=_EUCLIDEAN, **options)
    _write(params, old, duals, potential)


def _write(
    params: list[Tensor], old: list[Tensor], duals: list[Tensor], potential: LpPotential
) -> None:
    for w, u, moved in zip(params, old, duals, strict=True):
        value = to_primal(moved, potential).to(w.dtype)
        w.copy_(torch.where((moved == u) | u.isnan(), w, value))


def to_dual(weight: Tensor, potential: LpPotential) -> Tensor:
    """u of a tensor, in float32."""
    w = weight.float()
    return potential.to_dual(w) if potential.p in WITHOUT_DUAL else compiled.to_dual(w, potential)


def to_primal(dual: Tensor, potential: LpPotential) -> Tensor:
    """w of a tensor in float32, to the bit as the step computes it before rounding."""
    if potential.p in WITHOUT_DUAL:
        return potential.to_primal(dual)
    return compiled.to_primal(dual, potential)
