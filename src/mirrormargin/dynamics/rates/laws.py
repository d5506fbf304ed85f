r"""The decay laws, the one claimed for attention, and trajectories in their coordinates.

    "log"       y ~ C (log k)^-a               "power"    y ~ C k^-a
    "loglog"    y ~ C (log log k / log k)^a    "exp"      y ~ exp(b - C k^a)

All but "exp" are lines in log y, log y = log C - a x(log k). Steps and values of a trajectory are
given plainly or as logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_exponent, read_array, show
from mirrormargin.errors import ProblemError

__all__ = [
    "FORMS",
    "MIN_POINTS",
    "FormName",
    "Interval",
    "Rate",
    "RateForm",
    "claimed_rate",
    "read_logs",
    "read_range",
    "read_trajectories",
    "read_window",
]

Array = NDArray[np.float64]
Interval = tuple[float, float]
FormName = Literal["log", "loglog", "power", "exp"]

MIN_POINTS = 8


class RateForm(NamedTuple):
    """A decay law: its text, the log k after which it falls, and its coordinate x(log k)."""

    law: str
    after: float
    coordinate: Callable[[Array], Array]


FORMS: dict[FormName, RateForm] = {
    "log": RateForm("{C}(log k)^{minus_a}", 0.0, np.log),
    # log log k / log k rises until log k = e: points before would tilt the line the wrong way.
    "loglog": RateForm(
        "{C}(log log k / log k)^{a}", float(np.e), lambda log_k: np.log(log_k / np.log(log_k))
    ),
    "power": RateForm("{C}k^{minus_a}", -np.inf, np.positive),
    "exp": RateForm("exp({b} - {C}k^{a})", -np.inf, np.positive),
}


@dataclass(frozen=True)
class Rate:
    """The rate ``exp(-a x)`` of a form other than "exp", a function of the logs of the steps."""

    form: FormName
    exponent: float

    def __call__(self, log_steps: Any) -> Array:
        """The rate at natural logs of steps, nan where the form has none."""
        with np.errstate(all="ignore"):
            x = FORMS[self.form].coordinate(np.asarray(log_steps, dtype=np.float64))
            return np.exp(-self.exponent * x)

    def __str__(self) -> str:
        a, minus_a = f"{self.exponent:g}", f"{-self.exponent:g}"
        return FORMS[self.form].law.format(C="", a=a, minus_a=minus_a).removesuffix("^1")


def claimed_rate(p: float) -> tuple[str, Rate]:
    """The proven rate of the directional divergence between W_mm and mirror descent in lp.

    It is (log k)^-(p - 1) for p below 2, log log k / log k at 2, and 1 / log k above, up to a
    factor; the steps are those of constant size, whose weights grow like log k.

    Args:
        p: Exponent of the geometry, above 1.

    Returns:
        Its name, and the rate as a function of the natural logs of the steps, whose ``form`` and
        ``exponent`` are what ``fit_rate`` takes as ``form`` and ``claimed``.

    Raises:
        ProblemError: (a ValueError) If p is not a finite number above 1.

    Example:
        >>> claimed_rate(1.75)[0], claimed_rate(2.0)[0], claimed_rate(3.0)[0]
        ('(log k)^-0.75', '(log log k / log k)', '(log k)^-1')
    """
    p = check_exponent(p, error=ProblemError)
    rate = Rate("loglog", 1.0) if p == 2 else Rate("log", min(p - 1, 1.0))
    return str(rate), rate


def read_range(name: str, given: Any) -> Interval:
    """A pair of numbers, the first below the second."""
    try:
        first, last = (float(end) for end in given)
    except Exception:  # objects may raise what they like
        first, last = np.nan, np.nan
    if not first < last:
        raise ProblemError(f"{name} is {show(given)}: give a pair (first, last) with first < last")
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
