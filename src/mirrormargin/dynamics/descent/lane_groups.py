"""Which runs are trained together, in the lanes of vectors, and which one after the other.

This is a matter of speed alone: a run has the same bits either way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.descent.record import MODES, RULES
from mirrormargin.geometry.lanes import LANES

__all__ = ["find_least_group", "form_groups"]

Indices = NDArray[np.int64]


def find_least_group(mode: int, rule: int, n: int, T: int, d: int) -> int:
    """How many runs take as long one after the other as all lanes at once; more than there are
    lanes if they are not worth it, or not made for such runs.

    A step of one run stays in the first cache longer than a step of eight. Measured from 1.05 to
    4 times the speed with eight runs, over sizes and exponents.
    """
    if mode != MODES["W"] or rule == RULES["polyak"]:
        return LANES + 1
    vectors = n * T * d + 4 * d * d  # that a step reads and writes, most of them
    return 4 + vectors // 2048


def form_groups(
    runs: Indices, exponents: NDArray[np.float64], least: int, threads: int
) -> tuple[Indices, Indices]:
    """Groups of runs with the same exponent, (G, 8), -1 standing for none; and all other runs.

    Args:
        runs: Indices of runs.
        exponents: The p of each.
        least: How many runs make a group worth it.
        threads: How many share the work.
    """
    # With few runs, every thread gets a part.
    width = min(LANES, -(-len(runs) // threads))
    if width < least:
        return np.zeros((0, LANES), np.int64), runs
    groups, others = [], []
    for p in np.unique(exponents):
        same = runs[exponents == p]
        whole = len(same) // width * width
        some = same[:whole].reshape(-1, width)
        rest = same[whole:]
        if len(rest) >= least:
            some = np.vstack([some, np.pad(rest, (0, width - len(rest)), constant_values=-1)])
        else:
            others.append(rest)
        groups.append(np.pad(some, ((0, 0), (0, LANES - width)), constant_values=-1))
    return np.concatenate(groups), np.concatenate([*others, runs[:0]])
