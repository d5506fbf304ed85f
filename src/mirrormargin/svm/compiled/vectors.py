r"""The loops of the compiled interior point, each compiled once.

All of them run over contiguous memory, and add in a fixed order, on every thread:

    add_rows: c -> sum_k c_k R_k,    map_power: x -> sign(x) |x|^(e-1),    norm: x -> |x|_e, ...

They are kept out of line: inlined at each of their calls they take a minute to compile, and run no
faster. For the same reason no number is passed as a literal integer, for which Numba would compile
a function again.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import numpy as np

from mirrormargin.geometry import float64_loops
from mirrormargin.geometry.float64_loops import compiled, keep_apart

__all__ = [
    "SOURCES",
    "add",
    "add_rows",
    "barrier",
    "combine",
    "fill",
    "largest",
    "least",
    "longest",
    "map_power",
    "norm",
    "power_sum",
    "put",
    "total",
]

SOURCES = (*float64_loops.SOURCES, __file__)

TO_THE_BOUNDARY = 0.995


@compiled
def add_rows(c, first, R, last, out):
    """``out[:last] = sum_k c_k R[k, :last]`` over the rows from ``first`` on."""
    keep_apart()
    for j in range(last):
        out[j] = 0.0
    k = first
    while k + 4 <= len(R):
        # Four rows at a time: out is read and written once for all of them.
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        r0, r1, r2, r3 = R[k], R[k + 1], R[k + 2], R[k + 3]
        for j in range(last):
            out[j] += (c0 * r0[j] + c1 * r1[j]) + (c2 * r2[j] + c3 * r3[j])
        k += 4
    while k < len(R):
        c0, r0 = c[k], R[k]
        for j in range(last):
            out[j] += c0 * r0[j]
        k += 1


@compiled
def combine(c, R, out):
    """``out = R' c``: for A this is ``A' lam``, for its transpose ``A w``."""
    add_rows(c, np.int64(0), R, R.shape[1], out)


@compiled
def add(t, x, out):
    """``out += t x``."""
    keep_apart()
    for j in range(len(out)):
        out[j] += t * x[j]


@compiled
def fill(value, out):
    keep_apart()
    for j in range(len(out)):
        out[j] = value


@compiled
def put(t, x, out):
    """``out = t x``."""
    keep_apart()
    for j in range(len(out)):
        out[j] = t * x[j]


@compiled
def total(x):
    keep_apart()
    value = 0.0
    for j in range(len(x)):
        value += x[j]
    return value


@compiled
def largest(x):
    """The largest absolute value; nan if an entry is."""
    keep_apart()
    value = 0.0
    for j in range(len(x)):
        size = abs(x[j])
        if not size <= value:
            if np.isnan(size):
                return size
            value = size
    return value


@compiled
def least(x):
    """The least entry; nan if an entry is."""
    keep_apart()
    value = np.inf
    for k in range(len(x)):
        if not x[k] >= value:
            if np.isnan(x[k]):
                return x[k]
            value = x[k]
    return value


@compiled
def longest(x, dx):
    """How far x may go along dx, at most 1, and stay positive."""
    keep_apart()
    steepest = 0.0
    for k in range(len(x)):
        steepest = max(steepest, -dx[k] / x[k])
    return 1.0 if steepest <= TO_THE_BOUNDARY else TO_THE_BOUNDARY / steepest


@compiled
def _power(x, exponent):
    if exponent == 2.0:
        return x * x
    return x**exponent


@compiled
def power_sum(x, t, dx, exponent):
    """``sum_j |x_j + t dx_j|^exponent``."""
    keep_apart()
    value = 0.0
    for j in range(len(x)):
        value += _power(abs(x[j] + t * dx[j]), exponent)
    return value


@compiled
def norm(x, exponent):
    """The lp norm; the largest entry is taken out first, as large powers leave the range."""
    keep_apart()
    most = largest(x)
    if not 0 < most < np.inf:
        return most
    value = 0.0
    for j in range(len(x)):
        value += _power(abs(x[j]) / most, exponent)
    return most * value ** (1 / exponent)


@compiled
def map_power(x, exponent, image, slope):
    """``sign(x) |x|^(exponent-1)`` and its derivative, by one power of each entry."""
    keep_apart()
    for j in range(len(x)):
        power = abs(x[j]) ** (exponent - 2) if exponent != 2.0 else 1.0
        image[j] = power * x[j]
        slope[j] = (exponent - 1) * power


@compiled
def barrier(x, dx, exponent, linear, r, dr, mu, t):
    """``(1/e) |x + t dx|_e^e + t linear - mu sum log(r + t dr)``, e the exponent."""
    keep_apart()
    logs = 0.0
    for k in range(len(r)):
        logs += np.log(r[k] + t * dr[k])
    return power_sum(x, t, dx, exponent) / exponent + t * linear - mu * logs
