r"""Max-margin problems, separable, not separable and in between, and every answer checked exactly.

The rows are made again here, in fractions, from the arrays that the solver was given:

    optimal         (|W|_p / min_k <W, A_k>) (|A' lam|_q / sum lam) - 1 <= tol
    infeasible      multipliers >= 0 of sum one that cancel the rows without a rest
    margin below    |A' lam|_q / max_k |A_k|_q is at most the bound
    any W           min_k <W, A_k> > 0

Only norms are not fractions; they are computed to 60 digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.errors import ProblemError
from mirrormargin.svm import (
    solve_attention_svm,
    solve_decoder_svm,
    solve_many,
    solve_nuclear_svm,
)
from tools.soak.svm_problems import Case, make_case
from tools.soak.trial import Outcome, Trial

__all__ = ["SVM", "check_solution", "solve"]

Array = NDArray[Any]

FEASIBILITY = Fraction(1, 10**9)  # what rows with b = 0 may miss, as a share of |a|_q |W|_p
DIGITS = 60


def try_case(rng: Generator, folder: Path) -> Outcome:
    case = make_case(rng)
    try:
        solution = solve(case)
    except ProblemError as error:
        if "floating point" not in str(error):
            raise
        return Outcome("refused", f"{case.describe()}: {error}")
    wrong = check_solution(case, solution)
    what = f"{case.describe()}: {solution.status}, gap {solution.gap:.1e}"
    if wrong is not None:
        return Outcome("wrong", f"{what}: {wrong}")
    told = solution.status in ("optimal", "infeasible")
    return Outcome("held" if told else "refused", what)


def solve(case: Case) -> Any:
    """The product's answer."""
    X, z, selection = case.tokens, case.queries, case.selection
    if case.solver == "nuclear":
        return solve_nuclear_svm(X, z, selection, max(case.tol, 1e-6), raise_on_failure=False)
    if case.solver == "decoder":
        labels = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
        features = (X[:, 0] - X[:, 1]) * labels[:, None]
        return solve_decoder_svm(features, labels, case.p, case.tol, raise_on_failure=False)
    if case.solver == "many":
        problem = AttentionProblem(X, z, np.ones(len(X)), np.ones(X.shape[2]))
        solved = solve_many(problem, selection, case.p, case.tol, raise_on_failure=False)
        return solved[0, 0, 0]
    return solve_attention_svm(
        *(X, z, selection, case.p, case.tol),
        rhs=case.rhs,
        compiled=case.solver == "one",
        raise_on_failure=False,
    )


# --- exact checks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """A in fractions, with what each row asks for and where its multiplier is in ``duals``."""

    A: list[list[Fraction]]
    b: list[int]
    equality: list[bool]
    index: list[tuple[int, ...]]


def _make_rows(case: Case) -> _Rows:
    X, z = case.tokens, case.queries
    n, T, _ = X.shape
    rows = _Rows([], [], [], [])
    if case.solver == "decoder":
        for i in range(n):
            rows.A.append([Fraction(float(x)) for x in X[i, 0] - X[i, 1]])
            rows.b.append(1)
            rows.equality.append(False)
            rows.index.append((i,))
        return rows
    several = case.selection.dtype == np.bool_
    for i in range(n):
        first = int(np.argmax(case.selection[i])) if several else int(case.selection[i])
        query = [Fraction(float(x)) for x in z[i]]
        for t in range(T):
            if t == first:
                continue
            pairs = zip(X[i, first], X[i, t], strict=True)
            delta = [Fraction(float(a)) - Fraction(float(c)) for a, c in pairs]
            equal = bool(several and case.selection[i, t])
            rows.A.append([a * c for a in delta for c in query])
            rows.b.append(0 if equal or (case.rhs is not None and case.rhs[i] == 0) else 1)
            rows.equality.append(equal)
            rows.index.append((i, t))
    return rows


def check_solution(case: Case, solution: Any) -> str | None:
    """What is wrong with an answer, None if nothing is."""
    rows = _make_rows(case)
    status = str(solution.status)
    with mpmath.workdps(DIGITS):
        if status == "infeasible":
            return _check_proof(rows, solution)
        if status == "margin below":
            return _check_bound(case, rows, solution)
        w = _weights(case, solution)
        if not np.isfinite(w).all():
            return None if status in ("max iterations", "cannot certify") else "W is not finite"
        return _check_weights(case, rows, solution, w, certified=status == "optimal")


def _weights(case: Case, solution: Any) -> Array:
    return np.asarray(solution.v if case.solver == "decoder" else solution.W, float).reshape(-1)


def _check_weights(
    case: Case, rows: _Rows, solution: Any, w: Array, *, certified: bool
) -> str | None:
    exact = [Fraction(float(x)) for x in w]
    y = [sum(a * x for a, x in zip(row, exact, strict=True)) for row in rows.A]
    least = min(value for value, b in zip(y, rows.b, strict=True) if b)
    if not least > 0:
        return f"a lead of W is {float(least):.1e}"
    if not certified:
        return None
    size, q = _norm(case, exact), case.p / (case.p - 1)
    for value, row, b, equal in zip(y, rows.A, rows.b, rows.equality, strict=True):
        short = abs(value) if equal else -value
        if b == 0 and short > 0 and _to_float(short) > 1.01e-9 * _lp(row, q) * size:
            return f"a row with b = 0 is missed by {float(short):.1e}"
    if abs(float(least) - 1) > 1.1 * max(case.tol, 1e-6):
        return f"the least lead of W is {float(least)!r}"
    if not solution.is_optimal():
        return f"it does not pass its own check: {solution.residuals()}"
    lam = [Fraction(float(solution.duals[i])) for i in rows.index]
    if any(x < 0 for x, equal in zip(lam, rows.equality, strict=True) if not equal):
        return "a multiplier is negative"
    total = sum(x * b for x, b in zip(lam, rows.b, strict=True))
    gap = size / _to_float(least) * _norm(case, _combine(rows, lam), dual=True) / _to_float(total)
    # Rows with b = 0 that are missed within the tolerance lower the norm by up to their price.
    prices = [
        abs(x) * (abs(v) if e else max(-v, Fraction(0)))
        for x, v, b, e in zip(lam, y, rows.b, rows.equality, strict=True)
        if b == 0
    ]
    missed = _to_float(sum(prices, Fraction(0)) / total)
    tol = max(case.tol, 1e-6) if case.solver == "nuclear" else case.tol
    if not gap - 1 + missed <= tol * (1 + 1e-12):
        return f"the gap is {float(gap - 1 + missed):.3e}, above {tol:.0e}"
    return None


