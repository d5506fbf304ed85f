r"""The norms of gradients that step rules and clipping divide by, with 1/p + 1/q = 1.

    normalized:    ||g||_q of each tensor, or of its whole group
    clipped:       the same
    polyak:        ||g||_2 of the group, or ||g||_q with polyak="dual_norm"

With polyak="bregman" the l2 norm gives the step only at p = 2; elsewhere it just seeds the search
for the root.

Each comes from two parts of every tensor, m = max |g| and s = sum (|g| / m)^q, which combine over
tensors without overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry import LpPotential
from mirrormargin.geometry.norms import widen
from mirrormargin.optim.tensor_batch import AnyBatch

__all__ = [
    "Wanted",
    "as_pairs",
    "clip_factors",
    "divide",
    "find_dual_exponent",
    "find_norms",
    "want_clipping",
]

# The exponent, None for the ``dual_norm`` of a potential that has its own; and whether all tensors
# of the group share one norm.
Wanted = tuple[float | None, bool]
_Parts = tuple[Tensor, Tensor]
_TINY = 2.0**-100


def find_dual_exponent(batch: AnyBatch) -> float | None:
    """q of the batch's geometry."""
    potential = batch.potential
    return potential.dual_exponent if isinstance(potential, LpPotential) else None


def want_clipping(batch: AnyBatch) -> Wanted | None:
    """The norm that ``clip`` compares with."""
    if batch.group["clip"] is None:
        return None
    return find_dual_exponent(batch), batch.group["norm_over"] == "group"


def find_norms(batches: Sequence[AnyBatch], wanted: Sequence[Wanted | None]) -> list[Tensor | None]:
    """For each batch the norm that is wanted, of every gradient, in float64.

    Where the norm of the whole group is wanted, each tensor gets that. The parts of all tensors are
    known before any norm is made of them: gradients that are spread over several processes need a
    single reduction in between.
    """
    measured = [
        (batch, want, _measure(batch, want)) for batch, want in zip(batches, wanted, strict=True)
    ]
    norms: list[Tensor | None] = []
    for _, members in groupby(measured, key=lambda one: one[0].number):
        norms += _combine(list(members))
    return norms


def _measure(batch: AnyBatch, want: Wanted | None) -> _Parts | None:
    """m and s of each gradient; None where no norm is wanted, or it is not made of those."""
    if want is None or want[0] is None:
        return None
    largest, sums = batch.path.scaled_power_sums(batch.grads, want[0])
    return torch.as_tensor(largest), torch.as_tensor(sums)


def _combine(measured: list[tuple[AnyBatch, Wanted | None, _Parts | None]]) -> list[Tensor | None]:
    """The norms of one group, batch by batch."""
    batches, want = [batch for batch, _, _ in measured], measured[0][1]
    if want is None:
        return [None for _ in batches]
    exponent, together = want
    if exponent is None:
        return [*_measure_by_potential(batches, together)]
    parts = [part for _, _, part in measured if part is not None]
    if not together:
        return [largest * sums ** (1 / exponent) for largest, sums in parts]
    device = parts[0][0].device
    largest = torch.cat([part[0].to(device) for part in parts])
    sums = torch.cat([part[1].to(device) for part in parts])
    top = largest.max()
    norm = top * (sums * (largest / top) ** exponent).sum() ** (1 / exponent)
    norm = torch.where((top > 0) & (top < math.inf), norm, top)
    return [norm.expand(len(batch.params)) for batch in batches]


def _measure_by_potential(batches: list[AnyBatch], together: bool) -> list[Tensor]:
    """The same by the ``dual_norm`` of a potential that has its own."""
    potential: Any = batches[0].potential

    def measure(tensors: list[Tensor]) -> Tensor:
        return torch.stack([widen(torch.as_tensor(potential.dual_norm(x))) for x in tensors])

    if not together:
        return [measure(batch.grads) for batch in batches]
    everything = torch.cat([grad.flatten() for batch in batches for grad in batch.grads])
    return [measure([everything]).expand(len(batch.params)) for batch in batches]


def divide(number: float, norms: Tensor) -> Tensor:
    """number / norm as two factors, in two columns; 0 for a zero gradient, which makes no step.

    One factor would leave the range of float32 for denormal and for huge gradients. Pinned by
    ``test_a_normalized_step_has_dual_length_lr`` and ``test_clipping_holds_for_huge_gradients``.
    """
    unit = torch.where(norms < _TINY, _TINY, torch.where(norms > 1 / _TINY, 1 / _TINY, 1.0))
    share = torch.where(norms == 0, 0.0, number / (norms / unit))
    return torch.stack([1 / unit, share], dim=-1)


def clip_factors(clip: float, norms: Tensor) -> Tensor:
    """min(1, clip / norm) as two factors, in two columns; nan where the norm is."""
    is_inside = (norms <= clip).unsqueeze(-1)
    return torch.where(is_inside, 1.0, divide(clip, norms))


def as_pairs(factors: Tensor, batch: AnyBatch) -> list[tuple[Any, Any]]:
    """Two factors for each tensor of the batch: numbers, or tensors where nothing may be read."""
    if batch.is_captured:
        return [(row[0], row[1]) for row in factors.unbind()]
    return [(first, second) for first, second in factors.tolist()]
