"""The interior point again, compiled, for small problems: it finds what the caller must check.

This file needs no Numba: it has the jobs, and which of them the kernel takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Jobs", "fits_kernel", "other_tokens"]

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

MAX_ROWS = 120
MAX_ENTRIES = 50_000  # of A; beyond, BLAS is faster than the kernel's loops


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
