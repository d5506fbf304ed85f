r"""Whether a trajectory obeys a bound O(rate), as far as a finite one can tell.

y(k) / rate(k) <= c    with the c that sufficed early on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.rates.trajectories import Interval, read_logs, read_range
from mirrormargin.errors import ProblemError

__all__ = ["BoundCheck", "bound_holds"]

Array = NDArray[np.float64]

ROUNDING = 1e-12  # by this share a maximum may exceed another and still count as equal


@dataclass(frozen=True, eq=False)
class BoundCheck:
    """Whether values stay below a multiple of a rate.

    Attributes:
        holds: Whether ``late_max`` does not exceed ``early_max``.
        early_max: Largest quotient of value and rate in the early window.
        late_max: The same in the late window.
        ratio: The quotients at all steps, nan where the rate is not defined.
    """

    holds: bool
    early_max: float
    late_max: float
    ratio: Array


def bound_holds(
    log_steps: Any,
    values: Any,
    rate: Callable[[Array], Any],
    early: Interval,
    late: Interval,
) -> BoundCheck:
    """Check a bound O(rate): what suffices as its factor early on has to suffice later.

    Args:
        log_steps: Natural logs of the iteration numbers, increasing, shape (R,).
        values: What is bounded, shape (R,).
        rate: Function of ``log_steps``, such as the second part of ``claimed_rate(p)``.
        early: First and last log10 of the iterations that set the factor.
        late: The same of those that are checked, not before the early ones end.

    Raises:
        ProblemError: (a ValueError) If an argument is not as above, a window holds no step, or
            the rate is not positive there.

    Example:
        >>> from mirrormargin.dynamics.rates.forms import claimed_rate
        >>> log_k = np.linspace(1.0, 100.0, 50)
        >>> _, rate = claimed_rate(3.0)
        >>> bound_holds(log_k, log_k**-2, rate, early=(1, 10), late=(10, 40)).holds
        True
    """
    log_k = read_logs("steps", None, log_steps, increasing=True)
    y = np.exp(read_logs("values", values, None))
    if log_k.ndim != 1 or log_k.shape != y.shape:
        raise ProblemError(
            f"log_steps has shape {log_k.shape} and values {y.shape}, but both must have shape"
            " (R,): check one trajectory at a time"
        )
    early, late = read_range("early", early), read_range("late", late)
    if late[0] < early[1]:
        raise ProblemError(
            f"late starts at {late[0]:g}, before early ends at {early[1]:g}: give windows that do"
            " not overlap, in log10 of the steps"
        )
    with np.errstate(all="ignore"):
        bound = np.asarray(rate(log_k), dtype=np.float64)
        ratio = np.where(bound > 0, y / bound, np.nan)
    early_max = _largest("early", early, log_k, ratio)
    late_max = _largest("late", late, log_k, ratio)
    return BoundCheck(late_max <= early_max * (1 + ROUNDING), early_max, late_max, ratio)


def _largest(name: str, window: Interval, log_k: Array, ratio: Array) -> float:
    decades = log_k / np.log(10)
    inside = (decades >= window[0] - ROUNDING) & (decades <= window[1] + ROUNDING)
    if not inside.any():
        raise ProblemError(
            f"{name} is {window}, but log10 of the steps runs from {decades[0]:.4g} to"
            f" {decades[-1]:.4g}: give a window that holds at least one of them"
        )
    if not np.isfinite(ratio[inside]).all():
        raise ProblemError(
            f"the rate is not positive in the window {name}, {window}: start the window later"
        )
    return float(ratio[inside].max())
