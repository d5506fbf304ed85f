r"""The Newton system of the compiled interior point.

As in :mod:`mirrormargin.svm.interior.newton`,

    h dw - k A' dl = f,        A dw + e dl = g.

With ``dw = f / h + v`` and ``C = k / h``, v is eliminated if there are few rows and dl if there are
few unknowns, which leaves ``A C A' + E`` or ``I + sqrt(C) A' E^-1 A sqrt(C)``. A few weights, C or
1 / E, that dwarf the others would bury them in rounding, so their unknowns stay in the system:

    [ R C R' + d   -R_b  ] [ kept       ]
    [ R_b'         1/C_b ] [ eliminated ]

is factored by LU with partial pivoting. That holds where Cholesky of the full elimination loses all
digits (large p, many active rows) and costs little more. Loops run over contiguous rows from their
beginning on, where memory is aligned, and vectorise without fast-math.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry.float32_memory import inlined
from mirrormargin.geometry.float64_loops import compiled, keep_apart
from mirrormargin.svm.compiled import vectors
from mirrormargin.svm.compiled.vectors import (
    add,
    add_rows,
    combine,
    fill,
    put,
)

__all__ = ["SOURCES", "Work", "allocate", "factor_system", "solve_system"]

SOURCES = (*vectors.SOURCES, __file__)

TALL = 1.3  # rows for each unknown from which on the system in the unknowns is the smaller one
REFINEMENTS = 4
DWARFS = 1e3  # times the weights that matter: from here on an unknown is kept
LEAST_PIVOT = 1e-15  # of a matrix with entries of about one

# Vectors of length m in ``rows``: multipliers, slacks, A w, A w - 1 - s, the right-hand side g and
# the diagonal e, 1 / e, directions, the best multipliers, and some to work in.
LAM, S, Y, EXCESS, G, E, WEIGHT, DL, DS = range(9)
BEST_LAM, NEXT_LAM, NEXT_Y, MORE_LAM, REST_G, STEP_L = range(9, 15)
# Vectors of length D in ``unknowns``, likewise.
W, U, IMAGE, F, H, K, C, DW, DU = range(9)
BEST_W, NEXT_W, MORE_W, ZERO, START, REST_F, STEP_W = range(9, 16)
# Vectors of length m + D in ``long``: the scale of the factored system, and two to work in.
SCALE, TEMP, MIXED = range(3)
# Indices: where each pivot was, and which of the eliminated unknowns are kept.
PIVOT, KEPT = range(2)


class Work(NamedTuple):
    """The memory of one solve at a time, for m rows and D unknowns.

    Seven arrays and not forty vectors: Numba compiles functions of many arguments slowly.

    Attributes:
        A: (m, D).
        At: (D, m), its transpose.
        factor: (2 order, 2 order), the system; order is m or D.
        rows: (15, m).
        unknowns: (16, D).
        long: (3, m + D).
        indices: (2, m + D).
    """

    A: NDArray[np.float64]
    At: NDArray[np.float64]
    factor: NDArray[np.float64]
    rows: NDArray[np.float64]
    unknowns: NDArray[np.float64]
    long: NDArray[np.float64]
    indices: NDArray[np.int64]


def allocate(m: int, D: int) -> Work:
    """The memory for problems of m rows and D unknowns."""
    order = D if m > TALL * D else m
    shapes = (m, D), (D, m), (2 * order, 2 * order), (15, m), (16, D), (3, m + D)
    return Work(*(np.zeros(shape) for shape in shapes), indices=np.zeros((2, m + D), np.int64))


@compiled
def factor_system(work):
    """Eliminate and factor; returns the order of the system, 0 if a number is not finite."""
    keep_apart()
    m, D = work.A.shape
    c, e, weight = work.unknowns[C], work.rows[E], work.rows[WEIGHT]
    factor, scale, temp = work.factor, work.long[SCALE], work.long[TEMP]
    for j in range(D):
        c[j] = work.unknowns[K, j] / work.unknowns[H, j]
    for k in range(m):
        weight[k] = 1 / e[k]
    few_rows = 2 * m == len(factor)
    R, Rt, weights = (work.A, work.At, c) if few_rows else (work.At, work.A, weight)
    order = len(R)
    _fill_gram(R, Rt, weights, temp, factor)
    # How many weights it takes: one for each row of the Gram matrix that outweighs d.
    strong = np.int64(0)
    for i in range(order):
        strong += factor[i, i] > e[i] if few_rows else factor[i, i] * c[i] > 1.0
    count = _find_dwarfing(weights, strong, work.indices[KEPT], temp)
    if count > 0:
        _fill_gram(R, Rt, weights, work.long[MIXED], factor)
    for i in range(order):
        own, root = (e[i], 1.0) if few_rows else (1.0, np.sqrt(c[i]))
        scale[i] = root / np.sqrt(factor[i, i] * root * root + own)
        factor[i, i] = 1.0
        for j in range(i):
            factor[i, j] *= scale[i] * scale[j]
            factor[j, i] = factor[i, j]
    for b in range(count):
        _append(factor, order, order + b, Rt[work.indices[KEPT, b]], temp[b], scale)
    return _factor(factor, order + count, work.indices[PIVOT])


@compiled
def _fill_gram(R, Rt, c, temp, gram):
    """The lower triangle of ``R diag(c) R'``."""
    keep_apart()
    for i in range(len(R)):
        r = R[i]
        for j in range(len(r)):
            temp[j] = r[j] * c[j]
        add_rows(temp, np.int64(0), Rt, i + 1, gram[i])


