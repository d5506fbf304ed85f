r"""A primal-dual interior point for lp max-margin programs at every p.

On the central path, with q = p / (p - 1),

    u = A' lam,    w = sign(u) |u|^(q-1),    s = A w - b,    lam s = mu -> 0.

One of the two maps between w and u is a high power and the other a root; Newton's method is safe
on the power alone. :class:`_FromDual` (p <= 2) therefore keeps u exact and computes w from it,
:class:`_FromPrimal` (p > 2) keeps w and lets ``u - sign(w) |w|^(p-1)`` go to zero, raising p from
2 on the way. The rest is shared: Mehrotra's predictor and corrector, separate lengths for slacks
and multipliers, backtracking on the convex barrier of whichever side is kept exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.newton import NewtonSystem
from mirrormargin.svm.interior.program import Bounds, Program, lp_norm, signed_power
from mirrormargin.svm.interior.rows import Rows, RowStep

__all__ = ["RAISE", "Path", "follow_path"]

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
SEPARATE_BELOW = 1e-5  # the gap from which on w is a variable of its own, also for p <= 2
POLISH_BELOW = 1e-5  # the gap from which on rows are pulled to where they should be
RAISE = 1.6  # factor of the exponent on the way up
LEAST_CURVATURE = 1e-14  # of |w|^p, as a share of the largest
PATIENCE = 25  # iterations without progress of the gap or of mu
RECENTRE_BELOW = 0.1  # after a shorter step slacks and multipliers are made to fit again


@dataclass
class Path:
    """Where the path ended: the best bounds with their points, and the last iterate."""

    bounds: Bounds
    iterations: int
    method: str
    lam: Array
    stopped: bool = False


class _Link(Protocol):
    """How w and u = A' lam are tied."""

    w: Array
    y: Array

    def coefficients(self) -> tuple[Array, Array, Array]: ...
    def mismatch(self) -> float: ...
    def is_descent(self, dw: Array, step: RowStep, mu: float) -> bool: ...
    def search(
        self, dw: Array, step: RowStep, mu: float, primal: float, dual: float
    ) -> tuple[float, float]: ...
    def move(self, dw: Array, primal: float, dual: float, bounds: Bounds) -> None: ...


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
    link = _FromDual(program, start) if program.p <= 2 else _FromPrimal(program, start, warm)
    rows = link.rows
    newton = NewtonSystem(constraints, program.p)
    least_gap, least_mu, since = np.inf, np.inf, 0
    for iteration in range(max_iter + 1):
        link.see(bounds)
        gap = bounds.gap
        since = 0 if gap < 0.9 * least_gap or rows.mu < 0.9 * least_mu else since + 1
        least_gap, least_mu = min(gap, least_gap), min(rows.mu, least_mu)
        done = gap <= tol or iteration == max_iter
        if done or (np.isfinite(gap) and since > PATIENCE):
            return Path(bounds, iteration, newton.method, rows.lam)
        if watch is not None and watch(bounds, iteration, rows.lam):
            return Path(bounds, iteration, newton.method, rows.lam, stopped=True)
        h, k, f = link.coefficients()
        e = rows.diagonal()
        newton.update(h, k, e, gap)
        excess = rows.excess(link.y)

        dw, dl = newton.solve(f, rows.target(0.0, None) - excess)
        step = rows.step(dl, 0.0, None)
        _see_prediction(bounds, newton, rows, link.w + dw, dl, e, tol)
        if bounds.gap <= tol:
            return Path(bounds, iteration, newton.method, rows.lam)

        mu = rows.mu
        primal, dual = rows.longest(step)
        infeasibility = (float(np.abs(rows.lam * excess).sum()) + link.mismatch()) / rows.count
        needed = tol * float(program.b @ rows.lam) / rows.count
        target = min(
            mu,
            max(
                mu * min(1.0, rows.mu_after(step, primal, dual) / mu) ** 3,
                1e-8 * mu,
                0.1 * infeasibility,
                0.1 * needed,
            ),
        )
        correction: RowStep | None = step
        dw, dl = newton.solve(f, rows.target(target, correction) - excess)
        step = rows.step(dl, target, correction)
        while not link.is_descent(dw, step, target):
            # Without the correction it would be one in exact arithmetic.
            if correction is None and not newton.try_harder():
                break
            correction = None
            dw, dl = newton.solve(f, rows.target(target, None) - excess)
            step = rows.step(dl, target, None)
        primal, dual = link.search(dw, step, target, *rows.longest(step))
        rows.move(step, primal, dual)
        link.move(dw, primal, dual, bounds)
    raise AssertionError("unreachable")


