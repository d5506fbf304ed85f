r"""Powers, norms and divergences of many float64 vectors at once, each with its own exponent.

    power_each       x -> sign(x) |x|^r
    norm_each        x -> |x|_r = m (sum_i (|x_i| / m)^r)^(1/r),   m = max |x_i|
    divergence_each  U, V -> D(U, V), the directional divergence of :mod:`divergence`

What a vector gives depends on its numbers alone, to the last bit: not on the vectors beside it,
their exponents, or how they lie in memory. NumPy does not promise that. Its power has a routine of
its own for a single exponent of 2 or 1/2, and others for strides and processors:
``test_a_batch_has_the_bits_of_its_vectors_alone``.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import ArrayLike, NDArray

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

__all__ = ["divergence_each", "norm_each", "power_each"]

Array = NDArray[np.float64]

_SOURCES = (*float64_loops.SOURCES, __file__)


def power_each(x: ArrayLike, exponents: ArrayLike) -> Array:
    """``sign(x_j) |x_j|^r_j`` for arrays x_j along the first axis, one exponent for each."""
    x = np.asarray(x, np.float64)
    rows = _to_rows(x, x.shape[:1])
    out = np.empty_like(rows)
    _powers.load()(rows, _to_numbers(exponents, x.shape[:1]), out)
    return out.reshape(x.shape)


def norm_each(x: ArrayLike, exponents: ArrayLike) -> Array:
    """The norms of vectors along the last axis, exponents broadcasting over the other axes.

    nan where an entry is nan, else inf where one is infinite.
    """
    x = np.asarray(x, np.float64)
    shape = x.shape[:-1]
    rows, out = _to_rows(x, shape), np.empty(shape)
    _norms.load()(rows, _to_numbers(exponents, shape), np.empty(x.shape[-1]), out.reshape(-1))
    return out


def divergence_each(targets: ArrayLike, iterates: ArrayLike, exponents: ArrayLike) -> Array:
    """D of vectors along the last axis; nan where one is zero or not finite.

    Targets and exponents broadcast over the other axes of the iterates.
    """
    V = np.asarray(iterates, np.float64)
    U = np.broadcast_to(np.asarray(targets, np.float64), V.shape)
    shape = V.shape[:-1]
    out, work = np.empty(shape), np.empty((4, V.shape[-1]))
    _divergences.load()(
        *(_to_rows(U, shape), _to_rows(V, shape), _to_numbers(exponents, shape)),
        *(work, out.reshape(-1)),
    )
    return out


def _to_rows(x: Array, shape: tuple[int, ...]) -> Array:
    """One contiguous row for each index of the leading axes."""
    count = math.prod(shape)
    return np.ascontiguousarray(x.reshape(count, x.size // max(count, 1)))


def _to_numbers(exponents: ArrayLike, shape: tuple[int, ...]) -> Array:
    return np.array(np.broadcast_to(exponents, shape), np.float64).reshape(-1)


def _make_powers(version: int) -> Callable[..., Any]:
    def powers(rows, exponents, out):
        _ = version
        for j in range(len(rows)):
            r = exponents[j]
            if r == 0.5 or r == 1.0 or r == 2.0:
                signed_powers(rows[j], r, out[j])
            else:
                for i in range(rows.shape[1]):
                    out[j, i] = math.copysign(_power(abs(rows[j, i]), r), rows[j, i])

    return powers


@leaf
def _power(x, r):
    """x^r to the last digit, unlike the faster one of :func:`signed_powers`."""
    keep_apart()  # entries side by side in a vector might get another routine than one alone
    return math.pow(x, r)


def _make_norms(version: int) -> Callable[..., Any]:
    def norms(rows, exponents, work, out):
        _ = version
        for j in range(len(rows)):
            out[j] = _norm(rows[j], exponents[j], work)

    return norms


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
    def divergences(targets, iterates, exponents, work, out):
        _ = version
        for j in range(len(iterates)):
            out[j] = _divergence(targets[j], iterates[j], exponents[j], work)

    return divergences


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
_powers = CompiledFunction(_make_powers, types.void(_rows, _numbers, _matrix), _SOURCES)
_norms = CompiledFunction(_make_norms, types.void(_rows, _numbers, _vector, _vector), _SOURCES)
_divergences = CompiledFunction(
    _make_divergences, types.void(_rows, _rows, _numbers, _matrix, _vector), _SOURCES
)
