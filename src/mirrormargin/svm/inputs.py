"""What the solvers are given: tokens, queries, selections, right-hand sides, starts; many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import (
    check_count,
    check_flag,
    check_number,
    check_shape,
    check_threads,
    read_array,
    read_numbers,
)
from mirrormargin.attention.problem import read_queries, read_tokens
from mirrormargin.errors import ProblemError

__all__ = [
    "Integers",
    "Jobs",
    "check_cap",
    "check_limits",
    "fits_kernel",
    "other_tokens",
    "read_attention",
    "read_rhs",
    "read_selections",
    "read_start",
]

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

MAX_ROWS = 120  # of the compiled kernel
MAX_ENTRIES = 50_000  # of A; beyond, BLAS is faster than the kernel's loops


def read_attention(tokens: Any, queries: Any, selection: Any) -> tuple[Array, Array, NDArray[Any]]:
    """Checked copies of tokens, queries and selection, integers (n,) or booleans (n, T)."""
    X = read_tokens(tokens)
    n, T, d = X.shape
    z = read_queries(queries, n, d)
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
    return _read_tokens_of("selection", chosen, T)


def read_selections(selections: Any, shape: tuple[int, int], n: int, T: int) -> NDArray[np.intp]:
    """Selections that broadcast to (problem, p, init, n), shape the first two of these axes."""
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
    if chosen.dtype.kind == "b":
        raise ProblemError("selections holds booleans: give integers, the index of a token")
    return _read_tokens_of("selections", chosen, T)


def _read_tokens_of(name: str, chosen: NDArray[Any], T: int) -> NDArray[np.intp]:
    """Indices of tokens below T."""
    is_whole = chosen == np.floor(chosen)
    wrong = np.argwhere(~(is_whole & (chosen >= 0) & (chosen < T)))
    if wrong.size:
        first = tuple(int(i) for i in wrong[0])
        where = ", ".join(map(str, first))
        raise ProblemError(
            f"{name}[{where}] is {chosen[first]}: give an integer from 0 to {T - 1}, the index of"
            " a token"
        )
    return chosen.astype(np.intp)


def check_cap(C: Any) -> float | None:
    """The price of a soft margin; None for a hard one."""
    if C is None:
        return None
    return check_number("C", C, above=0.0, hint="None for a hard margin")


def check_limits(tol: Any, max_iter: Any, threads: Any, **flags: Any) -> None:
    """Raise unless accuracy, bound on the steps, number of cores and flags can be used."""
    check_number("tol", tol, above=0.0, below=1.0, hint="1e-8 is the default")
    check_count("max_iter", max_iter)
    check_threads(threads)
    for name, flag in flags.items():
        check_flag(name, flag)


def read_rhs(rhs: Any, n: int) -> Array:
    """0 or 1 for each sequence, ones if not given."""
    if rhs is None:
        return np.ones(n)
    b = read_array("rhs", rhs, (n,), "0 or 1 for each sequence")
    wrong = np.flatnonzero((b != 0) & (b != 1))
    if wrong.size:
        raise ProblemError(f"rhs[{wrong[0]}] is {b[wrong[0]]:g}: give 0 or 1")
    if not b.any():
        raise ProblemError("rhs is 0 everywhere, and W = 0 solves that: set it to 1 somewhere")
    return b


def read_start(warm_start: Any, shape: tuple[int, ...]) -> Array:
    """Multipliers to start from: an array, or a solution that has them."""
    given = getattr(warm_start, "duals", warm_start)
    meaning = "the duals of a problem of the same shape"
    duals = read_array("warm_start", given, shape, meaning, finite=True)
    if not duals.max() > 0:
        raise ProblemError("warm_start has no positive dual: give the duals of a solution")
    return duals


def fits_kernel(n: int, T: int, d: int) -> bool:
    """Whether problems of this shape are small enough for the kernel."""
    m = n * (T - 1)
    return m <= MAX_ROWS and m * d * d <= MAX_ENTRIES


@dataclass(frozen=True)
class Jobs:
    """What to solve, J jobs on problems of one shape.

    Attributes:
        tokens: (P, n, T, d).
        queries: (P, n, d).
        problem: (J,), which problem.
        chosen: (J, n), the selected tokens.
        p: (J,), the exponents.
    """

    tokens: Array
    queries: Array
    problem: Integers
    chosen: Integers
    p: Array

    def __len__(self) -> int:
        return len(self.problem)

    def __getitem__(self, part: slice) -> Jobs:
        return Jobs(self.tokens, self.queries, self.problem[part], self.chosen[part], self.p[part])


def other_tokens(chosen: Integers, T: int) -> Integers:
    """The indices of all tokens but the chosen one, in order: shape (..., T - 1)."""
    indices = np.arange(T - 1)
    return indices + (indices >= chosen[..., None])
