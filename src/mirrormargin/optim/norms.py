r"""The norms that step rules divide by: all norms of a step, in one function.

    normalized:           ||g||_q of each tensor, or of its whole group
    polyak:               ||g||_2 of the group, or ||g||_q with polyak="dual_norm"

with 1/p + 1/q = 1. Each comes from two parts of every tensor, m = max |g| and s = sum (|g| / m)^q,
which combine over tensors without overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from mirrormargin.geometry import LpPotential
from mirrormargin.optim.batch import Batch

__all__ = ["find_norms", "invert"]

_Parts = tuple[np.ndarray, np.ndarray]


def find_norms(batches: Sequence[Batch]) -> list[list[float]]:
    """For each batch the norm that its step rule asks for, of every gradient.

    Where the rule asks for the norm of the whole group, each tensor gets that; where it asks for
    none, the list is empty. The parts of all tensors are known before any norm is made of them:
    gradients that are spread over several processes need a single reduction in between.
    """
    measured = [(batch, _measure(batch)) for batch in batches]
    norms: list[list[float]] = []
    for _, members in groupby(measured, key=lambda pair: pair[0].number):
        norms += _combine(list(members))
    return norms


def _measure(batch: Batch) -> _Parts | None:
    """m and s of each gradient; None where no norm is asked for, or it is not made of those."""
    exponent = _find_exponent(batch)
    return None if exponent is None else batch.path.scaled_power_sums(batch.grads, exponent)


def _find_exponent(batch: Batch) -> float | None:
    rule = batch.group["step_rule"]
    if rule == "polyak" and batch.group["polyak"] == "bregman":
        return 2.0
    if rule == "constant" or not isinstance(batch.potential, LpPotential):
        return None
    return batch.potential.dual_exponent


def _combine(measured: list[tuple[Batch, _Parts | None]]) -> list[list[float]]:
    """The norms of one group, batch by batch."""
    batches = [batch for batch, _ in measured]
    parts = [part for _, part in measured if part is not None]
    group, exponent = batches[0].group, _find_exponent(batches[0])
    if group["step_rule"] == "constant":
        return [[] for _ in batches]
    together = group["step_rule"] == "polyak" or group["norm_over"] == "group"
    if exponent is None:
        return _measure_by_potential(batches, together)
    if not together:
        return [
            [float(m * s ** (1 / exponent)) for m, s in zip(largest, sums, strict=True)]
            for largest, sums in parts
        ]
    largest, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    top = norm = float(np.max(largest))
    if 0 < top < math.inf:
        norm = top * float(np.sum(sums * (largest / top) ** exponent)) ** (1 / exponent)
    return [[norm] * len(batch.params) for batch in batches]


def _measure_by_potential(batches: list[Batch], together: bool) -> list[list[float]]:
    """The same by the ``dual_norm`` of a potential that has its own."""
    potential: Any = batches[0].potential
    if not together:
        return [[float(potential.dual_norm(grad)) for grad in b.grads] for b in batches]
    everything = torch.cat([grad.flatten() for batch in batches for grad in batch.grads])
    norm = float(potential.dual_norm(everything))
    return [[norm] * len(batch.params) for batch in batches]


def invert(norm: float) -> tuple[float, float]:
    """1 / norm as two factors; 0 for a zero gradient, which makes no step.

    One factor would overflow for denormal gradients. Pinned by
    ``test_a_normalized_step_has_dual_length_lr``.
    """
    if norm == 0:
        return 1.0, 0.0
    return (1.0, 1 / norm) if norm > _TINY else (1 / _TINY, _TINY / norm)


_TINY = 2.0**-100
