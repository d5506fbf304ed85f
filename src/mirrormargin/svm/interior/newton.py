r"""Which way to solve the Newton system of the interior point,

    h dw - k A' dl = f,        A dw + e dl = g.

The ways, each costlier and more accurate than the one before: conjugate gradients that only
multiply by A, in float32 or in float64, Cholesky of the eliminated system, LU of the whole. A
system that one way cannot solve well goes on to the next, and the path stays there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import Constraints
from mirrormargin.svm.interior.direct_newton import DENSE_ENTRIES, DirectNewton
from mirrormargin.svm.interior.krylov_newton import KrylovNewton

__all__ = ["Effort", "NewtonSystem"]

Array = NDArray[np.float64]

SMALL = 300  # a system of this order is factored at once
STEEP = 4.0  # up to this p, and from this number of rows on, gradients beat a factorization
MANY_ROWS = 1_500
MAX_ROWS = 6_000  # the largest Gram matrix that is formed, 288 MB
MAX_AUGMENTED = 6_000  # the largest order of the matrix that LU factors


class Effort(IntEnum):
    """How hard to try."""

    SINGLE_GRADIENTS = 0
    DOUBLE_GRADIENTS = 1
    CHOLESKY = 2
    LU = 3


NAMES = {
    Effort.SINGLE_GRADIENTS: "conjugate gradients",
    Effort.DOUBLE_GRADIENTS: "conjugate gradients in float64",
    Effort.CHOLESKY: "Cholesky",
    Effort.LU: "LU",
}


class _Way(Protocol):
    def solve(self, f: Array, g: Array) -> tuple[Array, Array, bool]: ...


class NewtonSystem:
    """The systems of one path: ``update`` brings new coefficients, ``solve`` a right-hand side."""

    def __init__(self, constraints: Constraints, p: float) -> None:
        self.constraints, self._p = constraints, p
        m, D = constraints.num_rows, constraints.num_unknowns
        self._dense = m * D <= DENSE_ENTRIES
        self._can_factor = m <= MAX_ROWS or (D <= MAX_ROWS and self._dense)
        self._can_factor_all = m + D <= MAX_AUGMENTED and self._dense
        self.effort = Effort.SINGLE_GRADIENTS
        # Above p = 2 the curvatures of w differ, and gradients need more products the higher p is.
        steep = p > 2 and (p > STEEP or m <= MANY_ROWS)
        if self._can_factor and (steep or min(m, D) <= SMALL):
            self.effort = Effort.CHOLESKY
        self._way: _Way | None = None

    @property
    def method(self) -> str:
        return f"interior point, {NAMES[self.effort]}"

    def update(self, h: Array, k: Array, e: Array, gap: float) -> None:
        """Take the coefficients of the next system, and the gap, which says how well to solve."""
        self.h, self.k, self.e, self.gap = h, k, e, gap
        self._way = None

    def solve(self, f: Array, g: Array) -> tuple[Array, Array]:
        """(dw, dl), as good as the path needs them, or the best that can be had."""
        while True:
            if self._way is None:
                self._way = self._build()
            dw, dl, good = self._way.solve(f, g)
            if good or not self.try_harder():
                return dw, dl

    def _build(self) -> _Way:
        coefficients = (self.constraints, self.h, self.k, self.e)
        if self.effort >= Effort.CHOLESKY:
            tol = 1e-6 if self.gap > 1e-3 else 1e-10
            return DirectNewton(*coefficients, tol, exact=self.effort is Effort.LU)
        # Rows must be met to about mu, and the size of the right-hand side is about its root.
        tol = min(1e-3, max(0.1 * self.gap**0.5, 1e-6))
        if self._p > 2:
            # Here w carries what is left over from step to step instead of following from lam.
            tol *= 1e-3
        double = self.effort is Effort.DOUBLE_GRADIENTS
        return KrylovNewton(*coefficients, tol, double=double, impatient=self._can_factor)

    def try_harder(self) -> bool:
        """Go on to the next way; False if there is none."""
        if self.effort < Effort.CHOLESKY and self._can_factor:
            self.effort = Effort.CHOLESKY
        elif self.effort is Effort.SINGLE_GRADIENTS:
            self.effort = Effort.DOUBLE_GRADIENTS
        elif self.effort is Effort.CHOLESKY and self._can_factor_all:
            self.effort = Effort.LU
        else:
            return False
        self._way = None
        return True
