r"""The interior point of small attention SVMs, compiled.

The path is that of :mod:`mirrormargin.svm.interior.central_path`, for hard margins with b = 1:

    u = A' lam,    w = sign(u) |u|^(q-1),    s = A w - 1,    lam s = mu -> 0.

p <= 2 keeps u exact and maps it to w; p > 2 keeps w and raises the exponent from 2 on the way. The
result is a candidate that the caller measures. The kernel knows nothing of infeasibility: where it
makes no progress it stops, and leaves the problem to the general solver.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from mirrormargin.geometry.compiler import CompiledFunction
from mirrormargin.geometry.float32_memory import inlined
from mirrormargin.geometry.float64_loops import compiled, keep_apart
from mirrormargin.svm.compiled import newton as at
from mirrormargin.svm.compiled.newton import Work, factor_system, solve_system
from mirrormargin.svm.compiled.vectors import (
    add,
    barrier,
    combine,
    fill,
    largest,
    least,
    longest,
    map_power,
    norm,
    power_sum,
    put,
    total,
)

__all__ = ["FIRST_EXPONENT", "load_kernel"]

SEPARATE_BELOW = 1e-5  # the gap from which on w is a variable of its own, also for p <= 2
POLISH_BELOW = 1e-5  # the gap from which on rows are pulled to where they should be
RAISE = 1.6  # factor of the exponent on the way up
FIRST_EXPONENT = 2 * RAISE
LEAST_CURVATURE = 1e-14  # of |w|^p, as a share of the largest
PATIENCE = 25  # steps without progress
HOPELESS = 1e9  # a lower bound, with rows of norms about one, that leaves little to separate
HOPELESS_AFTER = 50  # steps without a separating w


def _make_kernel(version: int) -> Callable[..., Any]:
    """The kernel as a closure: Numba's cache notices a change of this file and of ``version``."""

    def follow_path(p, tol, max_iter, A, At, factor, rows, unknowns, long, indices):
        """Follow the central path of A, from lam (p <= 2) or from w and lam, with A w > 1.

        The best w and lam are left in the memory. Returns the number of steps and the gap.
        """
        work = Work(A, At, factor, rows, unknowns, long, indices)
        lam, s, dl, ds = rows[at.LAM], rows[at.S], rows[at.DL], rows[at.DS]
        w, u, dw = unknowns[at.W], unknowns[at.U], unknowns[at.DW]
        q = p / (p - 1)
        from_dual = p <= 2
        exponent = q if from_dual else min(p, FIRST_EXPONENT)
        # x is kept exact, and r is under its barrier.
        x, dx, r, dr = (u, unknowns[at.DU], lam, dl) if from_dual else (w, dw, s, ds)
        fill(1.0, unknowns[at.H])
        fill(1.0, unknowns[at.K])
        separate = np.bool_(False)
        upper, lower, gap, record, since, iteration = np.inf, 0.0, np.inf, np.inf, 0, 0
        for iteration in range(max_iter + 1):
            if from_dual:
                _follow_from_dual(work, q, separate)
            else:
                _follow_from_primal(work, exponent)
            if iteration == 0:
                _start_slacks(rows, 0.3 if from_dual else 0.01)
            lower = _see_dual(lower, rows[at.BEST_LAM], lam, u, q)
            upper = _see_primal(upper, unknowns[at.BEST_W], w, rows[at.Y], p)
            gap = _gap(upper, lower)
            since = 0 if gap < 0.9 * record else since + 1
            record = gap if since == 0 else record
            if gap <= tol or iteration == max_iter or _is_hopeless(gap, lower, iteration, since):
                break
            accuracy = 1e-6 if gap > 1e-3 else 1e-10
            mu, infeasibility = _measure(rows, unknowns, from_dual)
            order = factor_system(work)
            if order == 0 or not _find_step(work, order, 0.0, 0.0, accuracy) < np.inf:
                break
            upper, lower = _see_prediction(work, order, upper, lower, p, tol)
            gap = _gap(upper, lower)
            if gap <= tol:
                break

            target = _target(rows, mu, 0.1 * infeasibility, 0.1 * tol)
            _find_step(work, order, target, 1.0, accuracy)
            linear, slope = _slope(work, dx, r, dr, target, from_dual)
            if not (separate or slope < 0):
                _find_step(work, order, target, 0.0, accuracy)
                linear, slope = _slope(work, dx, r, dr, target, from_dual)
            primal, dual = longest(s, ds), longest(lam, dl)
            if not separate:
                length = dual if from_dual else primal
                length = _search(x, dx, exponent, linear, r, dr, target, slope, length)
                if not from_dual:
                    primal = length
                elif length < dual:
                    primal, dual = min(primal, length), length
            add(dual, dl, lam)
            add(primal, ds, s)
            add(primal, dw, w)
            separate = separate or (from_dual and gap < SEPARATE_BELOW)
            if not from_dual and exponent < p and min(primal, dual) > 0.3:
                exponent = _raise(work, exponent, p)
        return iteration, gap, version

    return follow_path


