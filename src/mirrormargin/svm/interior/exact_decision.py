r"""Whether anything separates, decided in rational numbers.

The shortest w that satisfies the rows, ``min |w|_2  s.t.  A w >= b``, is found by the dual active
set method of Goldfarb and Idnani. It begins with w = 0 and no active row, and adds one violated row
k at a time. With the active rows N and G = N N',

    r = G^-1 N a_k,    z = a_k - N' r,

w moves along z and the multipliers of the active rows along -r; a row whose multiplier reaches zero
is dropped. If z = 0 and no ``r_j`` is positive, then

    a_k + sum_j (-r_j) a_j = 0,    b_k - sum_j r_j b_j = b_k - <w, a_k> > 0:

these multipliers prove that no w exists. Otherwise |w| grows with every row added, so the method
ends; in integers no sign is ever wrong, however small the margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.exact_rows import ExactRows, Whole

__all__ = ["Decision", "decide_exactly"]

BUDGET = 4e8  # bits times entries of the updates, about 10 seconds


@dataclass(frozen=True)
class Decision:
    """What exact arithmetic found.

    Attributes:
        separates: Whether some w satisfies all rows.
        multipliers: By row, nonnegative (of any sign for an equality), for the rows as they are. If
            something separates, those of the shortest w, ``w = A' lam``; if not, ``A' lam = 0`` and
            ``<b, lam> = 1``.
    """

    separates: bool
    multipliers: dict[int, Fraction]

    def multiply(self, num_rows: int) -> NDArray[np.float64]:
        """The multipliers of all rows, rounded to float64; those of a large w are scaled."""
        lam = np.zeros(num_rows)
        largest = max((abs(value) for value in self.multipliers.values()), default=Fraction(1))
        unit = Fraction(1) if not self.separates else largest
        for k, value in self.multipliers.items():
            lam[k] = float(value / unit)
        return lam

    def combine(self, rows: ExactRows) -> NDArray[np.float64]:
        """``A' lam`` up to a positive factor, computed exactly and rounded once."""
        return rows.take(list(self.multipliers)).combine(list(self.multipliers.values()))[0]


def decide_exactly(
    rows: ExactRows, b: NDArray[np.float64], equality: NDArray[np.bool_], first: Iterable[int]
) -> Decision | None:
    """Whether some w has ``A w >= b`` (equal on equalities), with the multipliers that show it.

    Args:
        rows: A.
        b: 0 or 1 for each row.
        equality: Which rows are equalities; b is 0 there.
        first: Rows to look at before the others: those that floating point found to matter.

    Returns:
        The decision, or None if it would take too long.
    """
    search = _Search(rows, b, equality)
    try:
        return search.run(list(first))
    except _TooLongError:
        return None


class _TooLongError(Exception):
    """The budget is spent."""


