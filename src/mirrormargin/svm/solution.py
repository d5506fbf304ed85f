r"""What a solve returns: a record that carries its certificate and can check itself again.

With the multipliers lam scaled to the solution, the optimality conditions are

    sign(w) |w|^(p-1) = A' lam,    A w >= b,    lam >= 0,    lam_k (<w, a_k> - b_k) = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import MarginBelowError, NotSeparableError, SolverError
from mirrormargin.geometry import lp_norm, signed_power
from mirrormargin.svm.interior.exact_measures import measure_exactly
from mirrormargin.svm.interior.infeasibility import bound_margin
from mirrormargin.svm.interior.program import (
    FEASIBILITY,
    Outcome,
    Program,
    Status,
    measure_gap,
    rounding,
)

__all__ = [
    "SUPPORT",
    "CertifiedSolution",
    "FarkasCertificate",
    "MaxMarginSolution",
    "Residuals",
    "collect_fields",
    "make_certificate",
]

Array = NDArray[np.float64]

SUPPORT = 1e-4
"""A row belongs to the support when it exceeds its right-hand side by at most this."""


@dataclass(frozen=True)
class Residuals:
    """How far a solution is from each optimality condition; all are relative, 0 is perfect.

    Attributes:
        primal: Largest shortfall of a row: absolute where ``b = 1``, as a share of
            ``|a_k|_q |w|_p`` where ``b = 0``.
        dual: Largest multiplier of the wrong sign, as a share of the largest multiplier.
        stationarity: ``|psi'(w) - A' lam|_q / |psi'(w)|_q``.
        complementarity: ``sum_k lam_k (<w, a_k> - b_k) / <b, lam>``, at most the gap.
        gap: Quotient of the two bounds on the optimum, minus one.
        rounding: What floating point may hide of the gap.
    """

    primal: float
    dual: float
    stationarity: float
    complementarity: float
    gap: float
    rounding: float


@dataclass(frozen=True, eq=False, repr=False)
class FarkasCertificate:
    """Nonnegative multipliers of sum one under which the rows cancel, exactly or nearly.

    Attributes:
        duals: In the shape of the solution's duals.
        bound: At least ``|A' lam|_q / max_k |a_k|_q``: no w has a larger margin, in units of the
            largest row. With a proof the margin is zero, and this is what rounding leaves of it.
        identical: ``(sequence, selected token, other token)`` where two equal tokens are to be
            told apart.
        proof: What proves that nothing separates: ``"rational numbers"``, ``multipliers`` cancel
            the rows as they were given without a rest; ``"error bounds"``, so do the duals once
            each is changed by at most the share ``change``, below one. None: the bound is proved,
            but not that nothing separates.
        multipliers: The exact multipliers by their index in ``duals``, as fractions; None unless
            the proof is in rational numbers.
        change: See ``proof``.
    """

    duals: Array
    bound: float
    identical: tuple[int, int, int] | None = None
    proof: Literal["rational numbers", "error bounds"] | None = None
    multipliers: dict[tuple[int, ...], Fraction] | None = None
    change: float = 0.0

    def __repr__(self) -> str:
        return (
            f"FarkasCertificate(proof={self.proof!r}, bound={self.bound:.1e},"
            f" duals={int((self.duals > 0).sum())} of {self.duals.size} positive,"
            f" identical={self.identical})"
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CertifiedSolution(ABC):
    """What every solve returns.

    Attributes:
        tol: The gap that was asked for.
        status: How the solve ended, see :class:`Status`.
        gap: Upper bound on the least norm over lower bound, minus one; with a soft margin the
            same of the objective.
        duals: Multipliers of the constraints.
        support: Which constraints are tight, within 1e-4 of their right-hand side.
        margin: One over the norm of the solution, zero if nothing separates.
        iterations: Newton steps.
        method: How the Newton systems were solved.
        certificate: Why nothing separates, or None.
    """

    tol: float
    status: Status
    gap: float
    duals: Array
    support: NDArray[np.bool_]
    margin: float
    iterations: int
    method: str
    certificate: FarkasCertificate | None = None
    lam: Array

    remedy: ClassVar[str] = "change the selection, or use a soft margin, C=..."

    def __repr__(self) -> str:
        exponent = f"p={self.p:g}, " if isinstance(self, MaxMarginSolution) else ""
        return (
            f"{type(self).__name__}({exponent}status={str(self.status)!r},"
            f" margin={self.margin:.6g}, gap={self.gap:.1e},"
            f" support={int(self.support.sum())} of {self.lam.size},"
            f" iterations={self.iterations}, method={self.method!r})"
        )

    @abstractmethod
    def residuals(self) -> Residuals:
        """Measure the optimality conditions again, from the problem's own arrays."""

    def is_optimal(self, tol: float | None = None) -> bool:
        """Whether the conditions hold, measured again, with a gap of at most ``tol``."""
        tol = self.tol if tol is None else tol
        r = self.residuals()
        feasible = r.primal <= FEASIBILITY + r.rounding and r.dual == 0.0
        # The gap is blind to the size of w, complementarity is not.
        return bool(feasible and max(r.gap, r.complementarity, 0.0) + r.rounding <= tol)

    def check(self) -> None:
        """Raise the error that fits, unless the solution is certified.

        Raises:
            NotSeparableError: If it is proved that nothing separates.
            MarginBelowError: If neither that could be proved nor anything found that separates.
            SolverError: If the gap is above ``tol``.
        """
        if self.status is Status.OPTIMAL:
            return
        certificate = self.certificate
        if certificate is not None and certificate.identical is not None:
            i, a, t = certificate.identical
            raise NotSeparableError(
                f"no W separates: in sequence {i} the selected token {a} equals token {t}, so no"
                " attention can prefer it; remove one of the two",
                self,
            )
        if certificate is not None and self.status is Status.INFEASIBLE:
            count = int((certificate.duals != 0).sum())
            constraints = "1 constraint cancels" if count == 1 else f"{count} constraints cancel"
            raise NotSeparableError(
                f"nothing separates: {constraints} exactly, as {certificate.proof} prove (see the"
                f" error's certificate): {self.remedy}",
                self,
            )
        if certificate is not None and self.status is Status.MARGIN_BELOW:
            raise MarginBelowError(
                f"the margin is below {certificate.bound:.1e} of the largest constraint: nothing"
                " that separates was found in float64, nor a proof that there is nothing:"
                f" {self.remedy}",
                self,
            )
        if certificate is not None:
            raise SolverError(
                f"{self.status}: the margin is at most {certificate.bound:.1e} of the largest"
                f" constraint and no separating solution was found: {self.remedy}",
                self,
            )
        if self.status is Status.MAX_ITERATIONS:
            raise SolverError(
                f"stopped after {self.iterations} iterations at a gap of {self.gap:.1e}, above the"
                f" {self.tol:.1e} asked for: raise max_iter or tol",
                self,
            )
        if not np.isfinite(self.gap):
            raise SolverError(f"no solution: {self.method}", self)
        raise SolverError(
            f"reached a gap of {self.gap:.1e}, above the {self.tol:.1e} asked for, and rounding"
            f" alone may hide {self.residuals().rounding:.1e}: raise tol",
            self,
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MaxMarginSolution(CertifiedSolution):
    """A solution of ``min |w|_p  s.t.  A w >= b``, or of its soft variant.

    The multipliers are scaled so that ``psi_p'(w) = A' lam``.

    Attributes:
        p: The exponent.
    """

    p: float
    program: Program
    w: Array

    def residuals(self) -> Residuals:
        """Measure the optimality conditions again, from the problem's own arrays."""
        program, w, lam = self.program, self.w, self.lam
        if not np.isfinite(w).all():
            return Residuals(*[np.inf] * 5, rounding=0.0)
        constraints = program.constraints
        free = program.equality
        y, u = constraints.apply(w), constraints.adjoint(lam)
        gap, hidden = measure_gap(program, w, lam), rounding(program, w, lam)
        # Twice: the solver may have measured exactly, and then made w a little longer.
        if gap + hidden > self.tol and (exact := measure_exactly(program, w, lam, 2 * hidden)):
            y, u, gap, hidden = exact.y, exact.u, exact.gap, exact.rounding
        slack = y - program.b
        relative = np.where(
            program.b == 1, 1.0, constraints.row_norms(program.q) * lp_norm(w, program.p)
        )
        shortfall = np.where(free, np.abs(slack), np.maximum(-slack, 0.0)) / np.maximum(
            relative, 1e-300
        )
        excess = np.maximum(-lam, 0.0)
        products = lam * slack
        if program.cap is not None:
            shortfall = np.where(free, shortfall, 0.0)
            excess = np.maximum(excess, lam - program.cap)
            products = lam * np.maximum(slack, 0.0)
            products = products + (program.cap - lam) * np.maximum(-slack, 0.0)
            products = np.where(free, lam * slack, products)
        products = np.where(free, np.abs(products), products)
        gradient = signed_power(w, program.p - 1)
        mismatch = gradient - u
        total = float(program.b @ lam)
        # With a soft margin w may be zero: then what the rows add up to is the measure.
        norms = constraints.row_norms(program.q)
        size = max(lp_norm(gradient, program.q), 1e-8 * float(np.abs(lam) @ norms), 1e-300)
        return Residuals(
            primal=float(shortfall.max()),
            dual=float(np.where(free, 0.0, excess).max() / np.abs(lam).max()),
            stationarity=lp_norm(mismatch, program.q) / size,
            complementarity=float(products.sum()) / total,
            gap=gap,
            rounding=hidden,
        )


def make_certificate(
    program: Program, outcome: Outcome, shaped: Callable[[NDArray[Any]], NDArray[Any]]
) -> FarkasCertificate:
    """What is proved where there is no w; ``shaped`` brings rows to the caller's shape."""
    lam, proof = outcome.farkas, outcome.proof
    assert lam is not None
    certificate = FarkasCertificate(shaped(lam), bound_margin(program, lam))
    if proof is None:
        return certificate
    if proof.multipliers is None:
        return replace(certificate, proof=proof.kind, change=proof.change)
    index = shaped(np.arange(1, len(lam) + 1))
    multipliers = {
        tuple(map(int, np.argwhere(index == k + 1)[0])): value
        for k, value in sorted(proof.multipliers.items())
    }
    return replace(certificate, proof=proof.kind, multipliers=multipliers)


def collect_fields(
    program: Program, outcome: Outcome, tol: float, shaped: Callable[[NDArray[Any]], NDArray[Any]]
) -> dict[str, Any]:
    """The fields of :class:`MaxMarginSolution`; ``shaped`` brings rows to the caller's shape."""
    w, lam, certificate = outcome.w, outcome.lam, None
    if w is None or lam is None:
        assert outcome.farkas is not None
        w, lam = np.full(program.constraints.num_unknowns, np.nan), outcome.farkas
        certificate = make_certificate(program, outcome, shaped)
        margin, tight = 0.0, np.zeros(len(lam), bool)
    else:
        margin = 1 / lp_norm(w, program.p) if w.any() else np.inf
        tight = program.constraints.apply(w) - program.b <= SUPPORT
    return {
        "p": program.p,
        "tol": tol,
        "status": outcome.status,
        "gap": outcome.gap,
        "duals": shaped(lam),
        "support": shaped(tight),
        "margin": margin,
        "iterations": outcome.iterations,
        "method": outcome.method,
        "certificate": certificate,
        "program": program,
        "w": w,
        "lam": lam,
    }