@compiled
def _start_slacks(rows, floor):
    """Slacks as they are, but none of them small."""
    for k in range(rows.shape[1]):
        rows[at.S, k] = max(rows[at.Y, k] - 1, floor)


@compiled
def _follow_from_dual(work, q, separate):
    """What follows from lam: u, its image, and w unless that is a variable of its own."""
    keep_apart()
    lam, w, u = work.rows[at.LAM], work.unknowns[at.W], work.unknowns[at.U]
    image = work.unknowns[at.IMAGE]
    combine(lam, work.A, u)
    size, sum = norm(u, q), total(lam)
    if not separate and size > 0 and sum > 0:
        # Multiply lam by the number that maximises the dual objective.
        factor = np.exp((np.log(sum) - q * np.log(size)) / (q - 1))
        put(factor, lam, lam)
        put(factor, u, u)
    map_power(u, q, image, work.unknowns[at.K])
    if not separate:
        put(1.0, image, w)
    combine(w, work.At, work.rows[at.Y])


@compiled
def _follow_from_primal(work, exponent):
    """What follows from w and lam: A w, u, and the image of w."""
    keep_apart()
    lam, w, h = work.rows[at.LAM], work.unknowns[at.W], work.unknowns[at.H]
    combine(w, work.At, work.rows[at.Y])
    combine(lam, work.A, work.unknowns[at.U])
    map_power(w, exponent, work.unknowns[at.IMAGE], h)
    floor = LEAST_CURVATURE * largest(h)
    for j in range(len(h)):
        h[j] = max(h[j], floor)


@compiled
def _raise(work, exponent, p):
    """The next exponent; lam follows the size of the gradient."""
    lam, w = work.rows[at.LAM], work.unknowns[at.W]
    raised = min(p, RAISE * exponent)
    put(power_sum(w, 0.0, w, raised) / power_sum(w, 0.0, w, exponent), lam, lam)
    return raised


@compiled
def _measure(rows, unknowns, from_dual):
    """Fill e, f and the excess; return mu and how far the point is from the equations."""
    lam, s, excess = rows[at.LAM], rows[at.S], rows[at.EXCESS]
    w, u, image, f = unknowns[at.W], unknowns[at.U], unknowns[at.IMAGE], unknowns[at.F]
    mu, infeasibility = 0.0, 0.0
    for k in range(len(lam)):
        rows[at.E, k] = s[k] / lam[k]
        excess[k] = rows[at.Y, k] - 1 - s[k]
        infeasibility += abs(lam[k] * excess[k])
        mu += lam[k] * s[k]
    for j in range(len(w)):
        f[j] = image[j] - w[j] if from_dual else u[j] - image[j]
        infeasibility += abs((u[j] if from_dual else w[j]) * f[j])
    return mu / len(lam), infeasibility / len(lam)


@inlined
def _find_step(work, order, mu, corrected, accuracy):
    """Directions towards ``lam s = mu``, with Mehrotra's correction by the last directions."""
    rows, unknowns = work.rows, work.unknowns
    lam, s, g, excess = rows[at.LAM], rows[at.S], rows[at.G], rows[at.EXCESS]
    dl, ds = rows[at.DL], rows[at.DS]
    for k in range(len(lam)):
        # The last directions may be those of another problem, and not finite.
        product = mu - dl[k] * ds[k] if corrected > 0 else mu
        g[k] = product / lam[k] - s[k] - excess[k]
    residual = solve_system(work, order, unknowns[at.F], g, accuracy, unknowns[at.DW], dl)
    for k in range(len(lam)):
        ds[k] = g[k] + excess[k] - rows[at.E, k] * dl[k]
    return residual


