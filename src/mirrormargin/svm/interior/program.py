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

Multipliers also prove that no w separates: if ``lam >= 0`` (free on equalities), ``<b, lam> = 1``
and ``A' lam = 0``, the weighted sum of the rows reads ``0 >= 1``. In floating point the rows cancel
only up to rounding, which bounds the margin,

    min_k <w, a_k> / |w|_p  <=  |A' lam|_q,

but does not prove that it is zero: ``infeasibility.py`` does that, and :class:`Proof` says how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm
from mirrormargin.svm.interior.constraints import DENSE_ENTRIES, Constraints
from mirrormargin.svm.interior.exact_rows import ExactRows

__all__ = [
    "FEASIBILITY",
    "INFEASIBLE_BELOW",
    "ROUNDING_UNIT",
    "Bounds",
    "Outcome",
    "Program",
    "Proof",
    "Status",
    "cancellation",
    "measure_gap",
    "polish_cancellation",
    "rounding",
]

Array = NDArray[np.float64]

FEASIBILITY = 1e-9
"""Rows with b = 0 and equalities hold to this share of ``|a_k|_q |w|_p``."""
INFEASIBLE_BELOW = 1e-12
"""Multipliers that cancel the rows to this share of the largest are worth a proof."""
ROUNDING_UNIT = 2 * float(np.finfo(np.float64).eps)
"""Relative error of a computed row or sum."""
POLISHES = 5


@dataclass(frozen=True)
class Program:
    """Rows, exponent, right-hand side, which rows are equalities, and the price of falling short.

    ``cap`` is the soft margin's C, None for a hard margin. ``exact_rows`` makes the rows as the
    caller gave them, up to one positive factor, where those of ``constraints`` are rounded.
    """

    constraints: Constraints
    p: float
    b: Array
    equality: NDArray[np.bool_]
    cap: float | None = None
    exact_rows: Callable[[], ExactRows] | None = None

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
        return replace(self, p=p)


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


class Status(str, Enum):
    """How a solve ended; compares equal to its text.

    ``optimal``: w is certified to the tolerance asked for. ``infeasible``: it is proved that no w
    separates. ``margin below``: neither a w nor such a proof was found, but a bound on the margin
    is proved. ``max iterations`` and ``cannot certify``: a w may have been found, but its gap is
    above the tolerance.
    """

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    MARGIN_BELOW = "margin below"
    MAX_ITERATIONS = "max iterations"
    CANNOT_CERTIFY = "cannot certify"

    __str__ = str.__str__


