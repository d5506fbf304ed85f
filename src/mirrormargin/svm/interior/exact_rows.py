r"""The rows of a program as integers: what the given floating-point numbers say, without rounding.

A float64 is an integer times a power of two. So is a difference of two tokens and its product with
a query, but float64 rounds both. Up to a positive factor of each row,

    a_k = left_k  right_i',      left_k = x_{i,alpha} - x_{i,t},   right_i = z_i,

and a row of a plain matrix has right = 1. Python's integers hold all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ExactRows", "Whole"]

Array = NDArray[np.float64]
Whole = NDArray[np.object_]  # of Python's integers


@dataclass(frozen=True, eq=False)
class ExactRows:
    """``a_k = 2^exponent_k left_k right_i'`` with i the sequence of row k.

    Attributes:
        left: Integers, shape (m, d).
        right: Integers, shape (n, e).
        sequence: i of each row, shape (m,).
        exponent: Shape (m,).
    """

    left: Whole
    right: Whole
    sequence: NDArray[np.intp]
    exponent: NDArray[np.int64]

    @classmethod
    def of_tokens(cls, X: Array, z: Array, reference: NDArray[np.intp]) -> ExactRows:
        """The rows of an attention SVM: the reference token less each of the others."""
        n, T, d = X.shape
        tokens, token_exponents = _to_whole(X)
        queries, query_exponents = _to_whole(z)
        lead = tokens[np.arange(n), reference][:, None, :] - tokens
        left = lead[np.arange(T) != reference[:, None]].reshape(-1, d)
        sequence = np.repeat(np.arange(n), T - 1)
        return cls(left, queries, sequence, (token_exponents + query_exponents)[sequence])

    @classmethod
    def of_matrix(cls, A: Array) -> ExactRows:
        """The rows of a matrix, each with an exponent of its own."""
        left, exponent = _to_whole(A)
        one = np.ones((1, 1), object)
        return cls(left, one, np.zeros(len(A), np.intp), exponent)

    @property
    def num_rows(self) -> int:
        return len(self.left)

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> ExactRows:
        """Some of the rows."""
        chosen = np.asarray(rows, np.intp)
        return ExactRows(
            self.left[chosen], self.right, self.sequence[chosen], self.exponent[chosen]
        )

    def scale_sides(self, b: Array) -> Whole:
        """Right-hand sides for the integer rows: ``b_k 2^-exponent_k``, all times one power."""
        top = int(self.exponent.max())
        shifts = [top - int(e) for e in self.exponent]
        return np.array([int(x) << shift for x, shift in zip(b, shifts, strict=True)], object)

    def find_exponents(self) -> tuple[int, int]:
        """Powers of two between which the sizes of all entries are, zeros apart."""
        lows, highs = [], []
        for k, e in enumerate(self.exponent):
            bits = [
                [abs(int(x)).bit_length() for x in side if x]
                for side in (self.left[k], self.right[self.sequence[k]])
            ]
            if all(bits):
                lows.append(int(e) + sum(map(min, bits)) - 2)
                highs.append(int(e) + sum(map(max, bits)))
        return min(lows, default=0), max(highs, default=0)

    def gram_row(self, k: int) -> Whole:
        """Inner products of integer row k with all of them, shape (m,)."""
        right = self.right @ self.right[self.sequence[k]]
        return (self.left @ self.left[k]) * right[self.sequence]

    def apply(self, w: Array) -> list[Fraction]:
        """``<w, a_k>`` for each k, exactly."""
        whole, exponents = _to_whole(w.reshape(1, -1))
        W = whole.reshape(self.left.shape[1], self.right.shape[1])
        keys = self.right @ W.T
        values = (self.left * keys[self.sequence]).sum(axis=1)
        shift = int(exponents[0])
        return [
            Fraction(int(value)) * Fraction(2) ** (shift + int(e))
            for value, e in zip(values, self.exponent, strict=True)
        ]

    def combine(self, lam: Sequence[Fraction]) -> tuple[Array, Fraction]:
        """``A' lam``, rounded once: a vector whose largest entry is one, and its size, exactly."""
        shares = [x * Fraction(2) ** int(e) for x, e in zip(lam, self.exponent, strict=True)]
        common = math.lcm(*(x.denominator for x in shares))
        whole = np.array([int(x * common) for x in shares], object)
        total = ((self.left * whole[:, None]).T @ self.right[self.sequence]).reshape(-1)
        largest = max(abs(int(x)) for x in total)
        unit = np.array([int(x) / largest if largest else 0.0 for x in total])
        return unit, Fraction(largest, common)


def _to_whole(x: Array) -> tuple[Whole, NDArray[np.int64]]:
    """Integers and one exponent for each entry of the first axis: ``x = integers 2^exponent``."""
    mantissa, exponent = np.frexp(x)
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    # Without trailing zeros the numbers stay short where the data are: 1.5 is 3, not 3 2^51.
    trailing = np.where(digits == 0, 0, _count_trailing_zeros(digits))
    exponent = exponent.astype(np.int64) - 53 + trailing
    digits >>= trailing
    flat = np.where(digits == 0, np.iinfo(np.int64).max, exponent).reshape(len(x), -1)
    least = flat.min(axis=1)
    least = np.where(least == np.iinfo(np.int64).max, 0, least)
    shift = np.where(digits == 0, 0, exponent - least.reshape(-1, *[1] * (x.ndim - 1)))
    whole: Any = np.empty(x.shape, object)
    for index in np.ndindex(x.shape):
        whole[index] = int(digits[index]) << int(shift[index])
    return whole, least


def _count_trailing_zeros(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    lowest = digits & -digits
    return np.frexp(np.maximum(lowest, 1).astype(np.float64))[1].astype(np.int64) - 1
