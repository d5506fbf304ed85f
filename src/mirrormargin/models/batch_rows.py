r"""A part of a batch that several processes share, treated as the whole batch would be.

Two things in a model depend on all rows of its batch: how many random numbers dropout draws, and
how many columns of padding all rows have in common. Inside of :func:`take_rows` both are those of
the whole batch, so processes that start from the same random numbers drop what one process would
drop, and still have the same random numbers afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor

__all__ = ["find_rows", "find_whole", "take_rows"]


class _Part(NamedTuple):
    whole: Tensor
    rows: slice


_part: ContextVar[_Part | None] = ContextVar("_part", default=None)


@contextmanager
def take_rows(inputs: Tensor, rows: slice) -> Iterator[Tensor]:
    """The rows of a batch's inputs; a model that is called with them knows of the others."""
    token = _part.set(_Part(inputs, rows))
    try:
        yield inputs[rows]
    finally:
        _part.reset(token)


def find_whole(inputs: Tensor) -> Tensor:
    """The inputs of the whole batch that a model's inputs are rows of; outside of one, those."""
    part = _part.get()
    return inputs if part is None else part.whole


def find_rows(size: int) -> tuple[int, slice]:
    """How many rows the whole batch has, and which of them ``size`` rows are; else, all."""
    part = _part.get()
    return (size, slice(None)) if part is None else (len(part.whole), part.rows)
