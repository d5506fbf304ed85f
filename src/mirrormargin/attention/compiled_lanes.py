r"""The scaled gradients of eight problems at once, one in each lane: the bits of :mod:`compiled`.

    Y_i = W z_i,   a_i = X_i Y_i,   c_i = dL / da_i,   H_i = X_i' c_i,   G = sum_i H_i z_i'

Every sum is added up in the order of the loop for one problem, by fma where that has it and nowhere
else. Nothing is padded: tokens X are (n, T, d) vectors, queries z (n, d), W and G, transposed as
there, (d, d).
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import compiled as single
from mirrormargin.attention.compiled import (
    DEEP,
    EXPONENTIAL,
    LARGE,
    LOGISTIC,
    SMALL,
    find_scaled_weights,
)
from mirrormargin.geometry import lanes
from mirrormargin.geometry.float64_loops import compiled, exponentials
from mirrormargin.geometry.lanes import (
    LANES,
    any_of,
    load,
    make_lists,
    multiply,
    select,
    splat,
    store,
)

__all__ = ["SOURCES", "LaneMemory", "allocate_lanes", "find_weights", "pull_back", "push_forward"]

SOURCES = (*single.SOURCES, *lanes.SOURCES, __file__)

Array = NDArray[np.float64]


class LaneMemory(NamedTuple):
    """Eight problems, and what the loops over them work in: lists of vectors.

    Attributes:
        X: Tokens, (n, T, d).
        z: Queries, (n, d).
        scores: gamma, (n, T).
        Y: W z, and then X' c, (n, d).
        gaps, below, s, arguments: As of one problem, (n, T). Logits become gaps.
        c: Weights, and then c, (n, T).
        bests: Scores of the most attended tokens, (n,).
        margins, totals, inverses, slopes, exponents: (n,).
    """

    X: Array
    z: Array
    scores: Array
    Y: Array
    gaps: Array
    below: Array
    s: Array
    arguments: Array
    c: Array
    bests: Array
    margins: Array
    totals: Array
    inverses: Array
    slopes: Array
    exponents: Array


def allocate_lanes(n: int, T: int, d: int) -> LaneMemory:
    """Memory for problems of this shape."""
    tables = dict.fromkeys(("scores", "gaps", "below", "s", "arguments", "c"), n * T)
    sizes = {"X": n * T * d, "z": n * d, "Y": n * d, **tables}
    return LaneMemory(*make_lists(*(sizes.get(name, n) for name in LaneMemory._fields)))


@compiled
def push_forward(Wt, n, T, d, memory):
    """Fill Y and the logits."""
    X, Y, logits = memory.X.ctypes.data, memory.Y.ctypes.data, memory.gaps.ctypes.data
    multiply(memory.z.ctypes.data, d, 1, Wt.ctypes.data, 1, d, Y, n, d, d)
    for i in range(n):
        at = 8 * LANES * i
        multiply(Y + at * d, 0, 1, X + at * T * d, d, 1, logits + at * T, 1, T, d)


@compiled
def find_weights(n, T, active, loss, memory, one):
    """Fill attention s and ``c = dL / da`` times ``exp(-log_scale)``; returns the log-scale.

    Args:
        n, T: Shape of the problems.
        active: Which lanes count: others get any numbers.
        loss: Its code.
        memory: Of the lanes.
        one: Memory of one problem, for the rare lane whose weights leave floating point.
    """
    m = memory
    shift = _find_gaps(n, T, m)
    zero = splat(0.0)
    is_shifted = any_of(shift < zero)
    if is_shifted:
        _shift_gaps(n, T, shift, m)
        exponentials(m.arguments, m.c)
        store(m.exponents, 0, shift)
        exponentials(m.exponents[:LANES], m.slopes[:LANES])
        small = load(m.slopes, 0)
    else:
        exponentials(m.gaps, m.c)
        small = splat(1.0)
    for i in range(n):
        total, drop = zero, zero
        for t in range(T):
            j = i * T + t
            weight, below = load(m.c, j), load(m.below, j)
            s = select(below != zero, weight * small, weight)
            store(m.s, j, s)
            total = total + s
            drop = drop + s * below
        store(m.totals, i, total)
        inverse = splat(1.0) / total
        store(m.inverses, i, inverse)
        store(m.margins, i, load(m.bests, i) - drop * inverse)
    _find_slopes(n, loss, m)
    biggest = zero
    for i in range(n):
        inverse = load(m.inverses, i)
        factor = load(m.slopes, i) * inverse / splat(float(n))
        weighted = zero
        for t in range(T):
            j = i * T + t
            c = factor * load(m.c, j) * load(m.below, j)
            store(m.c, j, c)
            weighted = weighted + c
            biggest = select(abs(c) > biggest, abs(c), biggest)
        for t in range(T):
            j = i * T + t
            s = load(m.s, j) * inverse
            store(m.s, j, s)
            store(m.c, j, load(m.c, j) - s * weighted)
    is_usual = (biggest > splat(SMALL)) & (biggest < splat(LARGE))
    if any_of(active & ~is_usual):
        shift = _find_scaled_lanes(n, T, shift, active & ~is_usual, loss, m, one)
    return shift


@compiled
def _find_gaps(n, T, m):
    """Turn logits into gaps <= 0, and fill ``below``; returns what to take out of the exponents."""
    zero = splat(0.0)
    nearest = splat(-np.inf)
    for i in range(n):
        top, best = load(m.gaps, i * T), load(m.scores, i * T)
        for t in range(1, T):
            logit = load(m.gaps, i * T + t)
            is_higher = logit > top
            best = select(is_higher, load(m.scores, i * T + t), best)
            top = select(is_higher, logit, top)
        store(m.bests, i, best)
        for t in range(T):
            j = i * T + t
            gap, below = load(m.gaps, j) - top, best - load(m.scores, j)
            store(m.gaps, j, gap)
            store(m.below, j, below)
            nearest = select((below != zero) & (gap > nearest), gap, nearest)
    is_deep = (nearest > splat(-np.inf)) & (nearest < splat(DEEP))
    return select(is_deep, nearest, zero)


@compiled
def _shift_gaps(n, T, shift, m):
    for j in range(n * T):
        gap = load(m.gaps, j)
        store(m.arguments, j, select(load(m.below, j) != splat(0.0), gap - shift, gap))


@compiled
def _find_slopes(n, loss, m):
    """-loss'(margin)."""
    zero, one = splat(0.0), splat(1.0)
    if loss == LOGISTIC:
        for i in range(n):
            store(m.exponents, i, zero - abs(load(m.margins, i)))
        exponentials(m.exponents, m.slopes)
        for i in range(n):
            e = load(m.slopes, i)
            store(m.slopes, i, select(load(m.margins, i) > zero, e, one) / (one + e))
    elif loss == EXPONENTIAL:
        for i in range(n):
            store(m.exponents, i, zero - load(m.margins, i))
        exponentials(m.exponents, m.slopes)
    else:
        for i in range(n):
            store(m.slopes, i, one)


