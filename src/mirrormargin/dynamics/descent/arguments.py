"""Checking the arguments of training; each error says what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.arrays import read_array
from mirrormargin.errors import ProblemError
from mirrormargin.svm.many_arguments import read_problems

__all__ = [
    "check_at_least_zero",
    "check_choice",
    "check_max_lr",
    "check_rank",
    "check_target_tol",
    "read_batch",
    "read_target",
]

Array = NDArray[np.float64]


def read_batch(problems: Any) -> tuple[AttentionProblem, ...]:
    """Problems of one shape and loss."""
    members = read_problems(problems)
    if len({problem.loss_name for problem in members}) > 1:
        raise ProblemError("problems have different losses: train those of each loss apart")
    return members


def check_at_least_zero(name: str, value: Any) -> float:
    if not _is_real(value) or not 0 <= value < np.inf:
        raise ProblemError(f"{name} is {value!r}: give a number >= 0")
    return float(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ProblemError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def check_max_lr(max_lr: Any) -> float:
    if not _is_real(max_lr) or not max_lr > 0:
        raise ProblemError(f"max_lr is {max_lr!r}: give a positive number, or inf")
    return float(max_lr)


def check_target_tol(tol: Any) -> float:
    # Here and not by the solver: that comes after the training.
    if not _is_real(tol) or not 0 < tol < 1:
        raise ProblemError(f"target_tol is {tol!r}: give a number between 0 and 1")
    return float(tol)


def check_rank(rank: Any, d: int) -> int:
    if rank is None:
        return d
    if not (_is_real(rank) and isinstance(rank, Integral) and 1 <= int(rank) <= d):
        raise ProblemError(f"rank is {rank!r}: give an integer between 1 and {d}, or None")
    return int(rank)


def read_target(target: Any, shape: tuple[int, ...]) -> Array | None:
    if target is None or (isinstance(target, str) and target == "own"):
        return None
    if isinstance(target, str):
        raise ProblemError(f'target is {target!r}: give "own", an array or None')
    array = read_array("target", target)
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ProblemError(
            f"target has shape {array.shape}, which does not broadcast to {shape}, (problem, p,"
            ' init, d, d): give one matrix, one for each run, "own" or None'
        ) from None
