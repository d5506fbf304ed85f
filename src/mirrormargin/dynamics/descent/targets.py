r"""Where the runs of a training must end, given the tokens that they select.

    fixed head    W_mm(alpha), the max-margin solution
    joint         v_mm, the max-margin decoder of the selected tokens, and for W the solution that
                  asks for a lead of one only in the sequences that support v_mm, and none elsewhere

Where nothing separates, or no solution could be certified, a target is nan.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.errors import SolverError
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm, solve_many

__all__ = ["solve_joint_targets", "solve_targets"]

Array = NDArray[np.float64]


def solve_targets(
    problems: tuple[AttentionProblem, ...],
    selection: NDArray[np.intp],
    exponents: tuple[float, ...],
    tol: float,
) -> Array:
    """W_mm of each run, (P, E, I, d, d), for selections (P, E, I, n)."""
    return solve_many(problems, selection, exponents, tol, raise_on_failure=False).W


def solve_joint_targets(
    problems: tuple[AttentionProblem, ...],
    selection: NDArray[np.intp],
    exponents: tuple[float, ...],
    tol: float,
) -> tuple[Array, Array]:
    """W (P, E, I, d, d) and v (P, E, I, d) of each run, each selection solved once."""
    d = problems[0].dim
    W = np.full((*selection.shape[:3], d, d), np.nan)
    v = np.full((*selection.shape[:3], d), np.nan)
    known: dict[tuple[int, int, bytes], tuple[Array, Array]] = {}
    for i, j, k in np.ndindex(selection.shape[:3]):
        key = i, j, selection[i, j, k].tobytes()
        if key not in known:
            known[key] = _solve_pair(problems[i], selection[i, j, k], exponents[j], tol)
        W[i, j, k], v[i, j, k] = known[key]
    return W, v


def _solve_pair(
    problem: AttentionProblem, chosen: NDArray[np.intp], p: float, tol: float
) -> tuple[Array, Array]:
    d = problem.dim
    W, v = np.full((d, d), np.nan), np.full(d, np.nan)
    features = problem.tokens[np.arange(problem.num_sequences), chosen]
    try:
        decoder = solve_decoder_svm(features, problem.labels, p, tol)
        v = decoder.v
        rhs = decoder.support.astype(float)
        W = solve_attention_svm(
            problem.tokens, problem.queries, chosen, p, tol, rhs=rhs, compiled=False
        ).W
    except SolverError:
        pass  # the nan stays
    return W, v
