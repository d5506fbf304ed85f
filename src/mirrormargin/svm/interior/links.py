r"""How w and ``u = A' lam`` are tied on the path: which of the two is kept exact.

    w = sign(u) |u|^(q-1),        u = sign(w) |w|^(p-1).

One of the two maps is a high power and the other a root, and Newton's method is safe on the power
alone: for p <= 2 it is linearised in u, for p > 2 in w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm, signed_power
from mirrormargin.svm.interior.program import Bounds, Program
from mirrormargin.svm.interior.rows import Rows, RowStep

__all__ = ["RAISE", "FromDual", "FromPrimal", "Link"]

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
SEPARATE_BELOW = 1e-5  # the gap from which on w is a variable of its own, also for p <= 2
RAISE = 1.6  # factor of the exponent on the way up
LEAST_CURVATURE = 1e-14  # of |w|^p, as a share of the largest
RECENTRE_BELOW = 0.1  # after a shorter step slacks and multipliers are made to fit again


class Link(ABC):
    """The iterate of a path: w with ``y = A w``, and the rows with ``u = A' lam``."""

    program: Program
    rows: Rows
    w: Array
    y: Array
    u: Array

    def see(self, bounds: Bounds) -> None:
        """Offer the iterate as a bound from each side."""
        bounds.see_dual(self.rows.lam, self.u)
        bounds.see_primal(self.w, self.y)

    @abstractmethod
    def coefficients(self) -> tuple[Array, Array, Array]:
        """h, k and f of the linearised link ``h dw - k A' dl = f``."""

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


class FromDual(Link):
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


class FromPrimal(Link):
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
