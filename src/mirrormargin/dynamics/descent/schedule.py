r"""At which steps a run is looked at: 0, then 1, 2, 3, ... thinning out to equal ratios."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import read_array
from mirrormargin.errors import ProblemError

__all__ = ["plan_steps", "read_counts", "read_lrs"]

Steps = NDArray[np.int64]


def plan_steps(record: Any, num_steps: Steps, first: Steps | None = None) -> Steps:
    """Steps of shape (E, R), ascending, from 0 to each of the E numbers of steps.

    Rows that end early repeat their last step.

    Args:
        record: How many log-spaced steps, or the steps themselves.
        num_steps: (E,), where each row ends.
        first: (E,), where each row starts instead of 0.
    """
    start = np.zeros_like(num_steps) if first is None else first
    rows = [_plan_row(record, int(a), int(b)) for a, b in zip(start, num_steps, strict=True)]
    longest = max(map(len, rows))
    return np.array([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])


def _plan_row(record: Any, first: int, last: int) -> Steps:
    try:
        count = operator.index(record)
    except TypeError:
        steps = read_array("record", record)
        if steps.ndim != 1 or (steps != np.floor(steps)).any() or not _are_counts(steps):
            raise ProblemError(
                "record must be a number of log-spaced steps, or a list of steps, integers >= 0"
            ) from None
        steps = steps.astype(np.int64)
        return np.unique(np.concatenate([[first], steps[(steps > first) & (steps < last)], [last]]))
    if count < 1:
        raise ProblemError(f"record is {count}: record at least 1 step")
    if last == first:
        return np.array([first], np.int64)
    spaced = first + np.geomspace(1, last - first, count)
    return np.unique(np.concatenate([[first], spaced.round().astype(np.int64), [last]]))


def read_counts(num_steps: Any, num_exponents: int) -> Steps:
    """Numbers of steps, one for each exponent."""
    counts = _read_row("num_steps", num_steps, num_exponents)
    if (counts != np.floor(counts)).any() or not _are_counts(counts):
        raise ProblemError(f"num_steps is {num_steps!r}: give integers >= 0")
    return counts.astype(np.int64)


def _are_counts(numbers: NDArray[np.float64]) -> bool:
    return bool(((numbers >= 0) & (numbers <= 2**53)).all())


def read_lrs(name: str, lr: Any, num_exponents: int) -> NDArray[np.float64]:
    """Learning rates, one for each exponent."""
    rates = _read_row(name, lr, num_exponents)
    if not ((rates > 0) & (rates < np.inf)).all():
        raise ProblemError(f"{name} is {lr!r}: give a positive number, or one for each p")
    return rates


def _read_row(name: str, value: Any, count: int) -> NDArray[np.float64]:
    row = read_array(name, value)
    if row.ndim > 1 or (row.ndim == 1 and len(row) not in (1, count)):
        raise ProblemError(
            f"{name} has shape {row.shape}: give one number, or one for each of the {count}"
            " exponents"
        )
    return np.broadcast_to(row, count).copy()
