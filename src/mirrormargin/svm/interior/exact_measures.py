r"""What a w and multipliers are worth where rounding hides it: leads and gaps, exactly.

With a margin of 1e-12 of the rows, ``<w, a_k>`` and ``A' lam`` lose twelve digits in float64. For w
and lam as they are, float64 numbers, both are rational, and integers compute them without a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm
from mirrormargin.svm.interior.constraints import MatrixConstraints
from mirrormargin.svm.interior.exact_rows import ExactRows
from mirrormargin.svm.interior.program import Program

__all__ = [
    "UNIT",
    "Measures",
    "find_exact_rows",
    "find_lead",
    "measure_exactly",
    "scale_to_lead",
]

Array = NDArray[np.float64]

UNIT = float(np.finfo(np.float64).eps) / 2
EXACT_PRODUCTS = 5_000_000  # of integers, to evaluate the rows once
HIDDEN = 1e-8  # rounding above which exact measures are worth their time


@dataclass(frozen=True)
class Measures:
    """``A w`` and ``A' lam``, each rounded once, and the gap that they prove.

    ``rounding`` is what the norms of w and ``A' lam``, the only sums in float64, may hide of it.
    """

    y: Array
    u: Array
    gap: float
    rounding: float


def measure_exactly(program: Program, w: Array, lam: Array, hidden: float) -> Measures | None:
    """Measure a hard margin with integers.

    Args:
        program: The rows.
        w: With ``A w >= 1``, up to its rounding.
        lam: Nonnegative multipliers.
        hidden: What rounding hides of the gap in float64.

    Returns:
        None where float64 is good enough, or integers would take too long.
    """
    constraints = program.constraints
    small = constraints.num_rows * constraints.num_unknowns <= EXACT_PRODUCTS
    if hidden < HIDDEN or not (program.is_plain and small and lam.any()):
        return None
    if not (np.isfinite(w).all() and np.isfinite(lam).all() and lam.min() >= 0):
        return None
    rows = find_exact_rows(program)
    leads = rows.apply(w)
    used = np.flatnonzero(lam)
    shares = [Fraction(float(x)) for x in lam[used]]
    unit, size = rows.take(used).combine(shares)
    least, total = min(leads), sum(shares, Fraction(0))
    y = np.array([float(x) for x in leads])
    u = unit * float(size)
    norms = lp_norm(w, program.p), lp_norm(unit, program.q)
    if not (least > 0 and size > 0 and min(norms) > 0):
        return Measures(y, u, np.inf, 0.0)
    # Huge and tiny factors cancel one another: their logarithms stay in range.
    ratio = size / least / total
    log = math.log(ratio.numerator) - math.log(ratio.denominator) + sum(map(math.log, norms))
    terms = constraints.num_unknowns + 64
    return Measures(y, u, math.expm1(min(log, 700.0)), 8 * terms * UNIT)


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
