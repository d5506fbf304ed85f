"""Sets of run numbers as intervals: a million runs done in order are one pair of numbers.

[[0, 4096], [8192, 12288]]      0 <= run < 4096 and 8192 <= run < 12288
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["Intervals"]


class Intervals:
    """Disjoint intervals [first, stop) of integers, ascending, none touching the next.

    Args:
        pairs: Any intervals; those that touch or overlap become one.

    Example:
        >>> done = Intervals([(0, 4), (8, 12)])
        >>> done.add(4, 6)
        >>> done.pairs, len(done), 5 in done
        ([(0, 6), (8, 12)], 10, True)
        >>> list(done.gaps(0, 14))
        [(6, 8), (12, 14)]
    """

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        for first, stop in pairs:
            self.add(first, stop)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All of them."""
        return list(zip(self._firsts, self._stops, strict=True))

    def __repr__(self) -> str:
        return f"Intervals({len(self):,} numbers in {len(self._firsts):,} intervals)"

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._firsts)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number)
        return place > 0 and number < self._stops[place - 1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self.pairs == other.pairs

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def add(self, first: int, stop: int) -> None:
        """Take in ``first <= number < stop``, whatever of it is there already."""
        if first >= stop:
            return
        # Those that touch it, which it replaces.
        begin, end = bisect_left(self._stops, first), bisect_right(self._firsts, stop)
        if begin < end:
            first, stop = min(first, self._firsts[begin]), max(stop, self._stops[end - 1])
        self._firsts[begin:end], self._stops[begin:end] = [first], [stop]

    def overlaps(self, first: int, stop: int) -> bool:
        """Whether any of ``first <= number < stop`` is in it."""
        place = bisect_right(self._stops, first)
        return first < stop and place < len(self._firsts) and self._firsts[place] < stop

    def gaps(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """What of ``first <= number < stop`` is not in it, as intervals."""
        for begin, end in self.pairs[bisect_right(self._stops, first) :]:
            if begin >= stop:
                break
            if first < begin:
                yield first, begin
            first = max(first, end)
        if first < stop:
            yield first, stop
