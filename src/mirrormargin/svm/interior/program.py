r"""The convex program behind every lp max-margin problem, and what proves a solution of it.

    min (1/p) |w|_p^p  s.t.  <w, a_k> >= b_k  (k in rows),    b_k in {0, 1},

some rows may be equalities (then b_k = 0), and with a soft margin C each row may fall short by
``xi_k >= 0`` at the price ``C xi_k``. With q = p / (p - 1) the dual is

    max <b, lam> - (1/q) |A' lam|_q^q,    0 <= lam (<= C),  lam free on equalities.

For a hard margin any w with ``min_k <w, a_k> > 0`` over the rows with b = 1, and any lam, bound the
least norm from both sides once they are rescaled,

    <b, lam> / |A' lam|_q  <=  least |w|_p  <=  |w|_p / min_k <w, a_k>,

and the **gap** is the quotient of the two bounds minus one; for a soft margin it is the quotient of
the two objectives minus one. :class:`Bounds` keeps the best of each seen so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm
from mirrormargin.svm.interior.constraints import Constraints

__all__ = ["FEASIBILITY", "Bounds", "Program"]

Array = NDArray[np.float64]

FEASIBILITY = 1e-9
"""Rows with b = 0 and equalities hold to this share of ``|a_k|_q |w|_p``."""


@dataclass(frozen=True)
class Program:
    """Rows, exponent, right-hand side, which rows are equalities, and the price of falling short.

    ``cap`` is the soft margin's C, None for a hard margin.
    """

    constraints: Constraints
    p: float
    b: Array
    equality: NDArray[np.bool_]
    cap: float | None = None

    @property
    def q(self) -> float:
        """The dual exponent."""
        return self.p / (self.p - 1)

    @property
    def is_plain(self) -> bool:
        """Whether every row is an inequality with b = 1 and a hard margin."""
        return self.cap is None and bool((self.b == 1).all())

    def at(self, p: float) -> Program:
        """The same program at another exponent."""
        return Program(self.constraints, p, self.b, self.equality, self.cap)


class Bounds:
    """The least upper bound with its w, and the greatest lower bound with its lam, so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.upper = np.inf
        self.lower = 0.0
        self.w: Array | None = None
        self.lam: Array | None = None
        self._margin_rows = program.b == 1
        self._homogeneous = ~self._margin_rows
        self._row_norms = (
            program.constraints.row_norms(program.q)[self._homogeneous]
            if self._homogeneous.any()
            else None
        )
        if program.cap is not None:
            # No w needs to separate: w = 0 pays for every row.
            self.w = np.zeros(program.constraints.num_unknowns)
            self.upper = program.cap * float(program.b.sum())

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else np.inf

    def see_primal(self, w: Array, y: Array) -> None:
        """Take in a point w with ``y = A w``."""
        upper, scale = self.primal_bound(w, y)
        if upper < self.upper:
            self.upper, self.w = upper, w * scale

    def primal_bound(self, w: Array, y: Array) -> tuple[float, float]:
        """The bound that w gives, inf if none, and the factor that makes w feasible."""
        program = self.program
        norm = lp_norm(w, program.p)
        if not np.isfinite(norm) or (norm == 0 and program.cap is None):
            return np.inf, 1.0
        if self._row_norms is not None:
            rest = y[self._homogeneous] / np.maximum(self._row_norms * norm, 1e-300)
            if program.cap is not None:
                rest = np.where(program.equality[self._homogeneous], rest, 0.0)
            short = np.where(program.equality[self._homogeneous], -np.abs(rest), rest)
            if short.min() < -FEASIBILITY:
                return np.inf, 1.0
        if program.cap is None:
            least = float(y[self._margin_rows].min())
            return (norm / least, 1 / least) if least > 0 else (np.inf, 1.0)
        return self._soft_bound(norm, y)

    def _soft_bound(self, norm: float, y: Array) -> tuple[float, float]:
        """The better of w as it is, and w so long that no row falls short."""
        program = self.program
        assert program.cap is not None
        shortfall = float(np.maximum(program.b - y, 0.0)[~program.equality].sum())
        upper = float(np.power(norm, program.p) / program.p + program.cap * shortfall)
        least = float(y[self._margin_rows].min())
        if least > 0 and self._row_norms is None:
            scale = (1 + 1e-15) / least
            longer = float(np.power(norm * scale, program.p) / program.p)
            if longer < upper:
                return longer, scale
        return upper, 1.0

    def see_dual(self, lam: Array, u: Array) -> None:
        """Take in multipliers ``lam`` (within their signs) with ``u = A' lam``."""
        program = self.program
        total = float(program.b @ lam)
        norm = lp_norm(u, program.q)
        if not (np.isfinite(norm) and total > 0):
            return
        if program.cap is None:
            lower = total / norm if norm > 0 else np.inf
        else:
            lower = total - np.power(norm, program.q) / program.q
        if lower > self.lower:
            self.lower, self.lam = float(lower), lam.copy()