@compiled
def _find_dwarfing(weights, strong, kept, dwarfing):
    """Set weights to zero that dwarf the ``strong`` largest ones; list them, return their number.

    There are fewer of them than ``strong``: each is far above the level that so many reach.
    """
    level = 0.0
    for j in range(len(weights)):
        level = max(level, weights[j])
    lowest = 1e-30 * level
    while level > lowest:
        count = 0
        for j in range(len(weights)):
            count += weights[j] >= level
        if count >= strong:
            break
        level *= 0.1
    count = 0
    for j in range(len(weights)):
        if weights[j] > DWARFS * level:
            kept[count] = j
            dwarfing[count] = weights[j]
            weights[j] = 0.0
            count += 1
    return count


@compiled
def _append(factor, order, last, r, weight, scale):
    """Append an unknown that is not eliminated: ``-R_b`` and ``R_b``, transposed and scaled."""
    most = 0.0
    for i in range(order):
        most = max(most, abs(scale[i] * r[i]))
    # Zero for a coordinate in which no tokens differ: it stands alone.
    scale[last] = 1 / most if most > 0 else 1.0
    for i in range(order):
        factor[i, last] = scale[last] * scale[i] * r[i]
        factor[last, i] = -factor[i, last]
    for i in range(order, last):
        factor[i, last] = 0.0
        factor[last, i] = 0.0
    factor[last, last] = scale[last] * scale[last] / weight


@compiled
def _factor(T, order, pivots):
    """LU of the matrix whose columns are the rows of T, in place, from the last unknown on."""
    for k in range(order - 1, -1, -1):
        r = T[k]
        pivot = k
        for i in range(k):
            if abs(r[i]) > abs(r[pivot]):
                pivot = i
        pivots[k] = pivot
        if pivot != k:
            for j in range(k + 1):
                T[j, k], T[j, pivot] = T[j, pivot], T[j, k]
        if np.isnan(r[k]):
            return 0
        pivot = r[k] if abs(r[k]) > LEAST_PIVOT else LEAST_PIVOT
        r[k] = pivot
        for i in range(k):
            r[i] /= pivot
        for j in range(k):
            t, target = T[j, k], T[j]
            for i in range(k):
                target[i] -= t * r[i]
    return order


@compiled
def _solve_factored(T, order, pivots, scale, x):
    """Solve in place with the factored system."""
    keep_apart()
    for i in range(order):
        x[i] *= scale[i]
    for k in range(order - 1, -1, -1):
        x[k], x[pivots[k]] = x[pivots[k]], x[k]
        known, r = x[k], T[k]
        for i in range(k):
            x[i] -= known * r[i]
    for k in range(order):
        r = T[k]
        known = x[k] / r[k]
        x[k] = known
        for i in range(k + 1, order):
            x[i] -= known * r[i]
    for i in range(order):
        x[i] *= scale[i]