def _see_prediction(
    bounds: Bounds, newton: NewtonSystem, rows: Rows, w: Array, dl: Array, e: Array, tol: float
) -> None:
    """Offer the point to which a full step towards mu = 0 leads, better than the iterate.

    Late on the rows of w are pulled to where the prediction wants them, which undoes the rounding
    of ``w = map(A' lam)``: a margin of 1e-6 costs w half of its digits otherwise.
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


class _FromDual:
    """p <= 2: ``w = sign(u) |u|^(q-1)``, whose derivative ``(q-1) |u|^(q-2)`` is bounded."""

    def __init__(self, program: Program, start: tuple[Array | None, Array]) -> None:
        self.program = program
        self.lam = start[1]
        self.u = program.constraints.adjoint(self.lam)
        self.separate = False
        self.recentre: float | None = None
        self._rescale()
        self.w = self.image = self._map()
        self.y = program.constraints.apply(self.w)
        self.rows = Rows(program, self.lam, self.y)

    def _map(self) -> Array:
        return signed_power(self.u, self.program.q - 1)

    def _rescale(self) -> None:
        """Multiply lam by the number that maximises the dual objective."""
        program, q = self.program, self.program.q
        norm, total = lp_norm(self.u, q), float(program.b @ self.lam)
        if not (norm > 0 and total > 0):
            return
        factor = float(np.exp((np.log(total) - q * np.log(norm)) / (q - 1)))
        if program.cap is not None:
            factor = min(factor, 0.5 * program.cap / float(self.lam[~program.equality].max()))
        self.lam = self.lam * factor
        self.u = self.u * factor

    def see(self, bounds: Bounds) -> None:
        bounds.see_dual(self.lam, self.u)
        bounds.see_primal(self.w, self.y)

    def coefficients(self) -> tuple[Array, Array, Array]:
        q = self.program.q
        c = (q - 1) * np.abs(self.u) ** (q - 2)
        return np.ones_like(c), c, self.image - self.w

    def mismatch(self) -> float:
        return float(np.abs(self.u * (self.image - self.w)).sum())

    def is_descent(self, dw: Array, step: RowStep, mu: float) -> bool:
        return self.separate or float((self.y - self.program.b) @ step.lam) < -mu * (
            self.rows.dual_barrier_slope(step, 0.0)
        )

    def search(
        self, dw: Array, step: RowStep, mu: float, primal: float, dual: float
    ) -> tuple[float, float]:
        self.recentre = None
        if self.separate:
            return primal, dual
        q = self.program.q
        du = self.program.constraints.adjoint(step.lam)
        gain = float(self.program.b @ step.lam)

        def slope(length: float) -> float:
            power = float(signed_power(self.u + length * du, q - 1) @ du)
            return power - gain + mu * self.rows.dual_barrier_slope(step, length)

        shorter = _search(slope, dual, abs(gain))
        self.recentre = mu if shorter < RECENTRE_BELOW else None
        return (primal if shorter == dual else min(primal, shorter)), shorter

    def move(self, dw: Array, primal: float, dual: float, bounds: Bounds) -> None:
        constraints = self.program.constraints
        self.lam = self.rows.lam
        self.u = constraints.adjoint(self.lam)
        if self.recentre is not None:
            self.rows.recentre_slacks(self.recentre)
        # A small margin cancels digits twice, in A' lam and in A w.
        noise = self.program.q * EPS * bounds.lower**2
        if self.separate or bounds.gap < max(SEPARATE_BELOW, 100 * noise):
            self.separate = True
            self.image = self._map()
            self.w = self.w + primal * dw
        else:
            if self.program.cap is None:
                self._rescale()
                self.rows.lam = self.lam
            self.w = self.image = self._map()
        self.y = constraints.apply(self.w)


class _FromPrimal:
    """p > 2: ``u = sign(w) |w|^(p-1)``; the exponent rises from near 2 to p."""

    def __init__(self, program: Program, start: tuple[Array | None, Array], warm: bool) -> None:
        w, lam = start
        assert w is not None
        self.program = program
        self.recentre: float | None = None
        self.exponent = program.p if warm else min(program.p, 2 * RAISE)
        constraints, b = program.constraints, program.b
        y = constraints.apply(w)
        if program.cap is None:
            # All slacks positive, and none of them small.
            grow = (1.02 if warm else 1.2) / float(y[b == 1].min())
            w, y = w * grow, y * grow
        self.w, self.y = w, y
        free = program.equality
        lam = np.where(free, lam, np.maximum(lam, 1e-6 * lam[~free].max()))
        lam = lam * (float((np.abs(w) ** self.exponent).sum()) / float(b @ lam))
        if program.cap is not None:
            lam = np.where(free, lam, np.clip(lam, 0.01 * program.cap, 0.99 * program.cap))
        self.rows = Rows(program, lam, y)
        if program.cap is None:
            self.rows.s = np.maximum((y - b)[self.rows.inequality], 0.01)
        self.u = constraints.adjoint(lam)

    def see(self, bounds: Bounds) -> None:
        bounds.see_dual(self.rows.lam, self.u)
        bounds.see_primal(self.w, self.y)

    def coefficients(self) -> tuple[Array, Array, Array]:
        p = self.exponent
        h = (p - 1) * np.abs(self.w) ** (p - 2)
        self.image = signed_power(self.w, p - 1)
        return np.maximum(h, LEAST_CURVATURE * h.max()), np.ones_like(h), self.u - self.image

    def mismatch(self) -> float:
        return float(np.abs(self.w * (self.u - self.image)).sum())

    def is_descent(self, dw: Array, step: RowStep, mu: float) -> bool:
        return self._slope(dw, step, mu, 0.0) < 0

    def _slope(self, dw: Array, step: RowStep, mu: float, length: float) -> float:
        power = float(signed_power(self.w + length * dw, self.exponent - 1) @ dw)
        return power + mu * self.rows.primal_barrier_slope(step, length) + self.rows.price(step)

    def search(
        self, dw: Array, step: RowStep, mu: float, primal: float, dual: float
    ) -> tuple[float, float]:
        size = abs(float(self.image @ dw))
        shorter = _search(lambda length: self._slope(dw, step, mu, length), primal, size)
        self.recentre = mu if shorter < RECENTRE_BELOW else None
        return shorter, dual

    def move(self, dw: Array, primal: float, dual: float, bounds: Bounds) -> None:
        constraints = self.program.constraints
        self.w = self.w + primal * dw
        if self.recentre is not None:
            self.rows.recentre_multipliers(self.recentre)
        if self.exponent < self.program.p and min(primal, dual) > 0.3:
            self._raise_exponent()
        self.y = constraints.apply(self.w)
        self.u = constraints.adjoint(self.rows.lam)

    def _raise_exponent(self) -> None:
        size = np.abs(self.w)
        raised = min(self.program.p, RAISE * self.exponent)
        if self.program.cap is None:
            factor = (size**raised).sum() / (size**self.exponent).sum()
            self.rows.lam = self.rows.lam * float(factor)
        self.exponent = raised


def _search(slope: Callable[[float], float], longest: float, size: float) -> float:
    """A length near the minimum of a convex function along a line, from its derivative.

    The longest step is taken where the derivative is what rounding leaves of terms of ``size``, and
    where the function does not fall at all: then the step is there to meet the rows.
    """
    start = slope(0.0)
    if start >= 0:
        return longest
    accepted = max(0.3 * abs(start), 1e-11 * size)
    if slope(longest) <= accepted:
        return longest
    low, high = 0.0, longest
    for _ in range(40):
        length = 0.5 * (low + high)
        value = slope(length)
        if abs(value) <= accepted:
            return length
        low, high = (length, high) if value < 0 else (low, length)
    return low
