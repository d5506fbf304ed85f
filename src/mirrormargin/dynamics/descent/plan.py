r"""What a training is to do: where it starts, its rates and lengths, which steps it records.

    NormalInit(std, seeds):   W_ij ~ N(0, std^2),  one start for each seed

is drawn for each problem and each exponent, from a generator made of the seed, the index of the
problem in its batch and the exponent: a batch with more problems or exponents keeps its starts.
Recorded steps are 0, then 1, 2, 3, ... thinning out to equal ratios.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import (
    MOST_SEED,
    check_count,
    check_flag,
    check_number,
    check_seed,
    check_size,
    read_array,
    read_exponents,
    read_items,
    read_numbers,
    show,
)
from mirrormargin.errors import ProblemError

__all__ = ["NormalInit", "plan_steps", "read_counts", "read_init", "read_lrs"]

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

MOST_RECORDED = 10_000_000  # steps of a run


@dataclass(frozen=True)
class NormalInit:
    """Independent normal entries.

    Args:
        std: Their standard deviation, at least 0.
        seeds: One start for each of these non-negative integers; a single integer is one start.
        same_for_all_p: Whether a seed gives the same start at every exponent.
    """

    std: float = 1.0
    seeds: int | Sequence[int] = 0
    same_for_all_p: bool = False

    def __post_init__(self) -> None:
        check_number("std", self.std, least=0.0)
        check_flag("same_for_all_p", self.same_for_all_p)
        given = self.seeds
        if not isinstance(given, (list, tuple, range, np.ndarray, Iterator)):
            given = (given,)
        try:
            seeds = tuple(_read_seed(seed) for seed in given)
        except Exception:  # objects may raise what they like
            raise ProblemError(f"seeds is {show(self.seeds)}: give integers >= 0") from None
        if not seeds or min(seeds) < 0 or max(seeds) > MOST_SEED:
            raise ProblemError(
                f"seeds is {show(self.seeds)}: give at least one integer, all >= 0 and below 2^64"
            )
        object.__setattr__(self, "seeds", seeds)

    def draw(
        self,
        num_problems: int,
        exponents: Array,
        shape: tuple[int, ...],
        stream: tuple[int, ...] = (),
    ) -> Array:
        """Starts of shape (problem, p, init, ...); other streams are independent."""
        seeds: Any = self.seeds
        num_problems, exponents = (
            check_count("num_problems", num_problems),
            read_exponents(exponents),
        )
        shape = tuple(check_count("shape", one) for one in read_items("shape", shape, "integers"))
        stream = tuple(check_seed(one) for one in read_items("stream", stream, "integers"))
        check_size("the starts", (num_problems, len(exponents), len(seeds), *shape))
        out = np.empty((num_problems, len(exponents), len(seeds), *shape))
        for i, j, k in np.ndindex(out.shape[:3]):
            # The exponent's own bits: its index among the others must not matter.
            p = 0 if self.same_for_all_p else int(exponents[j].view(np.uint64))
            rng = np.random.default_rng([seeds[k], i, p, *stream])
            out[i, j, k] = self.std * rng.normal(size=shape)
        return out


def _read_seed(seed: Any) -> int:
    if isinstance(seed, bool | np.bool_):
        raise TypeError
    return operator.index(seed)


def read_init(
    init: Any, num_problems: int, exponents: Array, shape: tuple[int, ...], name: str = "init"
) -> Array:
    """Starts of shape (problem, p, init, ...) from a number, an array or a :class:`NormalInit`."""
    if isinstance(init, NormalInit):
        # A head must not have the entries of its W.
        return init.draw(num_problems, exponents, shape, () if name == "init" else (1,))
    array = read_array(name, init, finite=True)
    if array.size == 0:
        raise ProblemError(f"{name} has shape {array.shape} and is empty: give at least one start")
    count = array.shape[-len(shape) - 1] if array.ndim > len(shape) else 1
    target = (num_problems, len(exponents), count, *shape)
    try:
        return np.broadcast_to(array, target).copy()
    except ValueError:
        axes = ", ".join(map(str, shape))
        raise ProblemError(
            f"{name} has shape {array.shape}, which does not broadcast to {target}, (problem, p,"
            f" init, {axes}): give 0, one start ({axes}), several (init, {axes}), all of them, or"
            " a NormalInit"
        ) from None


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
        if isinstance(record, bool | np.bool_):
            raise ProblemError(f"record is {record}: give a number of steps, or a list of steps")
        count = operator.index(record)
    except ProblemError:
        raise
    except Exception:  # objects may raise what they like
        steps = read_array("record", record)
        if steps.ndim != 1 or (steps != np.floor(steps)).any() or not _are_counts(steps):
            raise ProblemError(
                "record must be a number of log-spaced steps, or a list of steps, integers >= 0"
            ) from None
        steps = steps.astype(np.int64)
        return np.unique(np.concatenate([[first], steps[(steps > first) & (steps < last)], [last]]))
    if count < 1:
        raise ProblemError(f"record is {count}: record at least 1 step")
    check_count("record", count, most=MOST_RECORDED)
    if last == first:
        return np.array([first], np.int64)
    spaced = first + np.geomspace(1, last - first, count)
    return np.unique(np.concatenate([[first], spaced.round().astype(np.int64), [last]]))


def read_counts(num_steps: Any, num_exponents: int) -> Steps:
    """Numbers of steps, one for each exponent."""
    counts = _read_row("num_steps", num_steps, num_exponents)
    if (counts != np.floor(counts)).any() or not _are_counts(counts):
        raise ProblemError(f"num_steps is {show(num_steps)}: give integers >= 0")
    return counts.astype(np.int64)


def _are_counts(numbers: NDArray[np.float64]) -> bool:
    return bool(((numbers >= 0) & (numbers <= 2**53)).all())


def read_lrs(name: str, lr: Any, num_exponents: int) -> NDArray[np.float64]:
    """Learning rates, one for each exponent."""
    rates = _read_row(name, lr, num_exponents)
    if not ((rates > 0) & (rates < np.inf)).all():
        raise ProblemError(f"{name} is {show(lr)}: give a positive number, or one for each p")
    return rates


def _read_row(name: str, value: Any, count: int) -> NDArray[np.float64]:
    given = read_numbers(name, value)
    if given.dtype.kind == "b":
        raise ProblemError(f"{name} is {show(value)}: give numbers")
    row = read_array(name, given)
    if row.ndim > 1 or (row.ndim == 1 and len(row) not in (1, count)):
        raise ProblemError(
            f"{name} has shape {row.shape}: give one number, or one for each of the {count}"
            " exponents"
        )
    return np.broadcast_to(row, count).copy()
