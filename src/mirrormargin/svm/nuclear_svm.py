r"""The attention SVM in the nuclear norm: the separating W with the least sum of singular values.

    min |W|_*   s.t.   <W, A_k> >= 1,    A_k = Delta_k z_i',  Delta_k = x_{i,alpha} - x_{i,t}.

Any W with ``min_k <W, A_k> > 0`` and any ``lam >= 0``, with ``U = sum_k lam_k A_k``, bound it by

    sum lam / |U|_2  <=  least |W|_*  <=  |W|_* / min_k <W, A_k>,

and the **gap** is the quotient of the two bounds minus one. The path starts from the solution at
p = 2, which also tells whether any W separates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import read_numbers
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.threads import limit_threads
from mirrormargin.svm.attention_svm import (
    MAX_ITER,
    build_program,
    find_identical,
    scatter,
    to_small_matrix,
)
from mirrormargin.svm.inputs import check_limits, read_attention
from mirrormargin.svm.interior.constraints import TokenConstraints
from mirrormargin.svm.interior.exact_measures import scale_to_lead
from mirrormargin.svm.interior.nuclear_path import (
    NuclearRows,
    follow_nuclear_path,
    nuclear_norm,
    spectral_norm,
)
from mirrormargin.svm.interior.program import Outcome, Program, Status
from mirrormargin.svm.interior.solver import refuse_row, solve_program
from mirrormargin.svm.solution import (
    SUPPORT,
    CertifiedSolution,
    Residuals,
    make_certificate,
)

__all__ = ["NuclearSVM", "solve_nuclear_svm"]

Array = NDArray[np.float64]

MAX_ROWS = 6_000  # constraints, whose Gram matrix is formed
RANK = 1e-4  # a singular value counts above this share of the largest
SMALL_LEAD = 1e-9  # as a share of |A_k| |W|; below, leads are measured exactly
START = 0.3  # the gap at p = 2 from which the path starts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NuclearSVM(CertifiedSolution):
    """A solution of ``min |W|_*  s.t.  A W >= 1``; see :class:`CertifiedSolution` for the rest.

    ``duals`` and ``support`` have shape (n, T) and are zero at the selection, ``sum lam`` is
    ``|W|_*`` and ``|A' lam|_2`` is one plus the gap: at the optimum ``A' lam`` is a subgradient at
    W. Without a solution W is nan, margin and rank are 0 and ``duals`` are the certificate's.

    Attributes:
        W: The matrix, shape (d, d).
        rank: How many singular values of W exceed 1e-4 of the largest.
        selection: The selected token of each sequence, shape (n,).
    """

    W: Array
    rank: int
    selection: NDArray[np.intp]
    constraints: TokenConstraints

    remedy: ClassVar[str] = "change the selection or remove a sequence"

    def residuals(self) -> Residuals:
        """Measure the optimality conditions again, from the problem's own arrays.

        ``stationarity`` is ``1 - <W, A' lam> / (|W|_* |A' lam|_2)``, zero if and only if a
        multiple of ``A' lam`` is a subgradient of the nuclear norm at W.
        """
        if not np.isfinite(self.W).all():
            return Residuals(*[np.inf] * 5, rounding=0.0)
        lam, norm = self.lam, nuclear_norm(self.W)
        rows = self.constraints.apply(self.W.reshape(-1))
        U = self.constraints.adjoint(lam).reshape(self.W.shape)
        aligned = float((self.W * U).sum()) / (norm * spectral_norm(U))
        return Residuals(
            primal=max(0.0, 1 - float(rows.min())),
            dual=max(0.0, -float(lam.min())) / float(np.abs(lam).max()),
            stationarity=max(0.0, 1 - aligned),
            complementarity=float(lam @ (rows - 1)) / float(lam.sum()),
            gap=_measure_gap(self.constraints, self.W, lam),
            rounding=_rounding(self.constraints, norm),
        )


def solve_nuclear_svm(
    tokens: ArrayLike | Any,
    queries: ArrayLike | Any,
    selection: ArrayLike | Any,
    tol: float = 1e-6,
    *,
    max_iter: int = MAX_ITER,
    threads: int | None = None,
    raise_on_failure: bool = True,
) -> NuclearSVM:
    """Find the W of least nuclear norm that gives every selected token a lead of one.

    Args:
        tokens: X, shape (n, T, d), T at least 2, with n (T - 1) at most 6,000.
        queries: z, shape (n, d), none of them zero.
        selection: The selected token of each sequence, integers (n,).
        tol: Largest relative gap between the norm of W and the proven lower bound.
        max_iter: Bound on the Newton steps.
        threads: Cores for the linear algebra; None leaves them as they are. The same number gives
            the same bits.
        raise_on_failure: Whether to raise when there is no certified solution; otherwise it is
            returned with its status.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        NotSeparableError: If no W satisfies the constraints; carries the proof.
        MarginBelowError: If neither a solution nor that proof was found; carries a proven bound on
            the margin.
        SolverError: If the gap could not be brought to ``tol``.

    Example:
        >>> solution = solve_nuclear_svm([[[3.0, 0.0], [1.0, 0.0]]], [[1.0, 0.0]], [0])
        >>> solution.W.round(6) + 0.0
        array([[0.5, 0. ],
               [0. , 0. ]])
        >>> solution.rank, solution.status == "optimal"
        (1, True)
    """
    if read_numbers("selection", selection).dtype.kind == "b":
        raise ProblemError(
            "selection holds booleans, but the nuclear norm takes one selected token in each"
            " sequence: give its index, integers (n,)"
        )
    X, z, chosen = read_attention(tokens, queries, selection)
    if len(X) * (X.shape[1] - 1) > MAX_ROWS:
        raise ProblemError(
            f"tokens has shape {X.shape}, {len(X) * (X.shape[1] - 1)} constraints, but the nuclear"
            f" norm is solved with at most {MAX_ROWS}: take fewer sequences or tokens"
        )
    program = build_program(X, z, chosen, 2.0, np.ones(len(X)))
    check_limits(tol, max_iter, threads, raise_on_failure=raise_on_failure)
    identical = find_identical(X, chosen, program)
    if identical is not None:
        outcome = refuse_row(program, identical[3], "comparison of tokens")
    else:
        with limit_threads(threads):
            outcome = _solve(program, tol, max_iter)
    solution = _record(program, outcome, tol, chosen, X.shape[1:], identical)
    if raise_on_failure:
        solution.check()
    return solution


def _solve(program: Program, tol: float, max_iter: int) -> Outcome:
    """Scale, start from p = 2 if anything separates, and measure with the original rows."""
    constraints = program.constraints
    assert isinstance(constraints, TokenConstraints)
    d = constraints.delta.shape[2]
    with np.errstate(over="ignore"):
        scale = float(constraints.row_norms(2.0).mean())
    if not scale < np.inf:
        raise ProblemError(
            "the products of the data leave floating point: scale tokens and queries to about one"
        )
    scaled = constraints.divided(scale)
    start = to_small_matrix(replace(program, constraints=scaled))
    first = solve_program(start, START, max_iter, None)
    if first.w is None or first.lam is None:
        return first
    with np.errstate(all="ignore"):
        rows = NuclearRows(scaled)
        W = rows.left.T @ first.w.reshape(d, d) @ rows.right
        remaining = max(max_iter - first.iterations, 0)
        bounds, iterations, exact = follow_nuclear_path(rows, W, first.lam, 0.5 * tol, remaining)
        W = rows.left @ bounds.W @ rows.right.T
        W = _scale_to_lead(program, W, first.w.reshape(d, d))
        norm = nuclear_norm(W)
        lam = bounds.lam * (norm / float(bounds.lam.sum()))
        gap = _measure_gap(constraints, W, lam)
    status = Status.CANNOT_CERTIFY
    if gap + _rounding(constraints, norm) <= tol:
        status = Status.OPTIMAL
    elif iterations >= remaining:
        status = Status.MAX_ITERATIONS
    method = "interior point, QR" if exact else "interior point, Cholesky"
    return Outcome(status, first.iterations + iterations, method, gap, W, lam)


def _scale_to_lead(program: Program, W: Array, first: Array) -> Array:
    """W with a least lead of one; the W that the path started from where rounding took the lead."""
    least = float(program.constraints.apply(W.reshape(-1)).min())
    if least > SMALL_LEAD * program.constraints.row_norms(2.0).max() * nuclear_norm(W):
        return W / least
    for candidate in (W, first):
        scaled = scale_to_lead(program, candidate.reshape(-1))
        if scaled is not None:
            return scaled.reshape(W.shape)
    return W


def _measure_gap(constraints: TokenConstraints, W: Array, lam: Array) -> float:
    """The gap between W and lam, computed from the rows; inf if they bound nothing."""
    least = float(constraints.apply(W.reshape(-1)).min())
    total = float(lam.sum())
    if not (least > 0 and total > 0 and lam.min() >= 0):
        return np.inf
    U = constraints.adjoint(lam).reshape(W.shape)
    return (nuclear_norm(W) / least) * (spectral_norm(U) / total) - 1


def _rounding(constraints: TokenConstraints, norm: float) -> float:
    """What rounding may hide of the gap: eps times the largest ``|A_k|_2 |W|_*``."""
    return float(np.finfo(np.float64).eps * constraints.row_norms(2.0).max() * norm)


def _record(
    program: Program,
    outcome: Outcome,
    tol: float,
    chosen: NDArray[Any],
    shape: tuple[int, int],
    identical: tuple[int, int, int, int] | None,
) -> NuclearSVM:
    constraints = program.constraints
    assert isinstance(constraints, TokenConstraints)
    T, d = shape
    W, lam = outcome.w, outcome.lam
    if W is None or lam is None:
        assert outcome.farkas is not None
        W, lam, margin, rank = np.full((d, d), np.nan), outcome.farkas, 0.0, 0
        tight = np.zeros(len(lam), bool)
        certificate = make_certificate(program, outcome, lambda rows: scatter(rows, chosen, T))
        certificate = replace(certificate, identical=identical and identical[:3])
    else:
        size = np.linalg.svd(W, compute_uv=False)
        margin, rank = 1 / float(size.sum()), int((size > RANK * size[0]).sum())
        tight = constraints.apply(W.reshape(-1)) - 1 <= SUPPORT
        certificate = None
    return NuclearSVM(
        W=W,
        margin=margin,
        duals=scatter(lam, chosen, T),
        gap=outcome.gap,
        support=scatter(tight, chosen, T),
        rank=rank,
        status=outcome.status,
        iterations=outcome.iterations,
        method=outcome.method,
        tol=tol,
        selection=chosen,
        certificate=certificate,
        constraints=constraints,
        lam=lam,
    )
