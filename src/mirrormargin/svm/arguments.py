"""Checking the arguments of the solvers; each error says what was given and what is allowed."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention.arrays import (
    check_finite,
    check_shape,
    read_array,
    read_numbers,
    read_tokens,
)
from mirrormargin.errors import ProblemError

__all__ = [
    "check_cap",
    "check_max_iter",
    "check_p",
    "check_threads",
    "check_tol",
    "read_attention",
    "read_rhs",
    "read_start",
]

Array = NDArray[np.float64]


def read_attention(tokens: Any, queries: Any, selection: Any) -> tuple[Array, Array, NDArray[Any]]:
    """Checked copies of tokens, queries and selection, integers (n,) or booleans (n, T)."""
    X = read_tokens(tokens)
    n, T, d = X.shape
    z = read_array("queries", queries)
    check_shape("queries", z, (n, d), "one query of the tokens' width for each sequence")
    check_finite("queries", z)
    zero = np.flatnonzero(~z.any(axis=1))
    if zero.size:
        raise ProblemError(
            f"queries[{zero[0]}] is all zeros, so that every W gives its tokens the same attention:"
            " remove the sequence"
        )
    return X, z, _read_selection(selection, n, T)


def _read_selection(selection: Any, n: int, T: int) -> NDArray[Any]:
    chosen = read_numbers("selection", selection)
    if chosen.dtype.kind == "b":
        check_shape("selection", chosen, (n, T), "one row of booleans for each sequence")
        counts = chosen.sum(axis=1)
        wrong = np.flatnonzero((counts == 0) | (counts == T))
        if wrong.size:
            raise ProblemError(
                f"selection[{wrong[0]}] selects {counts[wrong[0]]} of {T} tokens: select at least"
                " one and leave at least one"
            )
        return chosen.copy()
    check_shape("selection", chosen, (n,), "one token index for each sequence")
    if chosen.dtype.kind == "f" and (chosen != np.floor(chosen)).any():
        raise ProblemError("selection must hold integers, the index of a token in each sequence")
    wrong = np.flatnonzero((chosen < 0) | (chosen >= T))
    if wrong.size:
        raise ProblemError(
            f"selection[{wrong[0]}] is {chosen[wrong[0]]}, but must be between 0 and {T - 1}, the"
            " index of a token"
        )
    return chosen.astype(np.intp)


def check_p(p: float) -> float:
    try:
        number = float(p)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"p is {p!r}: give a number above 1") from None
    if not 1 < number < np.inf:
        raise ProblemError(f"p is {p}, but must be above 1 and finite: near 1 is sparse, 2 is l2")
    return number


def check_tol(tol: float) -> None:
    if not (isinstance(tol, Real) and 0 < tol < 1):
        raise ProblemError(f"tol is {tol!r}, but must be between 0 and 1: 1e-8 is the default")


def check_max_iter(max_iter: int) -> None:
    if not _is_count(max_iter):
        raise ProblemError(f"max_iter is {max_iter!r}: give a positive integer")


def check_threads(threads: int | None) -> None:
    if threads is not None and not _is_count(threads):
        raise ProblemError(f"threads is {threads!r}: give a positive integer, or None")


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_cap(C: float | None) -> float | None:
    if C is None:
        return None
    if not (isinstance(C, Real) and 0 < C < np.inf):
        raise ProblemError(f"C is {C!r}, but must be positive and finite; None is a hard margin")
    return float(C)


def read_rhs(rhs: Any, n: int) -> Array:
    if rhs is None:
        return np.ones(n)
    b = read_array("rhs", rhs)
    check_shape("rhs", b, (n,), "0 or 1 for each sequence")
    wrong = np.flatnonzero((b != 0) & (b != 1))
    if wrong.size:
        raise ProblemError(f"rhs[{wrong[0]}] is {b[wrong[0]]:g}, but must be 0 or 1")
    if not b.any():
        raise ProblemError("rhs is 0 everywhere, and W = 0 solves that: set it to 1 somewhere")
    return b


def read_start(warm_start: Any, shape: tuple[int, ...]) -> Array:
    """Multipliers to start from: an array, or a solution that has them."""
    duals = read_array("warm_start", getattr(warm_start, "duals", warm_start))
    check_shape("warm_start", duals, shape, "the duals of a problem of the same shape")
    check_finite("warm_start", duals)
    if not duals.max() > 0:
        raise ProblemError("warm_start has no positive dual: give the duals of a solution")
    return duals
