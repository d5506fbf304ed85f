r"""Weights that a sparsity schedule has removed: a mask that is part of the optimizer's state.

    w = c + mask * to_primal(u)

``state["mask"]`` is False where a weight is removed. What becomes of the u of such a weight is the
option ``removed`` of its group, which :class:`mirrormargin.SparsitySchedule` sets:

    forgotten   u = 0, and its gradient counts as 0: nothing of it moves until it returns, from 0
    clipped     u goes on, and the weight returns at the size of the smallest one that is left
    decayed     u goes on, and is halved at each ranking
    kept        u goes on, and the weight returns at full size

A forgotten weight needs nothing in the arithmetic of a step: with no gradient, and with averages
that began at 0 again, u stays 0 to the bit. The other ways hide the weight after each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

__all__ = ["MASK", "REMOVED", "Removed", "forgets_weights", "hides_weights"]

MASK = "mask"
Removed = Literal["forgotten", "clipped", "decayed", "kept"]
REMOVED: tuple[Removed, ...] = get_args(Removed)


def forgets_weights(group: Mapping[str, Any]) -> bool:
    """Whether removed weights of the group stand still."""
    return group.get("removed") == "forgotten"


def hides_weights(group: Mapping[str, Any]) -> bool:
    """Whether the u of removed weights goes on behind them."""
    return group.get("removed") not in (None, "forgotten")
