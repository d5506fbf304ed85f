r"""The Newton system of the interior point, and which method solves it.

    h dw - k A' dl = f,        A dw + e dl = g,        h > 0, k >= 0 and e > 0 entrywise.

There are four methods, each costlier and more accurate than the one before: conjugate gradients,
which only multiply by A, in float32 or in float64 (:mod:`.conjugate_gradients`), Cholesky of the
eliminated system, and LU of the whole one. When a method cannot solve a system well, the next one
takes over for the rest of the path.

:class:`DirectNewton` eliminates to ``(A C A' + E) dl = g - A (f / h)``, ``C = k / h``, when there
are few rows, or to a system in dw when there are few unknowns. Near the solution both square the
condition number, so the factor is used to refine the two equations above. Where even that stalls,
LU of the whole matrix is three to ten times slower and far more accurate; pinned by
``test_a_margin_of_one_in_a_million_is_certified``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.svm.interior.conjugate_gradients import KrylovNewton
from mirrormargin.svm.interior.constraints import DENSE_ENTRIES, Constraints

__all__ = ["DirectNewton", "Effort", "NewtonSystem"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

ACCEPTED = 1e-7  # a residual above this is not good
REFINEMENTS = 4
SMALL = 300  # a system of this order is factored at once
# For p > 2 conjugate gradients are faster than a factorization only up to p = STEEP, and only with
# more than MANY_ROWS rows.
STEEP = 4.0
MANY_ROWS = 1_500
MAX_ROWS = 6_000  # the largest Gram matrix that is formed, 288 MB
MAX_AUGMENTED = 6_000  # the largest order of the matrix that LU factors

# LAPACK itself: the functions that wrap it take longer than a small system does.
_factorize, _back_substitute = scipy.linalg.get_lapack_funcs(
    ("potrf", "potrs"), dtype=np.dtype(np.float64)
)


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


class _Solver(Protocol):
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
        self._solver: _Solver | None = None

    @property
    def method(self) -> str:
        return f"interior point, {NAMES[self.effort]}"

    def update(self, h: Array, k: Array, e: Array, gap: float) -> None:
        """Take the coefficients of the next system, and the gap, which says how well to solve."""
        self.h, self.k, self.e, self.gap = h, k, e, gap
        self._solver = None

    def solve(self, f: Array, g: Array) -> tuple[Array, Array]:
        """(dw, dl), as good as the path needs them, or the best that can be had."""
        while True:
            if self._solver is None:
                self._solver = self._build()
            dw, dl, good = self._solver.solve(f, g)
            if good or not self.try_harder():
                return dw, dl

    def _build(self) -> _Solver:
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
        """Switch to the next method; False if there is none."""
        if self.effort < Effort.CHOLESKY and self._can_factor:
            self.effort = Effort.CHOLESKY
        elif self.effort is Effort.SINGLE_GRADIENTS:
            self.effort = Effort.DOUBLE_GRADIENTS
        elif self.effort is Effort.CHOLESKY and self._can_factor_all:
            self.effort = Effort.LU
        else:
            return False
        self._solver = None
        return True


class DirectNewton:
    """One factorization, any number of right-hand sides.

    Args:
        constraints: The rows A.
        h, k: Coefficients of the first equation, shape (D,).
        e: Diagonal of the second, shape (m,), positive.
        tol: Relative residual to refine to.
        exact: Whether to factor the whole matrix by LU.
    """

    def __init__(
        self,
        constraints: Constraints,
        h: Array,
        k: Array,
        e: Array,
        tol: float,
        *,
        exact: bool = False,
    ) -> None:
        self.constraints, self.tol = constraints, tol
        self.h, self.k, self.e = h, k, e
        self.m, self.D = constraints.num_rows, constraints.num_unknowns
        self._precondition = self._factor_exactly() if exact else self._factor()

    def solve(self, f: Array, g: Array) -> tuple[Array, Array, bool]:
        """(dw, dl), refined, and whether their residual is small."""
        dw, dl = self._precondition(f, g)
        best, least = (dw, dl), np.inf
        # Rows of many sizes have slacks of many sizes: each counts in units of its own.
        units = self.constraints.row_sizes
        size_f, size_g = np.abs(f).max(), max(np.abs(g / units).max(), 1e-300)
        for _ in range(REFINEMENTS + 1):
            hdw = self.h * dw
            rest_f = f - hdw + self.k * self.constraints.adjoint(dl)
            rest_g = g - self.constraints.apply(dw) - self.e * dl
            residual = max(
                np.abs(rest_f).max() / max(size_f, np.abs(hdw).max(), 1e-300),
                np.abs(rest_g / units).max() / size_g,
            )
            if not residual < least:
                break
            best, least = (dw, dl), float(residual)
            if residual <= self.tol:
                break
            more_w, more_l = self._precondition(rest_f, rest_g)
            dw, dl = dw + more_w, dl + more_l
        return *best, least <= max(self.tol, ACCEPTED)

    def _factor(self) -> Callable[[Array, Array], Pair]:
        if self.m > 1.3 * self.D and self.m * self.D <= DENSE_ENTRIES:
            return self._factor_unknowns()
        return self._factor_rows()

    def _factor_rows(self) -> Callable[[Array, Array], Pair]:
        # The functions hold no self: in a cycle the factors would outlive their use.
        constraints, h, c = self.constraints, self.h, self.k / self.h
        G = constraints.gram(c)
        solve_scaled = _factor_scaled(G, np.diagonal(G) + self.e)

        def precondition(f: Array, g: Array) -> Pair:
            start = f / h
            dl = solve_scaled(g - constraints.apply(start))
            return start + c * constraints.adjoint(dl), dl

        return precondition

    def _factor_unknowns(self) -> Callable[[Array, Array], Pair]:
        # dw = f / h + sqrt(C) v, and v solves (I + sqrt(C) A' E^-1 A sqrt(C)) v = ...
        constraints, h, e = self.constraints, self.h, self.e
        root = np.sqrt(self.k / h)
        B = constraints.matrix * root
        scaled = B / np.sqrt(e)[:, None]
        G = scaled.T @ scaled
        solve_scaled = _factor_scaled(G, np.diagonal(G) + 1.0)

        def precondition(f: Array, g: Array) -> Pair:
            start = f / h
            v = solve_scaled(B.T @ ((g - constraints.apply(start)) / e))
            dw = start + root * v
            return dw, (g - constraints.apply(dw)) / e

        return precondition

    def _factor_exactly(self) -> Callable[[Array, Array], Pair]:
        D = self.D
        A = self.constraints.matrix
        M = np.zeros((D + self.m, D + self.m))
        M[:D, :D].flat[:: D + 1] = self.h
        M[:D, D:] = -self.k[:, None] * A.T
        M[D:, :D] = A
        M[D:, D:].flat[:: self.m + 1] = self.e
        row_scale, column_scale = _equilibrate(M)
        with warnings.catch_warnings():
            # A singular matrix shows in the residual.
            warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
            factor = scipy.linalg.lu_factor(M, overwrite_a=True, check_finite=False)

        def precondition(f: Array, g: Array) -> Pair:
            x = scipy.linalg.lu_solve(factor, row_scale * np.r_[f, g], check_finite=False)
            x *= column_scale
            return x[:D], x[D:]

        return precondition


def _factor_scaled(G: Array, diagonal: Array) -> Callable[[Array], Array]:
    """Cholesky of G with another diagonal, scaled to ones, regularised from 1e-15 upward."""
    scale = 1 / np.sqrt(diagonal)
    G *= scale
    G *= scale[:, None]
    for regularisation in np.geomspace(1e-15, 1e5, 21):
        G.flat[:: len(scale) + 1] = 1.0 + regularisation
        factor, failed = _factorize(G, lower=1, clean=0)
        if not failed:
            break
    else:  # nan: let the residual tell
        return lambda x: np.full_like(x, np.nan)
    return lambda x: scale * _back_substitute(factor, scale * x, lower=1)[0]


def _equilibrate(M: Array) -> Pair:
    """Scale rows and columns of M, in place, towards largest entries of one."""
    row_scale, column_scale = np.ones(len(M)), np.ones(len(M))
    for _ in range(5):
        rows = 1 / np.sqrt(np.maximum(np.abs(M).max(axis=1), 1e-300))
        M *= rows[:, None]
        columns = 1 / np.sqrt(np.maximum(np.abs(M).max(axis=0), 1e-300))
        M *= columns
        row_scale *= rows
        column_scale *= columns
    return row_scale, column_scale
