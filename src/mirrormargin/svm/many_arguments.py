"""Reading the arguments of a batch: problems of one shape, exponents, selections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.arrays import read_array, read_numbers
from mirrormargin.errors import ProblemError
from mirrormargin.svm.arguments import check_p

__all__ = ["read_exponents", "read_problems", "read_selections"]

Array = NDArray[np.float64]


def read_problems(problems: Any) -> tuple[AttentionProblem, ...]:
    try:
        members = (problems,) if isinstance(problems, AttentionProblem) else tuple(problems)
    except TypeError:
        raise ProblemError(
            f"problems is a {type(problems).__name__}: give an AttentionProblem, or a list of them"
        ) from None
    if not members:
        raise ProblemError("problems is empty: give at least one AttentionProblem")
    for i, problem in enumerate(members):
        if not isinstance(problem, AttentionProblem):
            raise ProblemError(
                f"problems[{i}] is a {type(problem).__name__}: give AttentionProblems"
            )
        if problem.tokens.shape != members[0].tokens.shape:
            raise ProblemError(
                f"problems[{i}] has tokens of shape {problem.tokens.shape}, problems[0] of shape"
                f" {members[0].tokens.shape}: give problems of one shape, and solve others apart"
            )
        zero = np.flatnonzero(~problem.queries.any(axis=1))
        if zero.size:
            raise ProblemError(
                f"problems[{i}].queries[{zero[0]}] is all zeros, so that every W gives its tokens"
                " the same attention: remove the sequence"
            )
    return members


def read_exponents(p: Any) -> Array:
    exponents = np.atleast_1d(read_array("p", p))
    if exponents.ndim != 1 or exponents.size == 0:
        raise ProblemError(f"p has shape {exponents.shape}: give a number or a list of numbers")
    return np.array([check_p(number) for number in exponents])


def read_selections(selections: Any, shape: tuple[int, int], n: int, T: int) -> NDArray[np.intp]:
    chosen = read_numbers("selections", selections)
    count = chosen.shape[-2] if chosen.ndim >= 2 else 1
    target = (*shape, count, n)
    try:
        chosen = np.broadcast_to(chosen, target)
    except ValueError:
        raise ProblemError(
            f"selections has shape {chosen.shape}, which does not broadcast to {target}, (problem,"
            " p, init, sequence): give one token for each sequence, as (n,), (init, n),"
            " (problem, 1, 1, n) or with all four axes"
        ) from None
    if chosen.size == 0:
        raise ProblemError(f"selections has shape {chosen.shape} and is empty: give at least one")
    if chosen.dtype.kind == "b" or (
        chosen.dtype.kind == "f" and (chosen != np.floor(chosen)).any()
    ):
        raise ProblemError("selections must hold integers, the index of a token in each sequence")
    wrong = np.argwhere((chosen < 0) | (chosen >= T))
    if wrong.size:
        first = tuple(int(i) for i in wrong[0])
        raise ProblemError(
            f"selections{list(first)} is {chosen[first]}, but must be between 0 and {T - 1}, the"
            " index of a token"
        )
    return chosen.astype(np.intp)
