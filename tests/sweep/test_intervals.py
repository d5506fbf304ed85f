"""Intervals are sets of numbers, whatever is added in which order."""

from hypothesis import given
from hypothesis import strategies as st

from mirrormargin.sweep.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def numbers(pairs):
    return {number for first, stop in pairs for number in range(first, stop)}


@given(PAIRS)
def test_adding_is_the_union_and_pairs_never_touch(pairs):
    found = Intervals(pairs)
    assert numbers(found.pairs) == numbers(pairs)
    assert len(found) == len(numbers(pairs))
    assert all(first < stop for first, stop in found.pairs)
    ends = [stop for _, stop in found.pairs[:-1]]
    assert all(stop < first for stop, (first, _) in zip(ends, found.pairs[1:], strict=True))
    assert [number in found for number in range(41)] == [
        number in numbers(pairs) for number in range(41)
    ]


@given(PAIRS, st.integers(0, 40), st.integers(0, 40))
def test_gaps_are_what_is_missing(pairs, first, stop):
    found = Intervals(pairs)
    assert numbers(found.gaps(first, stop)) == set(range(first, stop)) - numbers(pairs)
    assert found.overlaps(first, stop) == bool(set(range(first, stop)) & numbers(pairs))


def test_a_million_runs_in_order_are_one_pair():
    done = Intervals()
    for first in range(0, 1_000_000, 1000):
        done.add(first, first + 1000)
    assert done.pairs == [(0, 1_000_000)]
