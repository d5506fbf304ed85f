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

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import Constraints, TokenConstraints
from mirrormargin.svm.interior.exact_decision import Decision, decide_exactly
from mirrormargin.svm.interior.exact_measures import UNIT, find_exact_rows
from mirrormargin.svm.interior.program import Program, Proof, cancellation

__all__ = ["bound_margin", "decide", "prove_with_error_bounds"]

Array = NDArray[np.float64]

SPANNING_ENTRIES = 4_000_000  # of C, beyond which error bounds are not tried
EXACT_ROWS = 400  # the most that are decided in rational numbers
EXACT_DIM = 4_000  # unknowns
EXPONENTS = 900  # of two, to which entries of rows and their quotients may go in float64
SMALLEST_WEIGHT = 1e-30  # of the largest multiplier, for error bounds
SMALLEST_PART = 1e-9  # of the largest multiplier: rows below have no part in a proof


def prove_with_error_bounds(program: Program, lam: Array) -> Proof | None:
    """Prove that multipliers near ``lam`` cancel the rows exactly; None without success."""
    constraints, free = program.constraints, program.equality
    top = np.abs(lam).max()
    weights = np.where(free, top, lam)
    used = np.flatnonzero(weights > SMALLEST_WEIGHT * top)
    if len(used) * constraints.num_unknowns > SPANNING_ENTRIES or _may_underflow(program):
        return None
    A = _take_rows(constraints, used)
    A = A[:, A.any(axis=0)]  # where all rows are zero there is nothing to cancel
    s, D = A.shape
    if not 0 < D <= s:
        return None
    # Unknowns in units of their largest entry: an exact change of the equations, by powers of two.
    A = np.ldexp(A, -np.frexp(np.abs(A).max(axis=0))[1])
    C = A.T * weights[used]
    # Each entry of A carries the rounding of a difference and of a product; C one more.
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


def _may_underflow(program: Program) -> bool:
    """Whether entries of the rows are too small or too far apart for relative error bounds."""
    constraints = program.constraints
    if isinstance(constraints, TokenConstraints):
        factors = [constraints.delta, constraints.queries]
        sizes = [np.abs(factor[factor != 0]) for factor in factors]
        low, high = (sum(float(np.log2(end(size))) for size in sizes) for end in (np.min, np.max))
    else:
        low, high = find_exact_rows(program).find_exponents()
    return not (low > -EXPONENTS and high < EXPONENTS and high - low < EXPONENTS)


def decide(program: Program, lam: Array) -> tuple[Decision, NDArray[np.intp]] | None:
    """Decide in rational numbers, with multipliers from floating point as a hint.

    Args:
        program: What may separate or not.
        lam: Multipliers; their largest rows are looked at first.

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
    complete = m <= EXACT_ROWS
    chosen = np.arange(m) if complete else np.sort(support)
    if len(chosen) > EXACT_ROWS:
        return None
    index = {int(k): i for i, k in enumerate(chosen)}
    first = [index[int(k)] for k in support]
    rows = find_exact_rows(program).take(chosen)
    decision = decide_exactly(rows, program.b[chosen], program.equality[chosen], first)
    if decision is None or (decision.separates and not complete):
        return None
    return decision, chosen


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
    A = np.empty((len(used), constraints.num_unknowns))
    lam = np.zeros(constraints.num_rows)
    for i, k in enumerate(used):
        lam[k] = 1.0
        A[i] = constraints.adjoint(lam)
        lam[k] = 0.0
    return A
