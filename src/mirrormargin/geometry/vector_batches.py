r"""Powers, norms and divergences of many float64 vectors at once, each with its own exponent.

    power_each       x -> sign(x) |x|^r
    norm_each        x -> |x|_r = m (sum_i (|x_i| / m)^r)^(1/r),   m = max |x_i|
    divergence_each  U, V -> D(U, V), see :func:`~mirrormargin.directional_divergence`

What a vector gives depends on its numbers alone, to the last bit: not on the vectors beside it,
their exponents, or how they lie in memory. NumPy does not promise that. Its power has a routine of
its own for a single exponent of 2 or 1/2, and others for strides and processors:
``test_a_batch_has_the_bits_of_its_vectors_alone``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.geometry.compiler import has_numba
from mirrormargin.geometry.norms import bregman_terms, lp_norm, signed_power

__all__ = ["divergence_each", "norm_each", "power_each"]

Array = NDArray[np.float64]

BLOCK = 4_000_000  # numbers at a time


def power_each(x: ArrayLike, exponents: ArrayLike) -> Array:
    """``sign(x_j) |x_j|^r_j`` for arrays x_j along the first axis, one exponent for each."""
    x = np.asarray(x, np.float64)
    rows, r = _to_rows(x, x.shape[:1]), _to_numbers(exponents, x.shape[:1])
    out = np.empty_like(rows)
    if has_numba():
        _loops().powers.load()(rows, r, out)
    else:
        for r_j, which in _group(r):
            out[which] = signed_power(rows[which], r_j)
    return out.reshape(x.shape)


def norm_each(x: ArrayLike, exponents: ArrayLike, axes: int = 1) -> Array:
    """The norms of vectors along the last axes, exponents broadcasting over the others.

    Args:
        x: The vectors; nan where an entry is nan, else inf where one is infinite.
        exponents: One, or one for each vector.
        axes: How many axes are those of a vector: 2 for the norms of matrices.
    """
    x = np.asarray(x, np.float64)
    shape = x.shape[: x.ndim - axes]
    rows, r = _to_rows(x, shape), _to_numbers(exponents, shape)
    out = np.empty(len(rows))
    if has_numba():
        _loops().norms.load()(rows, r, np.empty(rows.shape[1]), out)
    else:
        for r_j, which in _group(r):
            out[which] = lp_norm(rows[which], r_j, axis=1)
    return out.reshape(shape)


def divergence_each(
    targets: ArrayLike, iterates: ArrayLike, exponents: ArrayLike, axes: int = 1
) -> Array:
    """D of vectors along the last axes, as in :func:`norm_each`; nan where one has no direction.

    Targets, iterates and exponents broadcast over the other axes.
    """
    U, V = np.broadcast_arrays(np.asarray(targets, np.float64), np.asarray(iterates, np.float64))
    shape = V.shape[: V.ndim - axes]
    if V.size > BLOCK and shape:  # for what is broadcast is copied
        each = zip(U, V, np.broadcast_to(exponents, shape), strict=True)
        return np.stack([divergence_each(*one, axes) for one in each])
    u, v, p = _to_rows(U, shape), _to_rows(V, shape), _to_numbers(exponents, shape)
    out = np.empty(len(v))
    if has_numba():
        _loops().divergences.load()(u, v, p, np.empty((4, v.shape[1])), out)
    else:
        for p_j, which in _group(p):
            out[which] = _find_divergences(u[which], v[which], p_j)
    return out.reshape(shape)


def _find_divergences(u: Array, v: Array, p: float) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        u = u / lp_norm(u, p, axis=1)[:, None]
        v = v / lp_norm(v, p, axis=1)[:, None]
        return np.maximum(bregman_terms(u, v, p).sum(axis=1), 0.0)


def _loops() -> Any:
    from mirrormargin.geometry import compiled_vector_batches  # Numba is slow to import

    return compiled_vector_batches


def _group(exponents: Array) -> list[tuple[float, NDArray[np.bool_]]]:
    """Each exponent, and which vectors have it."""
    return [(float(r), exponents == r) for r in np.unique(exponents)]


def _to_rows(x: Array, shape: tuple[int, ...]) -> Array:
    """One contiguous row for each index of the leading axes."""
    return np.ascontiguousarray(x.reshape(math.prod(shape), math.prod(x.shape[len(shape) :])))


def _to_numbers(exponents: ArrayLike, shape: tuple[int, ...]) -> Array:
    numbers = np.empty(shape)
    numbers[...] = exponents
    return numbers.reshape(-1)