@compiled
def _target(rows, mu, infeasibility, tol):
    """Mehrotra's choice of the next mu, from how far the prediction may be followed."""
    lam, s, dl, ds = rows[at.LAM], rows[at.S], rows[at.DL], rows[at.DS]
    primal, dual = longest(s, ds), longest(lam, dl)
    m = len(lam)
    ahead = 0.0
    for k in range(m):
        ahead += (lam[k] + dual * dl[k]) * (s[k] + primal * ds[k])
    target = mu * min(1.0, ahead / m / mu) ** 3
    return min(mu, max(target, 1e-8 * mu, infeasibility, tol * total(lam) / m))


@inlined
def _see_prediction(work, order, upper, lower, p, tol):
    """Bounds from the end of a full step towards mu = 0, with its rows pulled to their targets."""
    rows, unknowns = work.rows, work.unknowns
    lam, y, w = rows[at.NEXT_LAM], rows[at.NEXT_Y], unknowns[at.NEXT_W]
    g, e = rows[at.G], rows[at.E]
    for k in range(len(lam)):
        lam[k] = max(rows[at.LAM, k] + rows[at.DL, k], 0.0)
    combine(lam, work.A, w)
    lower = _see_dual(lower, rows[at.BEST_LAM], lam, w, p / (p - 1))
    dl = lam
    put(1.0, rows[at.DL], dl)
    put(1.0, unknowns[at.W], w)
    add(1.0, unknowns[at.DW], w)
    for turn in range(4):
        combine(w, work.At, y)
        upper = _see_primal(upper, unknowns[at.BEST_W], w, y, p)
        if turn == 3 or not tol < _gap(upper, lower) < POLISH_BELOW:
            break
        for k in range(len(dl)):
            g[k] = 1 - e[k] * dl[k] - y[k]
        solve_system(
            work, order, unknowns[at.ZERO], g, 1e-8, unknowns[at.MORE_W], rows[at.MORE_LAM]
        )
        add(1.0, unknowns[at.MORE_W], w)
        add(1.0, rows[at.MORE_LAM], dl)
    return upper, lower


@compiled
def _see_primal(upper, best, w, y, p):
    """Take in a point w with ``y = A w``: ``|w|_p / min y`` is above the least norm."""
    keep_apart()
    margin = least(y)
    new = norm(w, p) / margin
    if not (margin > 0 and new < upper):
        return upper
    put(1 / margin, w, best)
    return new


@compiled
def _see_dual(lower, best, lam, u, q):
    """Take in multipliers with ``u = A' lam``: ``sum lam / |u|_q`` is below the least norm."""
    keep_apart()
    new = total(lam) / norm(u, q)
    if not lower < new < np.inf:
        return lower
    put(1.0, lam, best)
    return new


@compiled
def _gap(upper, lower):
    return upper / lower - 1 if lower > 0 else np.inf


@compiled
def _is_hopeless(gap, lower, iteration, since):
    if gap < np.inf:
        return since > PATIENCE
    return lower > HOPELESS or iteration >= HOPELESS_AFTER


@compiled
def _slope(work, dx, r, dr, mu, from_dual):
    """Derivatives along the step: of the barrier's linear part, and of the whole."""
    keep_apart()
    dl, image = work.rows[at.DL], work.unknowns[at.IMAGE]
    linear = 0.0
    if from_dual:
        combine(dl, work.A, dx)
        linear = -total(dl)
    slope = linear
    for j in range(len(dx)):
        slope += image[j] * dx[j]
    for k in range(len(r)):
        slope -= mu * dr[k] / r[k]
    return linear, slope


@compiled
def _search(x, dx, exponent, linear, r, dr, mu, slope, length):
    """Halve the length until the barrier falls enough, up to its own rounding."""
    value = barrier(x, dx, exponent, linear, r, dr, mu, 0.0)
    slack = 1e-12 * abs(value)
    slope = min(slope, 0.0)
    while length > 1e-10:
        trial = barrier(x, dx, exponent, linear, r, dr, mu, length)
        if trial <= value + 1e-4 * length * slope + slack:
            break
        length *= 0.5
    return length


_real = types.float64
_matrix = _real[:, ::1]
_SIGNATURE = types.Tuple((types.int64, _real, types.int64))(
    *(_real, _real, types.int64),
    *(_matrix, _matrix, _matrix, _matrix, _matrix, _matrix, types.int64[:, ::1]),
)


_kernel = CompiledFunction(_make_kernel, _SIGNATURE, (*at.SOURCES, __file__))


def load_kernel() -> Callable[..., tuple[int, float, int]]:
    """The kernel: compiled on first use, which takes seconds, or read from the disk."""
    return _kernel.load()