def _check_proof(rows: _Rows, solution: Any) -> str | None:
    certificate = solution.certificate
    if certificate.proof == "rational numbers":
        lam = [certificate.multipliers.get(i, Fraction(0)) for i in rows.index]
        if any(i not in rows.index for i in certificate.multipliers):
            return "a multiplier belongs to no row"
    else:
        lam = _complete(rows, [Fraction(float(certificate.duals[i])) for i in rows.index])
        if lam is None:
            return "no exact multipliers were found near those of the proof"
    if any(x < 0 for x, equal in zip(lam, rows.equality, strict=True) if not equal):
        return "a multiplier of the proof is negative"
    if any(_combine(rows, lam)):
        return "the rows do not cancel"
    if not sum(x * b for x, b in zip(lam, rows.b, strict=True)) > 0:
        return "the multipliers ask for nothing"
    return None


def _check_bound(case: Case, rows: _Rows, solution: Any) -> str | None:
    certificate, q = solution.certificate, case.p / (case.p - 1)
    lam = [Fraction(float(certificate.duals[i])) for i in rows.index]
    if any(x < 0 for x, equal in zip(lam, rows.equality, strict=True) if not equal):
        return "a multiplier of the bound is negative"
    total = sum(x * b for x, b in zip(lam, rows.b, strict=True))
    largest = max(_lp(row, q) for row in rows.A)
    bound = _lp(_combine(rows, lam), q) / _to_float(total) / largest
    if not bound <= certificate.bound:
        return f"the bound is {float(bound):.2e}, not {certificate.bound:.2e}"
    return None


def _combine(rows: _Rows, lam: list[Fraction]) -> list[Fraction]:
    used = [(x, row) for x, row in zip(lam, rows.A, strict=True) if x]
    return [sum((x * row[j] for x, row in used), Fraction(0)) for j in range(len(rows.A[0]))]


def _complete(rows: _Rows, lam: list[Fraction]) -> list[Fraction] | None:
    """The nearest multipliers that cancel the rows, each counted relative to its size.

    ``lam + diag(lam)^2 A x`` with ``A' diag(lam)^2 A x = -A' lam``, solved by elimination.
    """
    largest = max(abs(x) for x in lam)
    weights = [(largest if equal else x) ** 2 for x, equal in zip(lam, rows.equality, strict=True)]
    D = len(rows.A[0])
    used = [(w, row) for w, row in zip(weights, rows.A, strict=True) if w]
    system = [
        [sum((w * row[i] * row[j] for w, row in used), Fraction(0)) for j in range(D)] + [-rest]
        for i, rest in enumerate(_combine(rows, lam))
    ]
    pivots: list[int] = []
    for column in range(D):
        found = next((k for k in range(len(pivots), D) if system[k][column]), None)
        if found is None:
            continue
        k = len(pivots)
        system[k], system[found] = system[found], system[k]
        unit = system[k][column]
        system[k] = [a / unit for a in system[k]]
        for other in range(D):
            if other != k and (factor := system[other][column]):
                pairs = zip(system[other], system[k], strict=True)
                system[other] = [a - factor * c for a, c in pairs]
        pivots.append(column)
    if any(line[-1] for line in system[len(pivots) :]):
        return None
    x = [Fraction(0)] * D
    for k, column in enumerate(pivots):
        x[column] = system[k][-1]
    changes = (sum(a * c for a, c in zip(row, x, strict=True)) for row in rows.A)
    return [old + w * d for old, w, d in zip(lam, weights, changes, strict=True)]


def _norm(case: Case, x: list[Fraction], *, dual: bool = False) -> Any:
    if case.solver == "nuclear":
        d = case.tokens.shape[2]
        size = mpmath.svd_r(mpmath.matrix(d, d) + _to_matrix(x, d), compute_uv=False)
        return max(size) if dual else sum(size)
    return _lp(x, case.p / (case.p - 1) if dual else case.p)


def _to_matrix(x: list[Fraction], d: int) -> Any:
    return mpmath.matrix([[_to_float(value) for value in x[i * d : i * d + d]] for i in range(d)])


def _lp(x: list[Fraction], p: float) -> Any:
    largest = max(abs(value) for value in x)
    if largest == 0:
        return mpmath.mpf(0)
    exponent = mpmath.mpf(p)
    total = mpmath.fsum(_to_float(abs(value) / largest) ** exponent for value in x if value)
    return _to_float(largest) * total ** (1 / exponent)


def _to_float(x: Fraction | int) -> Any:
    x = Fraction(x)
    return mpmath.mpf(x.numerator) / x.denominator


SVM = Trial(
    name="svm",
    title="attention SVMs, feasible, infeasible and in between, checked exactly",
    number=3000,
    try_case=try_case,
)
