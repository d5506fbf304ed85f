"""The compiled loops of :mod:`batched`: one vector after the other, with its own exponent."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from mirrormargin.geometry import float64_loops
from mirrormargin.geometry.compiler import CompiledFunction
from mirrormargin.geometry.float64_loops import (
    absolute_sum,
    add_up,
    keep_apart,
    largest,
    leaf,
    power_sum,
    signed_powers,
)

__all__ = ["divergences", "norms", "powers"]

_SOURCES = (*float64_loops.SOURCES, __file__)


def _make_powers(version: int) -> Callable[..., Any]:
    def run(rows, exponents, out):
        _ = version
        for j in range(len(rows)):
            r = exponents[j]
            if r == 0.5 or r == 1.0 or r == 2.0:
                signed_powers(rows[j], r, out[j])
            else:
                for i in range(rows.shape[1]):
                    out[j, i] = math.copysign(_power(abs(rows[j, i]), r), rows[j, i])

    return run


@leaf
def _power(x, r):
    """x^r to the last digit, unlike the faster one of :func:`signed_powers`."""
    keep_apart()  # entries side by side in a vector might get another routine than one alone
    return math.pow(x, r)


def _make_norms(version: int) -> Callable[..., Any]:
    def run(rows, exponents, work, out):
        _ = version
        for j in range(len(rows)):
            out[j] = _norm(rows[j], exponents[j], work)

    return run


@leaf
def _norm(x, r, work):
    if np.isnan(absolute_sum(x)):
        return np.nan
    top = largest(x)
    if not 0.0 < top < np.inf:
        return top
    for i in range(len(x)):
        work[i] = x[i] / top  # 1 / top may overflow
    return top * power_sum(work, 1.0, r, work) ** (1.0 / r)


def _make_divergences(version: int) -> Callable[..., Any]:
    def run(targets, iterates, exponents, work, out):
        _ = version
        for j in range(len(iterates)):
            out[j] = _divergence(targets[j], iterates[j], exponents[j], work)

    return run


@leaf
def _divergence(U, V, p, work):
    u, v, dual_u, dual_v = work[0], work[1], work[2], work[3]
    size_u, size_v = _norm(U, p, u), _norm(V, p, v)
    if not (0.0 < size_u < np.inf and 0.0 < size_v < np.inf):
        return np.nan
    for i in range(len(U)):
        u[i] = U[i] / size_u
        v[i] = V[i] / size_v
    signed_powers(u, p - 1.0, dual_u)
    signed_powers(v, p - 1.0, dual_v)
    # |u|^p / p + |v|^p (p-1)/p - v^(p-1) u is at least 0 for each entry (Young): large entries
    # cannot drown small ones. Where u and v are close, so is what rounding does to their powers.
    for i in range(len(U)):
        u[i] = dual_u[i] * u[i] / p + dual_v[i] * v[i] * ((p - 1.0) / p) - dual_v[i] * u[i]
    return max(add_up(u), 0.0)


_vector, _matrix = types.float64[::1], types.float64[:, ::1]
# What is only read may be read-only, as the arrays of a problem are.
_numbers, _rows = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
powers = CompiledFunction(_make_powers, types.void(_rows, _numbers, _matrix), _SOURCES)
norms = CompiledFunction(_make_norms, types.void(_rows, _numbers, _vector, _vector), _SOURCES)
divergences = CompiledFunction(
    _make_divergences, types.void(_rows, _rows, _numbers, _matrix, _vector), _SOURCES
)
