"""Reading trajectories: steps and values, given plainly or as logarithms, inside a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import read_array
from mirrormargin.errors import ProblemError

__all__ = [
    "MIN_POINTS",
    "Interval",
    "read_logs",
    "read_range",
    "read_trajectories",
    "read_window",
]

Array = NDArray[np.float64]
Interval = tuple[float, float]

MIN_POINTS = 8


def read_range(name: str, given: Any) -> Interval:
    """A pair of numbers, the first below the second."""
    try:
        first, last = (float(end) for end in given)
    except (TypeError, ValueError, OverflowError):
        first, last = np.nan, np.nan
    if not first < last:
        raise ProblemError(f"{name} is {given!r}: give a pair (first, last) with first < last")
    return first, last


def read_window(window: Any, is_log: bool) -> Interval:
    """The window in natural logs of the steps; None is all of them."""
    if window is None:
        return -np.inf, np.inf
    first, last = read_range("window", window)
    if is_log:
        return first, last
    with np.errstate(divide="ignore"):
        return float(np.log(max(first, 0.0))), float(np.log(max(last, 0.0)))


def read_logs(name: str, plain: Any, logs: Any, increasing: bool = False) -> Array:
    """Natural logs, from whichever of the two is given; -inf stands for 0."""
    if (plain is None) == (logs is None):
        count = "neither" if plain is None else "both"
        raise ProblemError(f"{count} of {name} and log_{name} are given: give exactly one of them")
    is_log = plain is None
    given = f"log_{name}" if is_log else name
    array = read_array(given, logs if is_log else plain)
    low, allowed = (-np.inf, "below inf, -inf for 0") if is_log else (0.0, "finite and at least 0")
    wrong = ~((array >= low) & (array < np.inf))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ProblemError(
            f"{given}[{', '.join(map(str, where))}] is {array[where]}, but must be {allowed}:"
            " remove or repair it"
        )
    # Before the logs, which do not tell 10^15 from its successor.
    if increasing and array.ndim and not (array[..., 1:] > array[..., :-1]).all():
        raise ProblemError(f"{given} must increase from each point to the next: sort the points")
    if is_log:
        return array
    with np.errstate(divide="ignore"):
        return np.log(array)


def read_trajectories(
    log_k: Array,
    log_y: Array,
    window: Interval,
    after: float,
    coordinate: Callable[[Array], Array],
) -> tuple[list[tuple[Array, Array]], int]:
    """Coordinates and log values of each seed, and how many points in the window are unusable.

    Args:
        log_k: Logs of the steps, shape (R,) or that of ``log_y``.
        log_y: Logs of the values, shape (R,) or (S, R).
        window: Range of ``log_k``.
        after: ``log_k`` above which the coordinate is that of a decay.
        coordinate: x as a function of ``log_k``.
    """
    if log_y.ndim not in (1, 2) or log_y.size == 0:
        raise ProblemError(
            f"values has shape {log_y.shape}, but must have shape (R,) for one trajectory or (S, R)"
            " for S seeds: give one number for each step"
        )
    if log_k.shape not in (log_y.shape, log_y.shape[-1:]):
        raise ProblemError(
            f"steps has shape {log_k.shape} and values {log_y.shape}: give steps of shape"
            f" {log_y.shape[-1:]}, or as many as values"
        )
    log_y = np.atleast_2d(log_y)
    log_k = np.broadcast_to(log_k, log_y.shape)
    inside = (log_k >= window[0]) & (log_k <= window[1])
    usable = inside & np.isfinite(log_y) & np.isfinite(log_k) & (log_k > after)
    counts = usable.sum(axis=1)
    if counts.min() < MIN_POINTS:
        seed = int(counts.argmin())
        raise ProblemError(
            f"trajectory {seed} has {counts[seed]} usable points of {log_y.shape[1]}, those inside"
            f" the window with a value above 0 and log k above {after:.3g}: give at least"
            f" {MIN_POINTS}, or widen the window"
        )
    pairs = zip(log_k, log_y, usable, strict=True)
    chosen = [(coordinate(k[use]), y[use]) for k, y, use in pairs]
    if any(x[-1] == x[0] for x, _ in chosen):
        raise ProblemError("all steps have the same logarithm: give steps further apart")
    return chosen, int(inside.sum() - counts.sum())
