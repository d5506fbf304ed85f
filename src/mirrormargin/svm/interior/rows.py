r"""Multipliers and slacks of the rows on the central path.

An inequality has a multiplier lam and a slack s, a soft one also the shortfall xi with the
multiplier ``C - lam``; the path keeps their products equal:

    s = A w - b + xi >= 0,    lam s = mu,    (C - lam) xi = mu.

Eliminating ds and dxi from their linearisation leaves ``A dw + e dl = g`` with
``e = s / lam + xi / (C - lam)``. An equality has ``s = xi = 0`` and a free multiplier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.program import Program

__all__ = ["RowStep", "Rows"]

Array = NDArray[np.float64]

TO_THE_BOUNDARY = 0.995
LEAST_SLACK = 0.3  # at the start
EQUALITY = 1e-6  # e of an equality, as a share of the smallest e of an inequality


@dataclass(frozen=True)
class RowStep:
    """Directions of lam, s and xi."""

    lam: Array
    s: Array
    xi: Array


class Rows:
    """State of the rows; arrays of slacks hold the inequalities alone, lam every row."""

    def __init__(self, program: Program, lam: Array, y: Array) -> None:
        self.program = program
        self.inequality = slice(None) if not program.equality.any() else ~program.equality
        self.lam = lam
        slack = (y - program.b)[self.inequality]
        self.count = len(slack)
        self.cap = program.cap
        # Without a cap there are no shortfalls: empty arrays, which add nothing to any sum.
        self.xi = np.empty(0)
        self.s = np.maximum(slack, LEAST_SLACK)
        if self.cap is not None:
            self.xi = np.maximum(-slack, 0.0) + LEAST_SLACK
            self.s = np.maximum(slack, 0.0) + LEAST_SLACK

    @property
    def mu(self) -> float:
        """Mean product of a slack and its multiplier."""
        lam = self.lam[self.inequality]
        total = lam @ self.s
        if self.cap is not None:
            total += (self.cap - lam) @ self.xi
        return float(total) / self.count

    def excess(self, y: Array) -> Array:
        """``A w - b - s + xi``, zero on the path; shape (m,)."""
        excess = y - self.program.b
        excess[self.inequality] -= self.s if self.cap is None else self.s - self.xi
        return excess

    def diagonal(self) -> Array:
        """e; an equality counts as an inequality so active that its e is all but zero."""
        lam = self.lam[self.inequality]
        e = self.s / lam
        if self.cap is not None:
            e = e + self.xi / (self.cap - lam)
        if isinstance(self.inequality, slice):
            return e
        full = np.full(len(self.lam), EQUALITY * e.min())
        full[self.inequality] = e
        return full

    def target(self, mu: float, step: RowStep | None) -> Array:
        """The part of g that asks for the products mu; ``step`` gives Mehrotra's correction."""
        g = np.zeros(len(self.lam))
        g[self.inequality] = self._slack_pull(mu, step)
        if self.cap is not None:
            g[self.inequality] -= self._shortfall_pull(self.cap, mu, step)
        return g

    def step(self, dl: Array, mu: float, correction: RowStep | None) -> RowStep:
        """Directions of the slacks that go with dl."""
        lam, d = self.lam[self.inequality], dl[self.inequality]
        ds = self._slack_pull(mu, correction) - self.s / lam * d
        dxi = self.xi
        if self.cap is not None:
            dxi = self._shortfall_pull(self.cap, mu, correction) + self.xi / (self.cap - lam) * d
        return RowStep(dl, ds, dxi)

    def _slack_pull(self, mu: float, step: RowStep | None) -> Array:
        product = mu if step is None else mu - step.lam[self.inequality] * step.s
        return product / self.lam[self.inequality] - self.s

    def _shortfall_pull(self, cap: float, mu: float, step: RowStep | None) -> Array:
        product = mu if step is None else mu + step.lam[self.inequality] * step.xi
        return product / (cap - self.lam[self.inequality]) - self.xi

    def longest(self, step: RowStep) -> tuple[float, float]:
        """How far slacks and multipliers may go, at most 1 each, and stay positive."""
        lam, d = self.lam[self.inequality], step.lam[self.inequality]
        primal = min(_longest(self.s, step.s), _longest(self.xi, step.xi))
        dual = _longest(lam, d)
        if self.cap is not None:
            dual = min(dual, _longest(self.cap - lam, -d))
        return primal, dual

    def mu_after(self, step: RowStep, primal: float, dual: float) -> float:
        lam = (self.lam + dual * step.lam)[self.inequality]
        total = lam @ (self.s + primal * step.s)
        if self.cap is not None:
            total += (self.cap - lam) @ (self.xi + primal * step.xi)
        return float(total) / self.count

    def move(self, step: RowStep, primal: float, dual: float) -> None:
        self.lam = self.lam + dual * step.lam
        self.s = self.s + primal * step.s
        self.xi = self.xi + primal * step.xi

    def recentre_slacks(self, mu: float) -> None:
        """Set slacks to what the multipliers ask for: the next step is Newton's on the barrier."""
        lam = self.lam[self.inequality]
        self.s = mu / lam
        if self.cap is not None:
            self.xi = mu / (self.cap - lam)

    def recentre_multipliers(self, mu: float) -> None:
        """The same from the slacks, of a hard margin."""
        if self.cap is None:
            self.lam = self.lam.copy()
            self.lam[self.inequality] = mu / self.s

    def dual_barrier_slope(self, step: RowStep, length: float) -> float:
        """Derivative of ``-sum log lam - sum log(C - lam)`` after a step, inf outside."""
        d = step.lam[self.inequality]
        lam = self.lam[self.inequality] + length * d
        slope = -_sum_quotients(d, lam)
        return slope if self.cap is None else slope + _sum_quotients(d, self.cap - lam)

    def primal_barrier_slope(self, step: RowStep, length: float) -> float:
        """Derivative of ``-sum log s - sum log xi`` after a step."""
        slope = -_sum_quotients(step.s, self.s + length * step.s)
        return slope - _sum_quotients(step.xi, self.xi + length * step.xi)

    def price(self, step: RowStep) -> float:
        """Derivative of ``C sum xi``."""
        return 0.0 if self.cap is None else self.cap * float(step.xi.sum())


def _longest(x: Array, dx: Array) -> float:
    steepest = float((-dx / x).max(initial=0.0))
    return 1.0 if steepest <= TO_THE_BOUNDARY else TO_THE_BOUNDARY / steepest


def _sum_quotients(x: Array, y: Array) -> float:
    return float((x / y).sum())
