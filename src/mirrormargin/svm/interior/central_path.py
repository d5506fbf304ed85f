r"""A primal-dual interior point for lp max-margin programs at every p.

On the central path, with q = p / (p - 1),

    u = A' lam,    w = sign(u) |u|^(q-1),    s = A w - b,    lam s = mu -> 0.

For p <= 2 :class:`FromDual` keeps u exact and computes w from it; for p > 2 :class:`FromPrimal`
keeps w and lets ``u - sign(w) |w|^(p-1)`` go to zero, raising p from 2 on the way. The rest is
shared: Mehrotra's predictor and corrector, separate lengths for slacks and multipliers, a search
for the minimum of the convex barrier of whichever side is kept exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.iterate import FromDual, FromPrimal, Iterate, Rows, RowStep
from mirrormargin.svm.interior.newton import NewtonSystem
from mirrormargin.svm.interior.program import Bounds, Program

__all__ = ["Path", "follow_path"]

Array = NDArray[np.float64]

POLISH_BELOW = 1e-5  # at a smaller gap Newton steps correct the rounding of A w
PATIENCE = 25  # iterations without progress of the gap or of mu


@dataclass
class Path:
    """Where the path ended: the best bounds with their points, and the last iterate."""

    bounds: Bounds
    iterations: int
    method: str
    lam: Array
    stopped: bool = False


def follow_path(
    program: Program,
    tol: float,
    max_iter: int,
    start: tuple[Array | None, Array],
    watch: Callable[[Bounds, int, Array], bool] | None = None,
    *,
    warm: bool = False,
) -> Path:
    """Follow the central path until the gap is at most ``tol``.

    Args:
        program: With rows of norms about one.
        tol: Target of the gap.
        max_iter: Bound on the Newton steps.
        start: (w, lam): multipliers of which those of inequalities are positive, and for p > 2 a
            point w with ``A w > 0`` on the rows with b = 1.
        watch: Called with bounds, iteration and lam before each step; True ends the path.
        warm: Whether the start is near the solution (p > 2).
    """
    constraints = program.constraints
    bounds = Bounds(program)
    iterate = FromDual(program, start) if program.p <= 2 else FromPrimal(program, start, warm)
    rows = iterate.rows
    newton = NewtonSystem(constraints, program.p)
    least_gap, least_mu, since = np.inf, np.inf, 0
    for iteration in range(max_iter + 1):
        iterate.see(bounds)
        gap = bounds.gap
        since = 0 if gap < 0.9 * least_gap or rows.mu < 0.9 * least_mu else since + 1
        least_gap, least_mu = min(gap, least_gap), min(rows.mu, least_mu)
        done = gap <= tol or iteration == max_iter
        if done or (np.isfinite(gap) and since > PATIENCE):
            return Path(bounds, iteration, newton.method, rows.lam)
        if watch is not None and watch(bounds, iteration, rows.lam):
            return Path(bounds, iteration, newton.method, rows.lam, stopped=True)
        h, k, f = iterate.coefficients()
        e = rows.diagonal()
        newton.update(h, k, e, gap)
        excess = rows.excess(iterate.y)

        dw, dl = newton.solve(f, rows.target(0.0, None) - excess)
        step = rows.step(dl, 0.0, None)
        _see_prediction(bounds, newton, rows, iterate.w + dw, dl, e, tol)
        if bounds.gap <= tol:
            return Path(bounds, iteration, newton.method, rows.lam)

        target = _choose_target(program, iterate, step, excess, tol)
        correction: RowStep | None = step
        dw, dl = newton.solve(f, rows.target(target, correction) - excess)
        step = rows.step(dl, target, correction)
        while not iterate.is_descent(dw, step, target):
            # Without the correction it would be one in exact arithmetic.
            if correction is None and not newton.try_harder():
                break
            correction = None
            dw, dl = newton.solve(f, rows.target(target, None) - excess)
            step = rows.step(dl, target, None)
        primal, dual = iterate.search(dw, step, target, *rows.longest(step))
        rows.move(step, primal, dual)
        iterate.move(dw, primal, dual, bounds)
    raise AssertionError("unreachable")


def _choose_target(
    program: Program, iterate: Iterate, step: RowStep, excess: Array, tol: float
) -> float:
    """mu to aim at: Mehrotra's, but no smaller than tol and the accuracy of the point need."""
    rows, mu = iterate.rows, iterate.rows.mu
    share = min(1.0, rows.mu_after(step, *rows.longest(step)) / mu) ** 3
    missed = (float(np.abs(rows.lam * excess).sum()) + iterate.mismatch()) / rows.count
    needed = tol * float(program.b @ rows.lam) / rows.count
    return min(mu, max(share * mu, 1e-8 * mu, 0.1 * missed, 0.1 * needed))


def _see_prediction(
    bounds: Bounds, newton: NewtonSystem, rows: Rows, w: Array, dl: Array, e: Array, tol: float
) -> None:
    """Let the bounds take in the end of a full step towards mu = 0, better than the iterate.

    Late on the path, the rows of w are pulled to where the prediction wants them. This undoes the
    rounding of ``w = map(A' lam)``: a margin of 1e-6 costs w half of its digits otherwise.
    """
    program = bounds.program
    constraints = program.constraints
    lam = np.where(program.equality, rows.lam + dl, np.maximum(rows.lam + dl, 0.0))
    if program.cap is not None:
        lam = np.where(program.equality, lam, np.minimum(lam, program.cap))
    if lam.any():
        bounds.see_dual(lam, constraints.adjoint(lam))
    y = constraints.apply(w)
    bounds.see_primal(w, y)
    if program.cap is not None:
        return
    nothing = np.zeros_like(w)
    before = POLISH_BELOW
    while tol < bounds.gap < before:
        before = 0.5 * bounds.gap
        dw, more = newton.solve(nothing, program.b - e * dl - y)
        w, dl = w + dw, dl + more
        y = constraints.apply(w)
        bounds.see_primal(w, y)
