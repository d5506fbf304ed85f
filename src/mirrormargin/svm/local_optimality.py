r"""Whether training can end at a selection.

Mirror descent that has settled on the tokens alpha goes in direction to W_mm(alpha), and stays
only if no constraint that is tight there belongs to a better token:

    gamma_{i,alpha} > gamma_it    for every i and every t in the support of W_mm(alpha).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import check_kind
from mirrormargin.attention.problem import AttentionProblem, check_problem
from mirrormargin.errors import ProblemError
from mirrormargin.svm.attention_svm import AttentionSVM, build_program, solve_attention_svm
from mirrormargin.svm.inputs import read_attention
from mirrormargin.svm.interior.constraints import TokenConstraints
from mirrormargin.svm.interior.program import Status

__all__ = ["is_locally_optimal"]


def is_locally_optimal(
    problem: AttentionProblem,
    selection: ArrayLike | Any,
    p: float = 2.0,
    *,
    solution: AttentionSVM | None = None,
) -> bool:
    """Whether every support token of the selection scores below the selected token.

    A selection that no W separates is no direction of training, so the answer is False. Tokens
    count as support when they are within 1e-4 of their constraint.

    Args:
        problem: The attention problem, for its scores.
        selection: One token index for each sequence, shape (n,).
        p: Exponent of the norm.
        solution: The max-margin solution of this selection, if it is already known.

    Raises:
        ProblemError: (a ValueError) If the selection does not fit the problem.
        SolverError: If it could not be decided whether, or where, the selection separates.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> problem = synthetic.unit_sphere(seed=1)
        >>> is_locally_optimal(problem, problem.optimal_tokens, p=1.75)
        True
    """
    check_problem(problem)
    _, _, chosen = read_attention(problem.tokens, problem.queries, selection)
    if chosen.dtype.kind == "b":
        raise ProblemError(
            "selection holds booleans, but local optimality is about one token in each sequence:"
            " give its index, integers (n,)"
        )
    if solution is None:
        solution = solve_attention_svm(
            problem.tokens, problem.queries, chosen, p, raise_on_failure=False
        )
    elif not _belongs(
        check_kind("solution", solution, AttentionSVM, "or leave it out"), problem, chosen, p
    ):
        raise ProblemError(
            "solution is not the hard-margin one of this problem, selection and p: leave it out,"
            " or solve for these"
        )
    if solution.status is Status.INFEASIBLE:
        return False
    solution.check()
    best = problem.scores[np.arange(problem.num_sequences), chosen]
    return not bool((solution.support & (problem.scores >= best[:, None])).any())


def _belongs(
    solution: AttentionSVM, problem: AttentionProblem, chosen: NDArray[Any], p: float
) -> bool:
    if not np.array_equal(chosen, solution.selection) or solution.p != p:
        return False
    ones = np.ones(problem.num_sequences)
    expected = build_program(problem.tokens, problem.queries, chosen, p, ones).constraints
    given = solution.program.constraints
    assert isinstance(expected, TokenConstraints)
    return (
        solution.program.is_plain
        and isinstance(given, TokenConstraints)
        and np.array_equal(expected.delta, given.delta)
        and np.array_equal(expected.queries, given.queries)
    )
