r"""Proofs that no w separates, and what to say where there is neither a proof nor a w.

Multipliers found in floating point cancel the rows only up to rounding, ``A' lam = rho``, which
proves nothing but a small margin. There are two ways from there to a proof.

**Error bounds.** With ``C = A' diag(lam)``, an approximate right inverse Y and ``E = I - C Y``,

    v = -Y (I - E)^-1 rho   has   C (1 + v) = 0,      |v| <= |Y| |rho| / (1 - |E|)   (max norms),

so if the bound is below one, the multipliers ``lam (1 + v)`` are positive and cancel the rows
exactly. Every rounding error is bounded and added, those of the rows themselves included. This asks
for positive multipliers on rows that span the space, the usual case of too many constraints.

**Rational numbers.** :func:`decide_exactly` decides small problems, and small parts of large ones:
rows that contradict each other do so whatever the others say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm
from mirrormargin.svm.interior.constraints import Constraints, MatrixConstraints
from mirrormargin.svm.interior.exact_decision import Decision, decide_exactly
from mirrormargin.svm.interior.exact_rows import ExactRows
from mirrormargin.svm.interior.program import Program, Proof, cancellation

__all__ = [
    "bound_margin",
    "decide",
    "find_exact_rows",
    "find_lead",
    "measure_exact_gap",
    "prove_with_error_bounds",
    "scale_to_lead",
]

Array = NDArray[np.float64]

UNIT = float(np.finfo(np.float64).eps) / 2
SPANNING_ENTRIES = 4_000_000  # of C, beyond which error bounds are not tried
EXACT_ROWS = 400  # the most that are decided in rational numbers
EXACT_DIM = 4_000  # unknowns
EXACT_PRODUCTS = 5_000_000  # of integers, to evaluate the rows once
SMALLEST_PART = 1e-9  # of the largest multiplier: rows below have no part in a proof


def prove_with_error_bounds(program: Program, lam: Array) -> Proof | None:
    """Prove that multipliers near ``lam`` cancel the rows exactly; None if that does not succeed.

    The rows may be those of a scaled program: a factor changes no sign, and its rounding is
    counted.
    """
    constraints, free = program.constraints, program.equality
    weights = np.where(free, np.abs(lam).max(), lam)
    used = np.flatnonzero(weights > 0)
    if len(used) * constraints.num_unknowns > SPANNING_ENTRIES:
        return None
    A = _take_rows(constraints, used)
    A = A[:, A.any(axis=0)]  # where all rows are zero there is nothing to cancel
    s, D = A.shape
    if not 0 < D <= s:
        return None
    # Unknowns in units of their largest entry: an exact change of the equations, by powers of two.
    A = np.ldexp(A, -np.frexp(np.abs(A).max(axis=0))[1])
    C = A.T * weights[used]
    # Each entry of A carries the rounding of a difference, a product and a scale; C one more.
    slop = (s + 8) * UNIT * 1.01
    size = np.abs(A).T @ np.abs(lam[used])
    rho = float((np.abs(A.T @ lam[used]) + slop * size).max())
    try:
        Q, R = np.linalg.qr(C.T)
        Y = scipy.linalg.solve_triangular(R, Q.T, trans=0, lower=False, check_finite=False).T
    except (np.linalg.LinAlgError, scipy.linalg.LinAlgError):
        return None
    if not np.isfinite(Y).all():
        return None
    E = np.abs(np.eye(D) - C @ Y) + slop * (np.abs(C) @ np.abs(Y)) + UNIT
    error = float(E.sum(axis=1).max()) * (1 + 1e-9)
    inequality = ~free[used]
    if not error < 0.5 or not (program.b[used] == 1).any():
        return None
    change = float(np.abs(Y[inequality]).sum(axis=1).max()) * rho / (1 - error) * (1 + 1e-9)
    if not change < 1:
        return None
    return Proof("error bounds", change=change)


def decide(
    program: Program, lam: Array, *, whole: bool = True
) -> tuple[Decision, NDArray[np.intp]] | None:
    """Decide in rational numbers, with multipliers from floating point as a hint.

    Args:
        program: What may separate or not.
        lam: Multipliers; their largest rows are looked at first.
        whole: Whether all rows may be looked at.

    Returns:
        The decision and the rows it is about: all of them, or where they are too many those of the
        proof; None where it would take too long, or a part of the rows separates.
    """
    constraints = program.constraints
    m = constraints.num_rows
    if constraints.num_unknowns > EXACT_DIM or not np.isfinite(lam).all():
        return None
    weight = np.where(program.equality, np.inf, np.abs(lam))
    order = np.argsort(-weight, kind="stable")
    top = np.abs(lam).max()
    support = order[weight[order] > SMALLEST_PART * top]
    complete = whole and m <= EXACT_ROWS
    chosen = np.arange(m) if complete else np.sort(support)
    if len(chosen) > EXACT_ROWS:
        return None
    place = {int(k): i for i, k in enumerate(chosen)}
    first = [place[int(k)] for k in support if int(k) in place]
    rows = find_exact_rows(program).take(chosen)
    decision = decide_exactly(rows, program.b[chosen], program.equality[chosen], first)
    if decision is None or (decision.separates and not complete):
        return None
    return decision, chosen


def find_exact_rows(program: Program) -> ExactRows:
    """The rows as the caller gave them, without the rounding of differences and products."""
    if program.exact_rows is not None:
        return program.exact_rows()
    return ExactRows.of_matrix(program.constraints.matrix)


def find_lead(program: Program, w: Array) -> float:
    """The least lead of w over the rows with b = 1: positive only if w, as it is, separates.

    In floating point where that is sure of the sign, exactly elsewhere; nan if that would take too
    long. float64 holds equalities only up to rounding: they, and rows with b = 0, may be missed by
    less than the least lead, or there is none.
    """
    constraints = program.constraints
    norm = lp_norm(w, program.p)
    with np.errstate(over="ignore", invalid="ignore"):
        y = constraints.apply(w)
        is_matrix = isinstance(constraints, MatrixConstraints)
        unknowns = constraints.num_unknowns
        terms = unknowns if is_matrix else 2 * int(np.sqrt(unknowns))
        noise = (terms + 8) * UNIT * 1.01 * constraints.row_norms(program.q) * norm
    needed = program.b == 1
    missed = np.where(program.equality, np.abs(y), -y)[~needed]
    least = float((y - noise)[needed].min())
    if least > max((missed + noise[~needed]).max(initial=-np.inf), 0.0):
        return float(y[needed].min())
    if (y < -noise)[needed].any() or not np.isfinite(w).all():
        return -np.inf
    if constraints.num_rows * unknowns > EXACT_PRODUCTS:
        return np.nan
    exact = np.array(find_exact_rows(program).apply(w), object)
    short = np.where(program.equality, abs(exact), -exact)[~needed]
    lead = min(exact[needed])
    return float(lead) if lead > max([*short, 0]) else -np.inf


def scale_to_lead(program: Program, w: Array) -> Array | None:
    """w divided by its least lead, None if it has none; what comes out still separates."""
    lead = find_lead(program, w)
    if not lead > 0:
        return None
    scaled = w / lead
    if find_lead(program, scaled) > 0:
        return scaled
    # The division rounds; one by a power of two does not.
    return np.ldexp(w, 1 - int(np.frexp(lead)[1]))


def measure_exact_gap(program: Program, w: Array, lam: Array) -> float:
    """The gap between a w of least lead one and multipliers, where rounding hides that lead."""
    rows = find_exact_rows(program)
    largest = float(np.abs(lam).max())
    shares = {k: Fraction(float(x)) for k, x in enumerate(lam / largest) if x}
    u, size = Decision(True, shares).combine(rows)
    lead = min(x for x, b in zip(rows.apply(w), program.b, strict=True) if b)
    total = sum(value for k, value in shares.items() if program.b[k])
    # The factors cancel one another in size: their logarithms stay in range.
    factors = lp_norm(w, program.p), lp_norm(u, program.q)
    if not (min(factors) > 0 and total > 0):
        return np.inf
    log = sum(map(math.log, factors)) + _log(size) - _log(lead) - _log(Fraction(total))
    return math.expm1(min(log, 700.0))


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator)


def bound_margin(program: Program, lam: Array) -> float:
    """An upper bound on the margin, as a share of the largest row, that rounding cannot spoil."""
    norms = program.constraints.row_norms(program.q)
    total, largest = float(program.b @ lam), float(norms.max())
    if largest == 0:
        return 0.0
    slop = (program.constraints.num_rows + 8) * UNIT * 1.01
    rounding = slop * float(np.abs(lam) @ norms) / largest
    return (cancellation(program, lam) + rounding) / total * (1 + 1e-9)


def _take_rows(constraints: Constraints, used: NDArray[np.intp]) -> Array:
    if constraints.num_rows * constraints.num_unknowns <= SPANNING_ENTRIES:
        return constraints.matrix[used]
    unit: Callable[[int], Array] = lambda k: np.eye(1, constraints.num_rows, k)[0]  # noqa: E731
    return np.stack([constraints.adjoint(unit(int(k))) for k in used])

