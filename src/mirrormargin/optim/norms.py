r"""The norms of gradients that step rules and clipping divide by, with 1/p + 1/q = 1.

    normalized:    ||g||_q of each tensor, or of its whole group
    clipped:       the same
    polyak:        ||g||_2 of the group, or ||g||_q with polyak="dual_norm"

With polyak="bregman" the l2 norm gives the step only at p = 2; elsewhere it just seeds the search
for the root.

Each comes from two parts of every tensor, m = max |g| and s = sum (|g| / m)^q, which combine over
tensors, and over the parts of a tensor that is spread over processes, without overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import LpPotential
from mirrormargin.geometry.norms import lp_norm, scaled_power_sum, widen
from mirrormargin.optim.shards import add_up, combine_largest, get_local, is_sharded
from mirrormargin.optim.tensor_batch import AnyBatch

__all__ = [
    "Wanted",
    "add_parts",
    "as_pairs",
    "clip_factors",
    "divide",
    "find_bad_gradient",
    "find_dual_exponent",
    "find_norms",
    "find_root_mean_squares",
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

    Where the norm of the whole group is wanted, each tensor gets that. Gradients that are spread
    over several processes take two reductions, whatever their number.
    """
    parts = [_measure(batch, want) for batch, want in zip(batches, wanted, strict=True)]
    is_wanted = any(want is not None for want in wanted)
    if is_wanted and any(is_sharded(owner) for batch in batches for owner in batch.owners):
        _gather_parts(batches, wanted, parts)
    measured = list(zip(batches, wanted, parts, strict=True))
    norms: list[Tensor | None] = []
    for _, members in groupby(measured, key=lambda one: one[0].number):
        norms += _combine(list(members))
    return norms


def _gather_parts(
    batches: Sequence[AnyBatch], wanted: Sequence[Wanted | None], parts: list[_Parts | None]
) -> None:
    """Replace m and s of the parts that are here by those of the whole tensors."""
    ours = [i for i, part in enumerate(parts) if part is not None]
    owners = [owner for i in ours for owner in batches[i].owners]
    if not any(map(is_sharded, owners)):
        return
    sizes = [len(batches[i].owners) for i in ours]
    found: Any = [(*parts[i], wanted[i][0]) for i in ours]  # pyright: ignore
    device = found[0][0].device
    largest = torch.cat([m.to(device, torch.float64) for m, _, _ in found])
    sums = torch.cat([s.to(device, torch.float64) for _, s, _ in found])
    exponents = torch.cat([torch.full_like(s.to(device, torch.float64), q) for _, s, q in found])
    largest, sums = add_parts(largest, sums, exponents, owners)
    for i, m, s in zip(ours, largest.split(sizes), sums.split(sizes), strict=True):
        parts[i] = m, s


def add_parts(
    largest: Tensor, sums: Tensor, exponents: Tensor | float, owners: Sequence[Tensor]
) -> _Parts:
    """m and s of whole tensors, from those of the parts that are here."""
    top = combine_largest(largest, owners)
    is_usual = (top > 0) & (top < math.inf)
    share = torch.where(is_usual, largest / top, 0.0)
    sums = add_up(torch.where(is_usual, sums * share**exponents, 0.0), owners)
    return top, torch.where(is_usual, sums, (top != 0).to(sums.dtype))


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
    if any(is_sharded(owner) for batch in batches for owner in batch.owners):
        raise OptimizerError(
            f"the dual norm of {potential!r} is not known for tensors that are spread over"
            ' processes: use step_rule="constant" without clip, or p instead of a potential'
        )

    def measure(tensors: list[Tensor]) -> Tensor:
        return torch.stack([widen(torch.as_tensor(potential.dual_norm(x))) for x in tensors])

    if not together:
        return [measure(batch.grads) for batch in batches]
    every = [grad for batch in batches for grad in batch.grads]
    if hasattr(potential, "dual_exponent"):  # sum_i psi(w_i) is a power of the norm of their norms
        norm = lp_norm(measure(every), potential.dual_exponent)
    else:
        norm = measure([torch.cat([grad.flatten() for grad in every])])
    return [norm.expand(len(batch.params)) for batch in batches]


def find_root_mean_squares(params: Sequence[Tensor]) -> list[float]:
    """The root mean square of each tensor; 1 where it has no entries, or is not finite.

    0 is said only of tensors that hold nothing but zeros.
    """
    if not params:
        return []
    parts = [scaled_power_sum(get_local(param.detach()), 2.0) for param in params]
    largest, sums = (
        torch.stack([part[k].to("cpu", torch.float64) for part in parts]) for k in (0, 1)
    )
    largest, sums = add_parts(largest, sums, 2.0, params)
    sizes = torch.tensor([param.numel() for param in params], dtype=torch.float64)
    found = largest * sums.sqrt() / sizes.clamp(min=1.0).sqrt()
    is_known = (found > 0) & (found < math.inf) | (largest == 0) & (sizes > 0)
    return torch.where(is_known, found, 1.0).tolist()


def find_bad_gradient(batches: Sequence[AnyBatch]) -> tuple[AnyBatch, Tensor] | None:
    """The first parameter, with its batch, whose gradient holds nan or inf and should not."""
    ours = [batch for batch in batches if batch.group["nonfinite"] != "propagate"]
    if not ours:
        return None
    pairs = [(batch, owner) for batch in ours for owner in batch.owners]
    flags = [float(not grad.isfinite().all()) for batch in ours for grad in batch.grads]
    own = torch.tensor(flags, dtype=torch.float64)
    found = combine_largest(own, [owner for _, owner in pairs])  # processes are asked once
    return next((pair for pair, is_bad in zip(pairs, found.tolist(), strict=True) if is_bad), None)


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
