r"""Which entries of many tensors are the smallest: an exact number of them, of equal ones the last.

A score >= 0 is compared by its bits, which are in the order of the numbers. The count-th smallest
is found digit by digit, from the highest 16 bits to the lowest, by counting how often each digit
occurs: no sorting, no copy of more than one tensor, and over processes that hold parts of a tensor
(DTensors) the counts are added up. Equal scores are told apart in the same way by their indices.

    key(score) = bits(score) + 1,      0 for a score below 0

``compiled_ranking.py`` has the same for float32 weights on the CPU, without temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from mirrormargin.optim.shards import add_up_all, find_entries, get_local

__all__ = ["Ranking", "Threshold", "find_threshold", "rank_smallest"]

DIGIT = 16  # bits
Keys = Callable[[int], Tensor]
"""From the number of a tensor to the keys of its entries that are here, int64."""
Counter = Callable[[int, int], Tensor]
"""From a shift and the digits above it to how often each digit occurs there."""


class Threshold(NamedTuple):
    """The count-th smallest key.

    Attributes:
        key: It.
        num_taken: How many of the entries with this key are among the count smallest.
        num_equal: How many have it.
    """

    key: int
    num_taken: int
    num_equal: int


class Ranking(NamedTuple):
    """The smallest entries.

    Attributes:
        smallest: For each tensor booleans in the shape of its part that is here; True for exactly
            as many entries as asked for, over all tensors and processes.
        threshold: The largest score among them.
    """

    smallest: list[Tensor]
    threshold: float


def _make_keys(scores: Tensor) -> Tensor:
    """Whole numbers in the order of the scores; those below 0 are all 0, nan is the largest."""
    bits = scores.contiguous().view(torch.int64 if scores.dtype is torch.float64 else torch.int32)
    most = torch.iinfo(bits.dtype).max - 1  # bits of a nan
    return torch.where(scores < 0, 0, bits.to(torch.int64).clamp(max=most) + 1)


def find_threshold(count_digits: Counter, count: int, num_bits: int, width: int) -> Threshold:
    """The count-th smallest of all keys.

    Args:
        count_digits: How often each digit of ``width`` bits occurs at a place, in all tensors.
        count: From 1 to the number of all entries.
        num_bits: Of the largest key.
        width: Of a digit.
    """
    prefix, left, num_equal = 0, count, 0
    for shift in range(width * (-(-num_bits // width) - 1), -1, -width):
        counts = count_digits(shift, prefix)
        total = counts.cumsum(0)
        digit = int(torch.searchsorted(total, left))
        num_equal = int(counts[digit])
        left -= int(total[digit]) - num_equal
        prefix = (prefix << width) | digit
    return Threshold(prefix, left, num_equal)


def _search(keys: Keys, params: Sequence[Tensor], count: int, num_bits: int = 64) -> Threshold:
    def count_digits(shift: int, prefix: int) -> Tensor:
        parts = [_count_digits(keys(i).flatten(), shift, prefix) for i in range(len(params))]
        return add_up_all(parts, params)

    return find_threshold(count_digits, count, num_bits, DIGIT)


def _count_digits(keys: Tensor, shift: int, prefix: int) -> Tensor:
    """How often each digit occurs at this place, below the digits that are known."""
    keys = keys >> shift
    keys = keys[(keys >> DIGIT) == prefix] & ((1 << DIGIT) - 1)
    return torch.bincount(keys, minlength=1 << DIGIT)


def _mark_smallest(keys: Keys, params: Sequence[Tensor], threshold: Threshold) -> list[Tensor]:
    """For each tensor, which entries are among the smallest; of equal ones the last are."""
    num_kept = threshold.num_equal - threshold.num_taken
    last = _find_last_kept(lambda i: keys(i) == threshold.key, params, num_kept)
    marked = []
    for i, (param, start) in enumerate(zip(params, _list_starts(params), strict=True)):
        key = keys(i)
        is_late = key == threshold.key
        if num_kept:
            is_late &= _index(param, start) > last
        marked.append((key < threshold.key) | is_late)
    return marked


def _find_last_kept(
    are_equal: Callable[[int], Tensor], params: Sequence[Tensor], num_kept: int
) -> int:
    """The index, over all tensors, of the last of equal entries that is kept; -1 if none is."""
    if num_kept == 0:
        return -1
    starts = _list_starts(params)

    def keys(i: int) -> Tensor:
        return _index(params[i], starts[i])[are_equal(i)]

    num_bits = (starts[-1] + params[-1].numel()).bit_length()
    return _search(keys, params, num_kept, num_bits).key


def _list_starts(params: Sequence[Tensor]) -> list[int]:
    """The index, over all tensors, of the first entry of each."""
    return [0, *accumulate(param.numel() for param in params)][:-1]


def _index(param: Tensor, start: int) -> Tensor:
    """Of every entry that is here, its index over all tensors."""
    here = find_entries(param)
    if here is None:
        here = torch.arange(param.numel(), device=param.device).view(param.shape)
    return here + start


def rank_smallest(scores: Callable[[int], Tensor], params: Sequence[Tensor], count: int) -> Ranking:
    """Which entries have the ``count`` smallest scores of all tensors together.

    Args:
        scores: Of tensor i, of its part that is here, all float32 or all float64; below 0 for what
            comes first. Called several times for each, so that one is in memory at a time.
        params: The tensors.
        count: How many, from 0 to the number of all entries.

    Example:
        >>> tensors = [torch.tensor([0.5, 0.1, 0.1]), torch.tensor([0.1, 0.3])]
        >>> rank_smallest(tensors.__getitem__, tensors, 2).smallest
        [tensor([False, False,  True]), tensor([ True, False])]
    """
    if count == 0:
        none = [torch.zeros_like(get_local(param), dtype=torch.bool) for param in params]
        return Ranking(none, 0.0)

    def keys(i: int) -> Tensor:
        return _make_keys(scores(i))

    found = _search(keys, params, count)
    return Ranking(_mark_smallest(keys, params, found), _read_key(found.key, scores(0).dtype))


def _read_key(key: int, dtype: torch.dtype) -> float:
    """The score of a key; 0 for what comes first."""
    whole = torch.int64 if dtype is torch.float64 else torch.int32
    return float(torch.tensor(max(key - 1, 0), dtype=whole).view(dtype))
