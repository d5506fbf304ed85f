r"""The attention SVM: which W separates each selected token from the others, with least norm.

    W_mm = argmin |W|_p   s.t.   (x_{i,alpha} - x_{i,t})' W z_i >= 1   for all i and t != alpha_i.

Variants: a right-hand side of 0 for chosen sequences (relaxed), several selected tokens in a
sequence, which then attend equally (equalities among them, >= 1 against the rest), and a soft
margin C, ``min (1/p) |W|_p^p + C sum xi`` with ``>= 1 - xi``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import check_exponent
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.compiler import has_numba
from mirrormargin.geometry.threads import ONE_THREAD_BELOW, limit_threads
from mirrormargin.svm.inputs import (
    Jobs,
    check_cap,
    check_limits,
    fits_kernel,
    read_attention,
    read_rhs,
    read_start,
)
from mirrormargin.svm.interior.constraints import MatrixConstraints, TokenConstraints
from mirrormargin.svm.interior.exact_rows import ExactRows
from mirrormargin.svm.interior.program import Outcome, Program, Status
from mirrormargin.svm.interior.solver import refuse_row, solve_program
from mirrormargin.svm.solution import MaxMarginSolution, collect_fields

__all__ = [
    "COMPILED",
    "MAX_ITER",
    "AttentionSVM",
    "build_program",
    "find_identical",
    "reference_tokens",
    "scatter",
    "solve_attention_svm",
    "to_small_matrix",
]

Array = NDArray[np.float64]

MAX_ITER = 200
COMPILED = "compiled interior point"  # the method
DENSE_BELOW = 200_000  # entries of A


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionSVM(MaxMarginSolution):
    """The solution of an attention SVM; see :class:`MaxMarginSolution` for the other fields.

    ``duals`` and ``support`` have shape (n, T) and are zero at the selection (with several
    selected tokens, at the first of them; the others' multipliers belong to equalities and have
    any sign). Without a solution W is nan, margin is 0 and ``duals`` are the certificate's.

    Attributes:
        selection: The selection as given, integers (n,) or booleans (n, T).
    """

    selection: NDArray[Any]

    @property
    def W(self) -> Array:  # noqa: N802 (the name of the papers)
        """The matrix, shape (d, d)."""
        d = math.isqrt(self.w.size)
        return self.w.reshape(d, d)

    @property
    def shortfalls(self) -> Array:
        """xi, shape (n, T): how far each constraint falls short of its right-hand side."""
        slack = self.program.constraints.apply(self.w) - self.program.b
        return scatter(np.maximum(-slack, 0.0), self.selection, self.duals.shape[1])


def solve_attention_svm(
    tokens: ArrayLike | Any,
    queries: ArrayLike | Any,
    selection: ArrayLike | Any,
    p: float = 2.0,
    tol: float = 1e-8,
    *,
    rhs: ArrayLike | Any | None = None,
    C: float | None = None,
    warm_start: AttentionSVM | ArrayLike | None = None,
    max_iter: int = MAX_ITER,
    threads: int | None = None,
    compiled: bool = True,
    raise_on_failure: bool = True,
) -> AttentionSVM:
    """Find the W of least lp norm that gives every selected token a lead of one.

    Args:
        tokens: X, shape (n, T, d), T at least 2.
        queries: z, shape (n, d), none of them zero.
        selection: The selected token of each sequence, integers (n,); or booleans (n, T) with
            one or several selected tokens in each row, but not all.
        p: Exponent of the norm, ``1 < p``; up to 20 is what the solver is tested for.
        tol: Largest relative gap between the norm of W and the proven lower bound.
        rhs: 0 or 1 for each sequence, shape (n,): 0 asks only that no other token leads.
        C: Price of falling short by one, for a soft margin; None for a hard one.
        warm_start: A solution of a similar problem, or its duals (n, T); a help up to p = 5.
        max_iter: Bound on the Newton steps.
        threads: Cores for the linear algebra; None leaves them as they are, but takes one for a
            small problem. The same number gives the same bits.
        compiled: Whether small problems with a hard margin may go to a compiled solver, several
            times faster; the first call on a machine takes about 15 seconds to compile it.
        raise_on_failure: Whether to raise when there is no certified solution; otherwise it is
            returned with its status.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        NotSeparableError: If no W satisfies the constraints; carries the proof.
        MarginBelowError: If neither a solution nor that proof was found; carries a proven bound on
            the margin.
        SolverError: If the gap could not be brought to ``tol``.

    Example:
        >>> solution = solve_attention_svm([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [0], p=2.0)
        >>> solution.W
        array([[ 0.5,  0. ],
               [-0.5,  0. ]])
        >>> solution.status == "optimal"
        True
    """
    X, z, chosen = read_attention(tokens, queries, selection)
    n, T, d = X.shape
    p = check_exponent(p, error=ProblemError)
    program = build_program(X, z, chosen, p, read_rhs(rhs, n), check_cap(C))
    flags = {"compiled": compiled, "raise_on_failure": raise_on_failure}
    check_limits(tol, max_iter, threads, **flags)
    start = None
    if warm_start is not None:
        start = read_start(warm_start, (n, T))[np.arange(T) != reference_tokens(chosen)[:, None]]
    identical = find_identical(X, chosen, program)
    if identical is not None:
        outcome = refuse_row(program, identical[3], "comparison of tokens")
    else:
        outcome = None
        if threads is None and min(n * (T - 1), d * d) <= ONE_THREAD_BELOW:
            threads = 1
        with limit_threads(threads):
            small = program.is_plain and start is None and fits_kernel(n, T, d)
            if compiled and small and has_numba():
                outcome = _solve_compiled(X, z, chosen, program.p, tol, max_iter)
            if outcome is None:
                outcome = solve_program(to_small_matrix(program), tol, max_iter, start)
    solution = _record(program, outcome, tol, chosen, T, identical)
    if raise_on_failure:
        solution.check()
    return solution


def build_program(
    X: Array,
    z: Array,
    chosen: NDArray[Any],
    p: float,
    rhs: Array,
    cap: float | None = None,
) -> Program:
    """One row for each token but the reference, which is the (first) selected one."""
    n, T, d = X.shape
    reference = reference_tokens(chosen)
    others = np.arange(T) != reference[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows has an error of its own
        lead = X[np.arange(n), reference][:, None, :] - X
    equality = (chosen if chosen.dtype == np.bool_ else np.zeros((n, T), bool))[others]
    b = np.where(equality, 0.0, np.repeat(rhs, T - 1))
    rows = TokenConstraints(lead[others].reshape(n, T - 1, d), z)
    return Program(rows, p, b, equality, cap, partial(ExactRows.of_tokens, X, z, reference))


def reference_tokens(chosen: NDArray[Any]) -> NDArray[Any]:
    """The token of each sequence from which the others are told apart, shape (n,)."""
    return chosen.argmax(axis=1) if chosen.dtype == np.bool_ else chosen


def _solve_compiled(
    X: Array, z: Array, chosen: NDArray[Any], p: float, tol: float, max_iter: int
) -> Outcome | None:
    """What the kernel finds, if it is certified."""
    from mirrormargin.svm.compiled.candidates import solve_jobs  # numba is slow to import

    only = np.zeros(1, np.intp)
    jobs = Jobs(X[None], z[None], only, reference_tokens(chosen)[None], np.array([p]))
    candidates = solve_jobs(jobs, 0.5 * tol, max_iter, threads=1)
    gap = float(candidates.gap[0])
    if not gap + float(candidates.rounding[0]) <= tol:
        return None
    w, lam = candidates.W[0].reshape(-1), candidates.lam[0].reshape(-1)
    return Outcome(Status.OPTIMAL, int(candidates.steps[0]), COMPILED, gap, w, lam)


def to_small_matrix(program: Program) -> Program:
    """The program with its rows as a matrix, if that is small: faster then than its factors."""
    constraints = program.constraints
    if constraints.num_rows * constraints.num_unknowns > DENSE_BELOW:
        return program
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return replace(program, constraints=MatrixConstraints(constraints.matrix))


def find_identical(
    X: Array, chosen: NDArray[Any], program: Program
) -> tuple[int, int, int, int] | None:
    """(sequence, selected token, other token, row) of a constraint ``0 >= 1``."""
    if program.cap is not None:
        return None
    assert isinstance(program.constraints, TokenConstraints)
    zero = ~program.constraints.delta.any(axis=2).reshape(-1)
    rows = np.flatnonzero(zero & (program.b == 1))
    if not rows.size:
        return None
    row = int(rows[0])
    T = X.shape[1]
    i, other = divmod(row, T - 1)
    a = int(reference_tokens(chosen)[i])
    return i, a, other + (other >= a), row


def scatter(rows: NDArray[Any], chosen: NDArray[Any], T: int) -> NDArray[Any]:
    """Rows back to (n, T), zeros at the reference tokens."""
    full = np.zeros((len(chosen), T), rows.dtype)
    full[np.arange(T) != reference_tokens(chosen)[:, None]] = rows
    return full


def _record(
    program: Program,
    outcome: Outcome,
    tol: float,
    chosen: NDArray[Any],
    T: int,
    identical: tuple[int, int, int, int] | None,
) -> AttentionSVM:
    fields = collect_fields(program, outcome, tol, lambda rows: scatter(rows, chosen, T))
    if identical is not None:
        fields["certificate"] = replace(fields["certificate"], identical=identical[:3])
    return AttentionSVM(selection=chosen, **fields)
