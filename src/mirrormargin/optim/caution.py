r"""Cautious steps: where the direction x and the gradient disagree in sign, nothing moves.

    x <- x [x g > 0] / max(share of the entries kept, 1/1000)

The entries that move make up for those that do not (Liang et al. 2024, arXiv 2411.16085). Here g is
the gradient of what is minimized, including ``coupled_decay u``. Directions are found in plain
torch operations on every path; then the path takes them for the gradient of a constant step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.norms import widen
from mirrormargin.optim.paths import Path
from mirrormargin.optim.plain import find_adam_direction, find_direction, fit, open_state, to_dual
from mirrormargin.optim.shards import add_up
from mirrormargin.optim.stochastic_rounding import AVERAGE, LARGEST, SQUARE, Rounding

__all__ = ["mirror_adam", "mirror_descent"]

_LEAST = 1e-3  # share of the entries: the factor is at most 1000


def mirror_descent(
    path: Path,
    owners: list[Tensor],
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    buffers: list[Tensor],
    *,
    potential: Potential,
    grad_scales: list[tuple[Any, Any]],
    lrs: list[Any],
    coupled_decays: list[Any],
    decay: Any,
    momentum: float,
    nesterov: bool,
    rounding: Rounding | None = None,
    held: Sequence[Tensor | None] = (),
    **options: Any,
) -> None:
    """Take one cautious step of mirror descent; arguments, and options, as in ``plain.py``."""
    pairs = []
    for i, w in enumerate(params):
        u = to_dual(w, potential) if duals is None else open_state(duals[i], w)
        b = open_state(buffers[i], w)
        g = find_direction(
            grads[i].to(u.dtype), u, None, grad_scales[i], coupled_decays[i], 0.0, False
        )
        x = find_direction(g, u, b, (1.0, 1.0), 0.0, momentum, nesterov)
        pairs.append((x, g))
        if rounding is not None:
            buffers[i].copy_(rounding(i, AVERAGE, b))
    if rounding is not None:
        options["rounding"] = rounding
    _step(path, params, _mask(pairs, owners, held), duals, potential, lrs, decay, options)


def mirror_adam(
    path: Path,
    owners: list[Tensor],
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
    rounding: Rounding | None = None,
    held: Sequence[Tensor | None] = (),
    **options: Any,
) -> None:
    """Take one cautious step of MirrorAdam; arguments, and options, as in ``plain.py``."""
    pairs = []
    for i, w in enumerate(params):
        kept = [exp_avgs[i], exp_avg_sqs[i]]
        kept += [] if max_exp_avg_sqs is None else [max_exp_avg_sqs[i]]
        m, v, *rest = opened = [open_state(one, w) for one in kept]
        g = -grads[i].to(m.dtype) if maximize else grads[i].to(m.dtype)
        v_max = rest[0] if rest else None
        x = find_adam_direction(g, m, v, v_max, sq_corrections[i], betas, eps)
        pairs.append((x, g))
        if rounding is not None:
            for role, one, value in zip((AVERAGE, SQUARE, LARGEST), kept, opened, strict=False):
                one.copy_(rounding(i, role, value))
    if rounding is not None:
        options["rounding"] = rounding
    _step(path, params, _mask(pairs, owners, held), duals, potential, lrs, decay, options)


def _mask(
    pairs: list[tuple[Tensor, Tensor]], owners: list[Tensor], held: Sequence[Tensor | None]
) -> list[Tensor]:
    """The direction x of each pair, masked by g; shares are those of whole tensors.

    Entries that are held still, where a mask of ``held`` is False, do not count.
    """
    sizes = [float(max(owner.numel(), 1)) for owner in owners]
    if any(mask is not None for mask in held):
        whole = (torch.ones((), dtype=torch.bool) if one is None else one for one in held)
        left = torch.stack([mask.sum() for mask in whole])
        left = add_up(left, owners)
        sizes = [
            size if mask is None else left[i].clamp(min=1)
            for i, (size, mask) in enumerate(zip(sizes, held, strict=True))
        ]
    kept = [((x > 0) & (g > 0)) | ((x < 0) & (g < 0)) for x, g in pairs]  # x g may underflow
    counts = add_up(torch.stack([widen(one.sum()).to(kept[0].device) for one in kept]), owners)
    masked = []
    for (x, _), one, count, size in zip(pairs, kept, counts.unbind(), sizes, strict=True):
        share = (count / size).clamp(min=_LEAST)
        masked.append(x * (one.to(x.dtype) / fit(share.to(x.device), x)))
    return masked


def _step(
    path: Path,
    params: list[Tensor],
    directions: list[Tensor],
    duals: list[Tensor] | None,
    potential: Potential,
    lrs: list[Any],
    decay: Any,
    options: dict[str, Any],
) -> None:
    path.mirror_descent(
        params,
        directions,
        duals,
        None,
        potential=potential,
        grad_scales=[(1.0, 1.0)] * len(params),
        lrs=lrs,
        coupled_decays=[0.0] * len(params),
        decay=decay,
        momentum=0.0,
        nesterov=False,
        **options,
    )
