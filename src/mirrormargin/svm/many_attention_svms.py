r"""Hundreds of small attention SVMs in one call: problems x exponents x selections.

    W[i, j, k] = argmin |W|_{p_j}   s.t.   selection k of problem i leads each other token by 1.

A compiled interior point solves them over threads. Each of its solutions is measured afterwards
with the original tokens. Problems that are too large for it, not separable, or not certified go to
the general solver of :func:`solve_attention_svm`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import read_exponents
from mirrormargin.attention.problem import AttentionProblem, read_problems
from mirrormargin.errors import ProblemError, SolverError
from mirrormargin.geometry.compiler import has_numba
from mirrormargin.geometry.threads import count_cores, limit_threads
from mirrormargin.svm.attention_svm import (
    COMPILED,
    MAX_ITER,
    AttentionSVM,
    build_program,
    solve_attention_svm,
)
from mirrormargin.svm.inputs import Jobs, check_limits, fits_kernel, other_tokens, read_selections
from mirrormargin.svm.interior.program import Status
from mirrormargin.svm.solution import SUPPORT, FarkasCertificate

if TYPE_CHECKING:
    from mirrormargin.svm.compiled.candidates import Candidates

__all__ = ["AttentionSVMs", "solve_many"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionSVMs:
    """Solutions of P problems at E exponents for I selections each.

    ``solutions[i, j, k]`` is the :class:`AttentionSVM` of one of them, which can check itself.
    Without a solution W is nan, margin is 0 and ``duals`` are those of the certificate.

    Attributes:
        W: The matrices, shape (P, E, I, d, d).
        margin: ``1 / |W|_p``, zero if nothing separates, shape (P, E, I).
        gap: Upper bound on the least norm over lower bound, minus one, shape (P, E, I).
        duals: Multipliers, zero at the selected tokens, shape (P, E, I, n, T).
        support: Which constraints are tight, within 1e-4 of one, shape (P, E, I, n, T).
        iterations: Newton steps, shape (P, E, I).
        status: How each solve ended, see :class:`Status`, shape (P, E, I).
        method: How the Newton systems were solved, shape (P, E, I).
        certificates: Why nothing separates, or None, shape (P, E, I).
        p: The exponents, shape (E,).
        selections: The selected tokens, shape (P, E, I, n).
        tol: The gap that was asked for.
    """

    W: Array
    margin: Array
    gap: Array
    duals: Array
    support: NDArray[np.bool_]
    iterations: NDArray[np.intp]
    status: NDArray[np.object_]
    method: NDArray[np.object_]
    certificates: NDArray[np.object_]
    p: Array
    selections: NDArray[np.intp]
    tol: float
    problems: tuple[AttentionProblem, ...]

    def __repr__(self) -> str:
        solved = int((self.status == Status.OPTIMAL).sum())
        shape = " x ".join(map(str, self.status.shape))
        return f"AttentionSVMs({shape} problems x exponents x selections, {solved} optimal)"

    @property
    def certificate(self) -> FarkasCertificate | None:
        """The first of the certificates, None if every problem is separable."""
        return next((one for one in self.certificates.flat if one is not None), None)

    def __getitem__(self, index: tuple[int, int, int]) -> AttentionSVM:
        i, j, k = map(operator.index, index)
        index = i, j, k
        X, z, chosen = self.problems[i].tokens, self.problems[i].queries, self.selections[index]
        n, T, _ = X.shape
        program = build_program(X, z, chosen, float(self.p[j]), np.ones(n))
        return AttentionSVM(
            selection=chosen.copy(),
            p=program.p,
            tol=self.tol,
            status=self.status[index],
            gap=float(self.gap[index]),
            duals=self.duals[index].copy(),
            support=self.support[index].copy(),
            margin=float(self.margin[index]),
            iterations=int(self.iterations[index]),
            method=self.method[index],
            certificate=self.certificates[index],
            program=program,
            w=self.W[index].reshape(-1).copy(),
            lam=np.take_along_axis(self.duals[index], other_tokens(chosen, T), 1).reshape(-1),
        )


def solve_many(
    problems: AttentionProblem | Sequence[AttentionProblem],
    selections: ArrayLike | Any,
    p: float | ArrayLike = 2.0,
    tol: float = 1e-8,
    *,
    threads: int | None = None,
    max_iter: int = MAX_ITER,
    raise_on_failure: bool = True,
) -> AttentionSVMs:
    """Solve the attention SVM of each problem, at each exponent, for each selection.

    Selections follow NumPy's broadcasting to (P, E, I, n), aligned at the right: (n,) is one
    selection for everything, (I, n) the same I selections for every problem, (P, 1, 1, n) one
    selection for each problem, (P, 1, I, n) I selections for each, (P, E, I, n) all different.
    What occurs several times is solved once.

    The results do not depend on the number of threads, to the last bit.

    Args:
        problems: One problem, or P of them with the same numbers of sequences, tokens and
            dimensions, and no query zero.
        selections: The selected token of each sequence, integers.
        p: One exponent, or E of them.
        tol: Largest relative gap between the norm of W and the proven lower bound.
        threads: Cores to use; None for all that the process may use.
        max_iter: Bound on the Newton steps of each solve.
        raise_on_failure: Whether to raise when one of them has no certified solution; otherwise
            ``status`` tells.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        NotSeparableError: If some selection cannot be separated. ``solution`` holds all of them,
            and ``certificate`` is the proof.
        MarginBelowError: If neither a solution nor such a proof was found for one of them.
        SolverError: If some gap could not be brought to ``tol``. ``solution`` holds all of them.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> problems = [synthetic.unit_sphere(seed) for seed in (1, 2, 3)]
        >>> best = np.array([problem.optimal_tokens for problem in problems])
        >>> solutions = solve_many(problems, best[:, None, None, :], p=[1.75, 2.0])
        >>> solutions.margin[:, :, 0].round(4)
        array([[0.2891, 0.3759],
               [0.2087, 0.274 ],
               [0.2169, 0.2837]])
        >>> solutions[0, 1, 0].is_optimal()
        True
    """
    members = read_problems(problems)
    exponents = read_exponents(p)
    n, T, d = members[0].tokens.shape
    chosen = read_selections(selections, (len(members), len(exponents)), n, T)
    check_limits(tol, max_iter, threads, raise_on_failure=raise_on_failure)
    jobs, job_of = _collect_jobs(members, exponents, chosen)
    columns = _make_columns(jobs)
    if fits_kernel(n, T, d) and has_numba():
        from mirrormargin.svm.compiled.candidates import solve_jobs

        candidates = solve_jobs(jobs, 0.5 * tol, int(max_iter), threads or count_cores())
        left = _enter_candidates(columns, jobs, candidates, tol)
    else:
        left = np.arange(len(jobs))
    # One core: on several, the bits could depend on their number.
    with limit_threads(1 if left.size else None):
        for job in left.tolist():
            try:
                solution = _solve_one(jobs, job, tol, max_iter)
            except ProblemError as error:  # out of the range of floating point: the rest counts
                columns["status"][job], columns["method"][job] = Status.CANNOT_CERTIFY, str(error)
                continue
            _enter_solution(columns, job, solution)
    shape = chosen.shape[:3]
    record = AttentionSVMs(
        **{
            name: column[job_of].reshape(*shape, *column.shape[1:])
            for name, column in columns.items()
        },
        p=exponents,
        selections=chosen,
        tol=tol,
        problems=members,
    )
    if raise_on_failure:
        _check(record)
    return record


def _collect_jobs(
    members: tuple[AttentionProblem, ...], exponents: Array, chosen: NDArray[np.intp]
) -> tuple[Jobs, NDArray[np.intp]]:
    """Each combination once, and for each entry of the result the index of its job."""
    n = chosen.shape[-1]
    different, which = np.unique(exponents, return_inverse=True)
    keys = np.empty((*chosen.shape[:-1], n + 2), np.intp)
    keys[..., 0] = np.arange(len(members))[:, None, None]
    keys[..., 1] = which[:, None]
    keys[..., 2:] = chosen
    jobs, job_of = np.unique(keys.reshape(-1, n + 2), axis=0, return_inverse=True)
    return (
        Jobs(
            np.stack([problem.tokens for problem in members]),
            np.stack([problem.queries for problem in members]),
            problem=jobs[:, 0],
            chosen=np.ascontiguousarray(jobs[:, 2:]),
            p=different[jobs[:, 1]],
        ),
        job_of.reshape(-1),
    )


def _make_columns(jobs: Jobs) -> dict[str, NDArray[Any]]:
    """The fields of the record with one row for each job."""
    J, n = jobs.chosen.shape
    T, d = jobs.tokens.shape[2:]
    return {
        "W": np.full((J, d, d), np.nan),
        "margin": np.zeros(J),
        "gap": np.full(J, np.inf),
        "duals": np.zeros((J, n, T)),
        "support": np.zeros((J, n, T), bool),
        "iterations": np.zeros(J, np.intp),
        "status": np.full(J, None, object),
        "method": np.full(J, None, object),
        "certificates": np.full(J, None, object),
    }


def _enter_candidates(
    columns: dict[str, NDArray[Any]], jobs: Jobs, candidates: Candidates, tol: float
) -> NDArray[np.intp]:
    """Enter what is certified; return the jobs that are left."""
    certified = candidates.gap + candidates.rounding <= tol
    good = np.flatnonzero(certified)
    columns["W"][good] = candidates.W[good]
    columns["margin"][good] = 1 / candidates.norm[good]
    columns["gap"][good] = candidates.gap[good]
    columns["iterations"][good] = candidates.steps[good]
    columns["status"][good] = Status.OPTIMAL
    columns["method"][good] = COMPILED
    others = other_tokens(jobs.chosen[good], jobs.tokens.shape[2])
    rows = good[:, None, None], np.arange(others.shape[1])[:, None], others
    columns["duals"][rows] = candidates.lam[good]
    columns["support"][rows] = candidates.slack[good] <= SUPPORT
    return np.flatnonzero(~certified)


def _solve_one(jobs: Jobs, job: int, tol: float, max_iter: int) -> AttentionSVM:
    i, p = jobs.problem[job], float(jobs.p[job])
    return solve_attention_svm(
        jobs.tokens[i],
        jobs.queries[i],
        jobs.chosen[job],
        p,
        tol,
        max_iter=max_iter,
        compiled=False,
        raise_on_failure=False,
    )


def _enter_solution(columns: dict[str, NDArray[Any]], job: int, solution: AttentionSVM) -> None:
    columns["certificates"][job] = solution.certificate
    for name in columns.keys() - {"certificates"}:
        columns[name][job] = getattr(solution, name)


def _check(record: AttentionSVMs) -> None:
    """Raise the error of the first that failed, if any, with the whole record."""
    failed = np.argwhere(record.status != Status.OPTIMAL)
    if not failed.size:
        return
    i, j, k = (int(index) for index in failed[0])
    try:
        record[i, j, k].check()
    except SolverError as error:
        where = f"problem {i}, p = {record.p[j]:g}, selection {k}"
        raise type(error)(f"{where}: {error}", record) from None
