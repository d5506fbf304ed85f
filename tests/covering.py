"""A part of a full product in which all values still meet each other.

A fault that needs one value of each of two options, say a path and a dtype, shows in any set of
cases where every two values meet; one that needs three values, where every three do. Such a set is
many times smaller than the product. The default run tries it, the slow tests every third of the
rest, and ``make test-exhaustive`` all.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

EVERY = 3


def cover(cases: Sequence[Any], options: Sequence[tuple], strength: int) -> list[Any]:
    """Mark as slow, and most as exhaustive, the cases that are not needed for values to meet.

    Args:
        cases: What ``pytest.param`` gave.
        options: The values of the options of each case, as many for every case.
        strength: How many values meet: 2 or 3.
    """
    needed, met = set(), set()
    order = list(range(len(cases)))
    # In the order of the product neighbours differ in one value, and more of them would be kept.
    random.Random(0).shuffle(order)
    for index in order:
        new = set(itertools.combinations(enumerate(options[index]), strength)) - met
        if new:
            needed.add(index)
            met |= new
    return [
        case if index in needed else pytest.param(*case.values, id=case.id, marks=_mark(index))
        for index, case in enumerate(cases)
    ]


def _mark(index: int) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.slow, pytest.mark.exhaustive)[: 1 + (index % EVERY > 0)]
