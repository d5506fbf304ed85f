r"""The point on the central path: w, ``u = A' lam``, and the multipliers and slacks of the rows.

w and u belong together through the potential's gradient and its inverse,

    w = sign(u) |u|^(q-1),        u = sign(w) |w|^(p-1).

One of the two maps is a high power and the other a root, and Newton's method is safe on the power
alone. So :class:`FromDual` (p <= 2) keeps u exact and linearises in u, :class:`FromPrimal` (p > 2)
keeps w exact and linearises in w.

In :class:`Rows` an inequality has a multiplier lam and a slack s, a soft one also the shortfall xi
with the multiplier ``C - lam``; the path keeps their products equal:

    s = A w - b + xi >= 0,    lam s = mu,    (C - lam) xi = mu.

Eliminating ds and dxi from their linearisation leaves ``A dw + e dl = g`` with
``e = s / lam + xi / (C - lam)``. An equality has ``s = xi = 0`` and a free multiplier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm, signed_power
from mirrormargin.svm.interior.program import Bounds, Program

__all__ = [
    "RAISE",
    "TO_THE_BOUNDARY",
    "FromDual",
    "FromPrimal",
    "Iterate",
    "RowStep",
    "Rows",
    "search_minimum",
]

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
TO_THE_BOUNDARY = 0.995
LEAST_SLACK = 0.3  # at the start
EQUALITY = 1e-6  # e of an equality, as a share of the smallest e of an inequality
SEPARATE_BELOW = 1e-5  # the gap from which on w is a variable of its own, also for p <= 2
RAISE = 1.6  # factor of the exponent on the way up
LEAST_CURVATURE = 1e-14  # of |w|^p, as a share of the largest
RECENTRE_BELOW = 0.1  # after a shorter step slacks and multipliers are made to fit again


class Iterate(ABC):
    """w with ``y = A w``, and the rows with ``u = A' lam``."""

    program: Program
    rows: Rows
    w: Array
    y: Array
    u: Array

    def see(self, bounds: Bounds) -> None:
        """Let the bounds take in w and lam."""
        bounds.see_dual(self.rows.lam, self.u)
        bounds.see_primal(self.w, self.y)

    @abstractmethod
    def coefficients(self) -> tuple[Array, Array, Array]:
        """h, k and f of the linearised map between w and u, ``h dw - k A' dl = f``."""

    @abstractmethod
    def mismatch(self) -> float:
        """How far w and u are from fitting each other, in units of the objective."""

    @abstractmethod
    def is_descent(self, dw: Array, step: RowStep, mu: float) -> bool:
        """Whether the barrier at mu falls along a step."""

    @abstractmethod
    def search(
        self, dw: Array, step: RowStep, mu: float, primal: float, dual: float
    ) -> tuple[float, float]:
        """Lengths of a step, at most those given, near the minimum of the barrier."""

    @abstractmethod
    def move(self, dw: Array, primal: float, dual: float, bounds: Bounds) -> None:
        """Follow the rows, which have moved by these lengths."""


class FromDual(Iterate):
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

        shorter = search_minimum(slope, dual, abs(gain))
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


class FromPrimal(Iterate):
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
        shorter = search_minimum(lambda length: self._slope(dw, step, mu, length), primal, size)
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


def search_minimum(slope: Callable[[float], float], longest: float, size: float) -> float:
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
