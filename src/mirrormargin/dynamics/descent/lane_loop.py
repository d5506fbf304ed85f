r"""The compiled training loop of eight runs at once, one in each lane of the vectors.

    u <- u - step G,    w <- sign(u) |u|^(1/(p-1)),    step = lr  or  lr / (|G|_q + eps)

A lane computes the bits of :mod:`training_loop`, whoever its neighbours are; a run that ends before
them stays where it is. The runs of a group share their exponent, which chooses between ways of
computing powers, and may differ in all else: problem, rate, steps.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from mirrormargin.attention import compiled_lanes as attention
from mirrormargin.attention.compiled import Data
from mirrormargin.attention.compiled_lanes import (
    LaneMemory,
    find_weights,
    pull_back,
    push_forward,
)
from mirrormargin.dynamics.descent.record import RULES, End
from mirrormargin.dynamics.descent.training_loop import MEMORY, NUMBERS, SOURCES
from mirrormargin.geometry.compiler import CompiledFunction
from mirrormargin.geometry.float32_memory import inlined
from mirrormargin.geometry.float64_loops import (
    compiled,
    exponentials,
    raise_all,
    signed_powers,
)
from mirrormargin.geometry.lanes import (
    LANES,
    any_of,
    load,
    make_lists,
    select,
    splat,
    store,
)

__all__ = ["LaneTensors", "advance_lanes", "allocate_tensors"]

_CONSTANT = RULES["constant"]
_P, _LR, _EPS = (NUMBERS.index(name) for name in ("p", "lr", "eps"))
_RUNNING, _ZERO, _DIVERGED = (float(end) for end in (End.RUNNING, End.ZERO_GRADIENT, End.DIVERGED))


class LaneTensors(NamedTuple):
    """Lists of vectors: duals, weights, gradients and one to work in, (d, d) each, and a row."""

    u: NDArray[np.float64]
    w: NDArray[np.float64]
    G: NDArray[np.float64]
    spare: NDArray[np.float64]
    row: NDArray[np.float64]


def allocate_tensors(d: int) -> LaneTensors:
    """Tensors for eight runs in d dimensions."""
    return LaneTensors(*make_lists(*(d * d,) * 4, 3))


def _make_loop(version: int) -> Callable[..., Any]:
    def follow(groups, codes, step, targets, end, numbers, which, data, u, w, tensors, memory, one):
        """Take the runs of each group, (G, 8), to their targets; -1 stands for no run."""
        _ = version
        n, T, d = data.X.shape[1], data.X.shape[2], data.Xt.shape[2]
        for g in range(len(groups)):
            group = groups[g]
            _gather(group, which, data, u, w, memory, tensors)
            _follow(group, codes, step, targets, end, numbers, n, T, d, tensors, memory, one)
            _scatter(group, u, w, d, tensors)

    return follow


@compiled
def _gather(group, which, data, u, w, memory, tensors):
    """Fill the lanes; empty ones repeat the first run."""
    n, T, d = data.X.shape[1], data.X.shape[2], data.Xt.shape[2]
    duals, weights = tensors.u, tensors.w
    for lane in range(LANES):
        run = group[lane] if group[lane] >= 0 else group[0]
        problem = which[run]
        for i in range(n):
            for t in range(T):
                j = (i * T + t) * d
                for b in range(d):
                    memory.X[(j + b) * LANES + lane] = data.X[problem, i, t, b]
                memory.scores[(i * T + t) * LANES + lane] = data.scores[problem, i, t]
            for b in range(d):
                memory.z[(i * d + b) * LANES + lane] = data.z[problem, i, b]
        for a in range(d):
            for b in range(d):
                duals[(a * d + b) * LANES + lane] = u[run, a, b]
                weights[(a * d + b) * LANES + lane] = w[run, a, b]


@compiled
def _scatter(group, u, w, d, tensors):
    duals, weights = tensors.u, tensors.w
    for lane in range(LANES):
        run = group[lane]
        if run >= 0:
            for a in range(d):
                for b in range(d):
                    u[run, a, b] = duals[(a * d + b) * LANES + lane]
                    w[run, a, b] = weights[(a * d + b) * LANES + lane]


@compiled
def _follow(group, codes, step, targets, end, numbers, n, T, d, tensors, memory, one):
    rule, loss = codes[1], codes[2]
    p = numbers[group[0], _P]
    u, w, G, spare, row = tensors.u, tensors.w, tensors.G, tensors.spare, tensors.row
    zero = splat(0.0)
    rates, softener, left, ends = _read_runs(group, step, targets, numbers, row)
    active = left > zero
    while any_of(active):
        push_forward(w, n, T, d, memory)
        log_scale = find_weights(n, T, active, loss, memory, one)
        pull_back(G, n, T, d, memory)
        total, top = _measure(G, d)
        is_finite = total < splat(np.inf)
        ends = select(active & (total == zero), splat(_ZERO), ends)
        ends = select(active & ~is_finite, splat(_DIVERGED), ends)
        active = active & is_finite & (total > zero)
        if rule == _CONSTANT:
            lengths = rates * _raise_e(log_scale, row)
        else:
            q = p / (p - 1.0)
            norm = top * _find_root(_sum_powers(G, splat(1.0) / top, q, d, spare), 1.0 / q, row)
            if any_of(softener > zero):
                norm = norm + softener * _raise_e(zero - log_scale, row)
            lengths = rates / norm
        can_move = lengths < splat(np.inf)
        ends = select(active & ~can_move, splat(_DIVERGED), ends)
        active = active & can_move
        _move(u, w, G, lengths, active, p, d, spare)
        left = left - select(active, splat(1.0), zero)
        active = active & (left > zero)
    total, _top = _measure(w, d)
    is_lost = (ends == splat(_RUNNING)) & ~(total < splat(np.inf))
    ends = select(is_lost, splat(_DIVERGED), ends)
    store(row, 0, ends)
    store(row, 1, left)
    for lane in range(LANES):
        run = group[lane]
        if run >= 0:
            end[run] = np.int64(row[lane])
            step[run] = targets[run] - np.int64(row[LANES + lane])


@compiled
def _read_runs(group, step, targets, numbers, row):
    """Rates, eps, steps to take and ends of a group."""
    for lane in range(LANES):
        run = group[lane] if group[lane] >= 0 else group[0]
        row[lane] = numbers[run, _LR]
        row[LANES + lane] = numbers[run, _EPS]
        row[2 * LANES + lane] = targets[run] - step[run]
    return load(row, 0), load(row, 1), load(row, 2), splat(_RUNNING)


@compiled
def _measure(G, d):
    """``sum |G|``, not finite if an entry is not, and ``max |G|``."""
    # In the order of absolute_sum, where rows are padded with zeros: four sums, by the column.
    a, b, c, e = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    top = splat(0.0)
    for k in range(d):
        stop = (k + 1) * d
        for j in range(k * d, stop, 4):
            x, y = _size(G, j, stop), _size(G, j + 1, stop)
            z, last = _size(G, j + 2, stop), _size(G, j + 3, stop)
            a, b, c, e = a + x, b + y, c + z, e + last
            top = _larger(top, _larger(_larger(x, y), _larger(z, last)))
    return (a + b) + (c + e), top


@inlined
def _size(G, j, stop):
    return abs(load(G, j)) if j < stop else splat(0.0)


@inlined
def _larger(a, b):
    return select(b > a, b, a)


@compiled
def _sum_powers(G, factor, r, d, spare):
    """``sum (factor |G|)^r``."""
    for j in range(d * d):
        store(spare, j, factor * abs(load(G, j)))
    raise_all(spare, r)
    return _measure(spare, d)[0]


@compiled
def _find_root(x, r, row):
    store(row, 0, x)
    signed_powers(row[:LANES], r, row[LANES : 2 * LANES])
    return load(row, 1)


@compiled
def _raise_e(x, row):
    store(row, 0, x)
    exponentials(row[:LANES], row[LANES : 2 * LANES])
    return load(row, 1)


@compiled
def _move(u, w, G, lengths, active, p, d, spare):
    r = 1.0 / (p - 1.0)
    for j in range(d * d):
        before = load(u, j)
        after = select(active, before - lengths * load(G, j), before)
        store(u, j, after)
        if r == 1.0:
            store(w, j, after)
    if r == 1.0:
        return
    if not any_of(~active):
        signed_powers(u, r, w)
        return
    signed_powers(u, r, spare)
    for j in range(d * d):
        store(w, j, select(active, load(spare, j), load(w, j)))


_real, _whole = types.float64, types.int64
_vector, _matrix, _stack = _real[::1], _real[:, ::1], _real[:, :, ::1]
_pile, _counts = types.Array(_real, 4, "C"), _whole[::1]
_data = types.NamedTuple((_pile, _pile, _stack, _stack, _matrix), Data)
_SIGNATURE = types.void(
    *(_whole[:, ::1], _counts, _counts, _counts, _counts, _matrix, _counts, _data, _stack, _stack),
    types.NamedUniTuple(_vector, len(LaneTensors._fields), LaneTensors),
    types.NamedUniTuple(_vector, len(LaneMemory._fields), LaneMemory),
    MEMORY,
)

_SOURCES = (*attention.SOURCES, *SOURCES, __file__)
advance_lanes = CompiledFunction(_make_loop, _SIGNATURE, _SOURCES)
