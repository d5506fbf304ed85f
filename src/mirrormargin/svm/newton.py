r"""Which way to solve the Newton system of the interior point,

    h dw - k A' dl = f,        A dw + e dl = g.

Three ways, each costlier and more accurate than the one before: conjugate gradients that only
multiply by A, Cholesky of the eliminated system, LU of the whole. A system that one way cannot
solve to the accuracy asked for goes on to the next, and the path stays there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.constraints import Constraints
from mirrormargin.svm.direct_newton import DENSE_ENTRIES, DirectNewton
from mirrormargin.svm.krylov_newton import KrylovNewton

__all__ = ["Effort", "NewtonSystem"]

Array = NDArray[np.float64]

SMALL = 300  # a system of this order is factored at once
MAX_ROWS = 6_000  # the largest Gram matrix that is formed, 288 MB
MAX_AUGMENTED = 6_000  # the largest order of the matrix that LU factors


class Effort(IntEnum):
    """How hard to try."""

    KRYLOV = 0
    CHOLESKY = 1
    LU = 2


NAMES = {
    Effort.KRYLOV: "conjugate gradients",
    Effort.CHOLESKY: "Cholesky",
    Effort.LU: "LU",
}


class _Way(Protocol):
    def solve(self, f: Array, g: Array, tol: float) -> tuple[Array, Array, bool]: ...


class NewtonSystem:
    """The systems of one path: ``update`` brings new coefficients, ``solve`` a right-hand side."""

    def __init__(self, constraints: Constraints, p: float) -> None:
        self.constraints = constraints
        m, D = constraints.num_rows, constraints.num_unknowns
        self._dense = m * D <= DENSE_ENTRIES
        self._can_factor = m <= MAX_ROWS or (D <= MAX_ROWS and self._dense)
        self._can_factor_all = m + D <= MAX_AUGMENTED and self._dense
        self.effort = Effort.KRYLOV
        # Above p = 2 the curvatures of w differ so much that gradients need many products.
        if self._can_factor and (p > 2 or min(m, D) <= SMALL):
            self.effort = Effort.CHOLESKY
        self._way: _Way | None = None

    @property
    def method(self) -> str:
        return f"interior point, {NAMES[self.effort]}"

    def update(self, h: Array, k: Array, e: Array) -> None:
        """Take the coefficients of the next system; factored when first solved."""
        self.h, self.k, self.e = h, k, e
        self._way = None

    def solve(self, f: Array, g: Array, tol: float) -> tuple[Array, Array]:
        """(dw, dl) with a relative residual of about ``tol``, or the best that can be had."""
        while True:
            if self._way is None:
                self._way = self._build()
            dw, dl, good = self._way.solve(f, g, tol)
            if good or not self._try_harder():
                return dw, dl

    def _build(self) -> _Way:
        if self.effort is Effort.KRYLOV:
            return KrylovNewton(self.constraints, self.h, self.k, self.e, self._can_factor)
        exact = self.effort is Effort.LU
        return DirectNewton(self.constraints, self.h, self.k, self.e, exact)

    def _try_harder(self) -> bool:
        if self.effort is Effort.KRYLOV and self._can_factor:
            self.effort = Effort.CHOLESKY
        elif self.effort is Effort.CHOLESKY and self._can_factor_all:
            self.effort = Effort.LU
        else:
            return False
        self._way = None
        return True