@compiled
def solve_system(work, order, f, g, tol, dw, dl):
    """Solve for dw and dl and refine; returns the relative residual, inf if it is not finite.

    The refinement ends at a residual of ``tol``, or when it does not help any more.
    """
    keep_apart()
    more_w, more_l = work.unknowns[STEP_W], work.rows[STEP_L]
    rest_f, rest_g = work.unknowns[REST_F], work.rows[REST_G]
    put(1.0, f, rest_f)
    put(1.0, g, rest_g)
    fill(0.0, dw)
    fill(0.0, dl)
    smallest, turn = np.inf, 0
    while smallest > tol and turn <= REFINEMENTS:
        _precondition(work, order, rest_f, rest_g, more_w, more_l)
        add(1.0, more_w, dw)
        add(1.0, more_l, dl)
        residual = _residual(work, f, g, dw, dl)
        if not residual < smallest:
            # The last correction did harm.
            add(-1.0, more_w, dw)
            add(-1.0, more_l, dl)
            break
        smallest = residual
        turn += 1
    return smallest


@inlined
def _precondition(work, order, f, g, dw, dl):
    """(dw, dl) from the factored system, once."""
    m, D = work.A.shape
    start, c, weight = work.unknowns[START], work.unknowns[C], work.rows[WEIGHT]
    scale, temp, x = work.long[SCALE], work.long[TEMP], work.long[MIXED]
    pivots, kept = work.indices[PIVOT], work.indices[KEPT]
    few_rows = 2 * m == len(work.factor)
    for j in range(D):
        start[j] = f[j] / work.unknowns[H, j]
    combine(start, work.At, temp)
    for k in range(m):
        dl[k] = g[k] - temp[k]
    if few_rows:
        for k in range(order):
            x[k] = dl[k] if k < m else 0.0
        _solve_factored(work.factor, order, pivots, scale, x)
        for k in range(m):
            dl[k] = x[k]
        combine(dl, work.A, temp)
        for j in range(D):
            dw[j] = start[j] + c[j] * temp[j]
        for b in range(m, order):
            dw[kept[b - m]] = start[kept[b - m]] - x[b]
    else:
        for b in range(D, order):
            x[b] = dl[kept[b - D]]
        for k in range(m):
            dl[k] *= weight[k]
        combine(dl, work.A, x)
        _solve_factored(work.factor, order, pivots, scale, x)
        for j in range(D):
            dw[j] = start[j] + x[j]
        combine(dw, work.At, temp)
        for k in range(m):
            dl[k] = (g[k] - temp[k]) * weight[k]
        for b in range(D, order):
            dl[kept[b - D]] = x[b]


@inlined
def _residual(work, f, g, dw, dl):
    """What the two equations are short of, and its size relative to their parts."""
    h, k, e = work.unknowns[H], work.unknowns[K], work.rows[E]
    rest_f, rest_g = work.unknowns[REST_F], work.rows[REST_G]
    temp, mixed = work.long[TEMP], work.long[MIXED]
    combine(dl, work.A, mixed)
    combine(dw, work.At, temp)
    size_f, size_g, most_f, most_g, sum = 1e-300, 1e-300, 0.0, 0.0, 0.0
    for j in range(len(h)):
        pull = h[j] * dw[j]
        size_f = max(size_f, abs(f[j]), abs(pull))
        rest_f[j] = f[j] - pull + k[j] * mixed[j]
        most_f = max(most_f, abs(rest_f[j]))
        sum += rest_f[j]
    for i in range(len(e)):
        size_g = max(size_g, abs(g[i]))
        rest_g[i] = g[i] - temp[i] - e[i] * dl[i]
        most_g = max(most_g, abs(rest_g[i]))
        sum += rest_g[i]
    # Maxima forget nan, sums do not.
    return max(most_f / size_f, most_g / size_g) if np.isfinite(sum) else np.inf