@dataclass(frozen=True)
class Proof:
    """Why no w separates.

    Attributes:
        kind: ``"rational numbers"``: ``multipliers`` cancel the rows exactly. ``"error bounds"``:
            the float64 multipliers do, once each is changed by at most the share ``change``.
        multipliers: By row, of sum ``<b, lam> = 1``.
        change: Below one, so that no multiplier changes its sign.
    """

    kind: Literal["rational numbers", "error bounds"]
    multipliers: dict[int, Fraction] | None = None
    change: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What the solver found for a program.

    ``w`` is feasible and ``lam`` fits its size, ``psi_p'(w) = A' lam``; both are None where no w
    was found, and ``farkas`` then holds the multipliers that bound the margin; with a ``proof``
    there is no w.
    """

    status: Status
    iterations: int
    method: str
    gap: float
    w: Array | None = None
    lam: Array | None = None
    farkas: Array | None = None
    proof: Proof | None = None


def measure_gap(program: Program, w: Array, lam: Array) -> float:
    """The gap between w and lam, computed from the rows; inf where one of them bounds nothing."""
    inequalities = lam[~program.equality]
    cap = np.inf if program.cap is None else program.cap
    if inequalities.size and not (inequalities.min() >= 0 and inequalities.max() <= cap):
        return np.inf
    bounds = Bounds(program)
    upper, _ = bounds.primal_bound(w, program.constraints.apply(w))
    bounds.see_dual(lam, program.constraints.adjoint(lam))
    return upper / bounds.lower - 1 if bounds.lower > 0 else np.inf


def rounding(program: Program, w: Array, lam: Array) -> float:
    """Bound what rounding errors may hide of the gap.

    With e = :data:`ROUNDING_UNIT`, a computed row ``<w, a_k>`` is off by at most
    ``e |a_k|_q |w|_p``. That counts only where it exceeds the slack of the row, which may then fall
    short in truth; with a soft margin it costs C for each unit. The computed ``|A' lam|_q`` is off
    by at most ``e sum_k |lam_k| |a_k|_q``. Finally, rows with b = 0 are accepted if they fall short
    by up to :data:`FEASIBILITY`, and each unit of that may lower the objective by ``|lam_k|``.

    ``svm.compiled.candidates`` measures gap and rounding of many hard margins at once, by the same
    formulas: ``test_candidates_are_measured_like_single_solutions`` compares the two.
    """
    norm = lp_norm(w, program.p)
    norms = program.constraints.row_norms(program.q)
    y = program.constraints.apply(w)
    weighted = ROUNDING_UNIT * float(np.abs(lam) @ norms)
    short = np.where(program.equality, np.abs(y), np.maximum(-y, 0.0))
    missing = float(np.abs(lam[program.b == 0]) @ short[program.b == 0])
    if program.cap is not None:
        upper, _ = Bounds(program).primal_bound(w, y)
        missing = float(np.abs(lam[program.equality]) @ short[program.equality])
        if not 0 < upper < np.inf:
            return 0.0
        unsure = ROUNDING_UNIT * norm * norms
        slack = (y - program.b)[~program.equality]
        unsure = unsure[~program.equality]
        # A row that may fall short pays its price, unless w is made longer for all of them.
        price = program.cap * float(unsure[slack <= unsure].sum()) / upper
        if (slack >= -unsure).all():
            price = min(price, 2 * program.p * float(unsure.max()))
        return price + (weighted * norm + missing) / upper
    unsure = float((ROUNDING_UNIT * norm * norms - (y - 1))[program.b == 1].max())
    size = lp_norm(program.constraints.adjoint(lam), program.q)
    return max(unsure, 0.0) + weighted / size + missing / float(program.b @ lam)


def cancellation(program: Program, lam: Array) -> float:
    """``|A' lam|_q / max_k |a_k|_q`` for multipliers with ``<b, lam> = 1``: bounds the margin."""
    size = lp_norm(program.constraints.adjoint(lam), program.q)
    return 0.0 if size == 0 else size / float(program.constraints.row_norms(program.q).max())


def polish_cancellation(program: Program, lam: Array) -> Array | None:
    """The nearest multipliers whose rows cancel, or None if those are not a proof.

    Nearest relative to each multiplier, ``min |v - 1|  s.t.  A' diag(lam) v = 0``, so that small
    ones do not change sign.
    """
    free = program.equality
    weights = np.where(free, np.abs(lam).max(), lam)
    lam = lam / float(program.b @ lam)
    for _ in range(POLISHES):
        v = _least_squares(program.constraints, weights, -program.constraints.adjoint(lam))
        lam = lam + weights * v
        # A multiplier that would turn negative has no part in the proof.
        lam = np.where(free, lam, np.maximum(lam, 0.0))
        total = float(program.b @ lam)
        if not total > 1e-3:
            return None
        lam = lam / total
        if cancellation(program, lam) <= INFEASIBLE_BELOW:
            return lam
        weights = np.where(free, np.abs(lam).max(), lam)
    return None


def _least_squares(constraints: Constraints, weights: Array, u: Array) -> Array:
    """The shortest v that minimises ``|A' diag(weights) v - u|_2``."""
    if constraints.num_rows * constraints.num_unknowns <= DENSE_ENTRIES / 5:
        scaled = (constraints.matrix * weights[:, None]).T
        solved = scipy.linalg.lstsq(scaled, u, check_finite=False, lapack_driver="gelsy")
        assert solved is not None
        return solved[0]
    operator = _ScaledAdjoint(constraints, weights)
    return scipy.sparse.linalg.lsqr(operator, u, atol=1e-15, btol=1e-15, iter_lim=2000)[0]


class _ScaledAdjoint(scipy.sparse.linalg.LinearOperator):
    """``A' diag(weights)``, never formed."""

    def __init__(self, constraints: Constraints, weights: Array) -> None:
        super().__init__(np.dtype(np.float64), (constraints.num_unknowns, constraints.num_rows))
        self.constraints, self.weights = constraints, weights

    def _matvec(self, x: Array) -> Array:
        return self.constraints.adjoint(self.weights * x.ravel())

    def _rmatvec(self, x: Array) -> Array:
        return self.weights * self.constraints.apply(x.ravel())