@compiled
def _find_scaled_lanes(n, T, shift, chosen, loss, m, one):
    """Weights of the chosen lanes, one by one, by the loop for one problem; returns log-scales."""
    # In slopes, which nobody needs any more.
    store(m.slopes, 0, select(chosen, splat(1.0), splat(0.0)))
    for lane in range(LANES):
        if m.slopes[lane] == 0.0:
            continue
        for i in range(n):
            one.margins[i], one.totals[i] = m.margins[i * LANES + lane], m.totals[i * LANES + lane]
            for t in range(T):
                j = (i * T + t) * LANES + lane
                one.gaps[i, t], one.below[i, t], one.s[i, t] = m.gaps[j], m.below[j], m.s[j]
        m.slopes[lane] = find_scaled_weights(n, T, one, loss)
        for i in range(n):
            for t in range(T):
                m.c[(i * T + t) * LANES + lane] = one.c[i, t]
    return select(chosen, load(m.slopes, 0), shift)


@compiled
def pull_back(Gt, n, T, d, memory):
    """Fill H, and the transpose of G, from c."""
    c, X, H = memory.c.ctypes.data, memory.X.ctypes.data, memory.Y.ctypes.data
    for i in range(n):
        at = 8 * LANES * i
        multiply(c + at * T, 0, 1, X + at * T * d, 1, d, H + at * d, 1, d, T)
    multiply(memory.z.ctypes.data, 1, d, H, 1, d, Gt.ctypes.data, d, d, n)