class _Search:
    """Active rows, their multipliers ``lam = num / den``, and ``G^-1 = adjugate / det``."""

    def __init__(
        self, rows: ExactRows, b: NDArray[np.float64], equality: NDArray[np.bool_]
    ) -> None:
        self.rows, self.equality = rows, equality
        self.b = rows.scale_sides(b)
        self.active: list[int] = []
        self.adjugate: Any = np.empty((0, 0), object)
        self.det = 1
        self.num: Any = np.empty(0, object)
        self.den = 1
        self.work = 0.0
        self._gram: dict[int, Whole] = {}

    def run(self, first: list[int]) -> Decision:
        for k in np.flatnonzero(self.equality).tolist():
            # w = 0 satisfies the equalities with multipliers of zero.
            r, schur = self._project(k)
            if schur:
                self._add(k, r, schur)
        rest = [k for k in range(self.rows.num_rows) if not self.equality[k]]
        first = [k for k in dict.fromkeys(first) if not self.equality[k]]
        while True:
            k = self._find_violated(first)
            if k is None:
                k = self._find_violated(rest)
            if k is None:
                # The integer rows ask for 2^top times as much: w is as many times as long.
                den = self.den * Fraction(4) ** int(self.rows.exponent.max())
                return Decision(True, self._unscale(self.active, self.num, den))
            proof = self._satisfy(k)
            if proof is not None:
                return proof

    def _gram_row(self, k: int) -> Whole:
        if k not in self._gram:
            self._gram[k] = self.rows.gram_row(k)
        return self._gram[k]

    def _find_violated(self, candidates: list[int]) -> int | None:
        """The row that w misses by the longest distance, None if it misses none."""
        worst, found = -math.inf, None
        inner = [self._gram_row(j) for j in self.active]
        for k in candidates:
            value = sum(int(x) * int(row[k]) for x, row in zip(self.num, inner, strict=True))
            short = int(self.b[k]) * self.den - value
            if short <= 0:
                continue
            size = int(self._gram_row(k)[k])
            if size == 0:
                return k
            distance = math.log(short) - 0.5 * math.log(size)
            if distance > worst:
                worst, found = distance, k
        return found

    def _project(self, k: int) -> tuple[Whole, int]:
        """``det r`` and ``det |z|^2``."""
        row = self._gram_row(k)
        if not self.active:
            return np.empty(0, object), int(row[k]) * self.det
        g = row[self.active]
        r = self.adjugate @ g
        return r, int(row[k]) * self.det - int(g @ r)

    def _satisfy(self, k: int) -> Decision | None:
        """Move until row k holds; a decision if that is impossible."""
        own = 0  # the multiplier of k times den
        row = self._gram_row(k)
        while True:
            r, schur = self._project(k)
            blocking = [
                i for i, j in enumerate(self.active) if not self.equality[j] and int(r[i]) > 0
            ]
            if not blocking and schur == 0:
                return self._make_proof(k, r)
            i = None
            if blocking:
                i = blocking[0]
                for other in blocking[1:]:
                    if self.num[other] * r[i] < self.num[i] * r[other]:
                        i = other
            if schur:
                value = own * int(row[k])
                if self.active:
                    value += int(self.num @ row[self.active])
                short = int(self.b[k]) * self.den - value
                # A full step, short / |z|^2, unless the multiplier of row i vanishes before.
                if i is None or short * int(r[i]) <= int(self.num[i]) * schur:
                    self._add(k, r, schur)
                    return None
            assert i is not None
            pivot, lam = int(r[i]), int(self.num[i])
            self.num = self.num * pivot - lam * r
            own = own * pivot + lam * self.det
            self.den *= pivot
            self._drop(i)
            common = math.gcd(own, self.den, *(int(x) for x in self.num))
            self.num, own, self.den = self.num // common, own // common, self.den // common

    def _make_proof(self, k: int, r: Whole) -> Decision:
        rows = [*self.active, k]
        num = np.array([*(-int(x) for x in r), self.det], object)
        total = sum(int(x) * int(self.b[j]) for x, j in zip(num, rows, strict=True))
        return Decision(False, self._unscale(rows, num, total))

    def _unscale(self, rows: list[int], num: Whole, den: int | Fraction) -> dict[int, Fraction]:
        """Multipliers of the rows as they are, from those of the integer rows."""
        top = int(self.rows.exponent.max())
        return {
            k: Fraction(int(x)) / den * Fraction(2) ** (top - int(self.rows.exponent[k]))
            for k, x in zip(rows, num, strict=True)
            if x
        }

    def _add(self, k: int, r: Whole, schur: int) -> None:
        """Border the inverse, and take the multipliers for which every active row is met."""
        self._spend(schur)
        size = len(self.active)
        bordered: Any = np.empty((size + 1, size + 1), object)
        if size:
            bordered[:size, :size] = (self.adjugate * schur + np.outer(r, r)) // self.det
            bordered[:size, size] = bordered[size, :size] = -r
        bordered[size, size] = self.det
        self.adjugate, self.det = bordered, schur
        self.active.append(k)
        self.num, self.den = self.adjugate @ self.b[self.active], self.det

    def _drop(self, i: int) -> None:
        self._spend(self.det)
        pivot = int(self.adjugate[i, i])
        column = self.adjugate[:, i]
        smaller = (self.adjugate * pivot - np.outer(column, column)) // self.det
        keep = [j for j in range(len(self.active)) if j != i]
        self.adjugate, self.det = smaller[np.ix_(keep, keep)], pivot
        self.active.pop(i)
        self.num = self.num[keep]

    def _spend(self, number: int) -> None:
        self.work += (len(self.active) + 1) ** 2 * number.bit_length()
        if self.work > BUDGET:
            raise _TooLongError
