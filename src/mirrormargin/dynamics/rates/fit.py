r"""How fast a trajectory falls with the iteration k, and whether as fast as claimed.

The decay laws "log", "loglog", "power" and "exp" are those of :mod:`.laws`. Steps and values may be
given by their logs, for k beyond 10^300 and y below 10^-300.

:func:`bound_holds` checks a bound O(rate) as far as a finite trajectory can tell: y(k) / rate(k)
must stay below the factor that sufficed early on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_choice, check_function, check_number, read_array, show
from mirrormargin.dynamics.rates.laws import (
    FORMS,
    MIN_POINTS,
    FormName,
    Interval,
    read_logs,
    read_range,
    read_trajectories,
    read_window,
)
from mirrormargin.dynamics.rates.regression import (
    SEARCH,
    fit_exponential,
    fit_line,
    pool_seeds,
    solve_exponential,
    solve_line,
)
from mirrormargin.errors import ProblemError

__all__ = ["BoundCheck", "RateFit", "RateVerdict", "bound_holds", "choose_windows", "fit_rate"]

Array = NDArray[np.float64]

# A law that still bends may bend on, by 3/4 + (3/4)^2 + ... = 3 times what it did up to its later
# half: test_a_law_that_bends_towards_the_claim_is_not_called_slower.
STILL_TO_BEND = 3.0
EARLY = (20.0, 50.0)  # decades of a long flow that set the factor of a bound
MIN_DECADES = 100.0  # of a flow whose last third is late enough to be compared with them
ROUNDING = 1e-12  # by this share a maximum may exceed another and still count as equal


class RateVerdict(str, Enum):
    """How a fitted exponent compares with a claimed one; compares equal to its text."""

    AT_LEAST_AS_FAST = "at least as fast as the claimed exponent"
    SLOWER = "slower than the claimed exponent"
    UNDECIDED = "undecided against the claimed exponent"
    NO_CLAIM = "no claim"

    __str__ = str.__str__


@dataclass(frozen=True, kw_only=True, repr=False)
class RateFit:
    """A decay law and how well it is known.

    Attributes:
        form: A key of :data:`FORMS`.
        exponent: a; the mean over the seeds.
        interval: Of the exponent. Of "exp", 0 or inf stand for an end that the data leaves open.
        late_exponent: The same from the later half of the points, for a law that still bends has
            another one there; nan for fewer than 16 points.
        late_interval: Its interval.
        log_coefficient: log C, natural, for C itself may leave floating point.
        offset: b of "exp", otherwise 0.
        r_squared: Share of the variance of log y that the law explains, for the worst seed.
        max_residual: Largest difference between log y and its law, over all seeds.
        num_points: Points that were fitted, of all seeds together.
        num_dropped: Points inside the window that the form cannot use.
        seed_exponents: Exponent of each seed.
        claimed: Exponent that was claimed, or None.
        confidence: Nominal coverage of the intervals.
        verdict: What the intervals say about the claim.
        at_search_end: Whether the exponent of "exp", of any seed, is the least or the largest
            that was tried.
    """

    form: FormName
    exponent: float
    interval: Interval
    late_exponent: float
    late_interval: Interval
    log_coefficient: float
    offset: float
    r_squared: float
    max_residual: float
    num_points: int
    num_dropped: int
    seed_exponents: tuple[float, ...]
    claimed: float | None
    confidence: float
    verdict: RateVerdict
    at_search_end: bool

    @property
    def num_seeds(self) -> int:
        return len(self.seed_exponents)

    @property
    def coefficient(self) -> float:
        """C; 0 or inf where it leaves floating point."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.exp(self.log_coefficient))

    def predict(self, steps: Any = None, log_steps: Any = None) -> Array:
        """Natural logs of the law's values, nan where the form has none."""
        log_k = read_logs("steps", steps, log_steps)
        with np.errstate(all="ignore"):
            x = FORMS[self.form].coordinate(log_k)
            if self.form == "exp":
                return self.offset - np.exp(self.log_coefficient + self.exponent * x)
            return self.log_coefficient - self.exponent * x

    def __repr__(self) -> str:
        runs = f"{self.num_seeds} run{'s' * (self.num_seeds > 1)}"
        return f"RateFit({self}; {self.num_points} points, {runs})"

    def __str__(self) -> str:
        low, high = self.interval
        digits = int(np.clip(np.ceil(-np.log10((high - low) / 2 + 1e-9)), 2, 4))
        a, minus_a, low, high = (
            f"{round(number, digits) + 0.0:.{digits}f}"
            for number in (self.exponent, -self.exponent, low, high)
        )
        C = f"{self.coefficient:.3g} " if abs(self.log_coefficient) < 700 else "C "
        law = FORMS[self.form].law.format(C=C, a=a, minus_a=minus_a, b=f"{self.offset:.3g}")
        text = f"y ~ {law} [{low}, {high}]"
        if self.claimed is not None:
            is_within = (
                self.verdict is RateVerdict.AT_LEAST_AS_FAST and self.interval[1] < self.claimed
            )
            verdict = "within tolerance of the claimed exponent" if is_within else self.verdict
            text += f": {verdict} {self.claimed:g}"
        if self.at_search_end:
            text += f"; the exponent is at an end of the search, {SEARCH[0]:g} to {SEARCH[-1]:g}"
        return text


def fit_rate(
    form: FormName | Any,
    *,
    steps: Any = None,
    log_steps: Any = None,
    values: Any = None,
    log_values: Any = None,
    claimed: float | None = None,
    window: Interval | None = None,
    confidence: float = 0.95,
    tol: float = 0.02,
    **which: Any,
) -> RateFit:
    """Fit a decay law to one trajectory, or to one of each seed, and compare it with a claim.

    The law is fitted by least squares in log y. The interval of one trajectory allows for
    residuals that follow each other, see ``regression.py``; that of several is Student's over
    their exponents. It is about the steps that are given: a factor k^-d before exp(-C k^a), or
    log log k before a power of log k, moves the exponent of every finite window.

    The claim is met if the interval lies above ``claimed * (1 - tol)``, missed if it lies below
    ``claimed``, and undecided otherwise. Where the later half of the points has another exponent,
    the verdict also has to survive three more such changes.

    Args:
        form: "log", "loglog", "power" or "exp"; or a record of :func:`train_attention` or
            :func:`mirror_flow`, which brings its own steps and values: ``fit_rate(record, ...)``
            is ``record.fit_rate(...)``.
        steps: Iteration numbers k, increasing, shape (R,) or (S, R). Each point counts the same:
            spread them evenly in log log k for the two log forms, in log k for the others.
        log_steps: Their natural logs, instead.
        values: What decays, shape (R,), or (S, R) for S seeds. Zeros are dropped, and so are the
            steps at which the form is no decay: log k <= 0 for "log", log k <= e for "loglog".
        log_values: Natural logs of the values, instead.
        claimed: Exponent a of a claimed upper bound of this form.
        window: First and last step to use, in the unit of the steps that are given.
        confidence: Nominal coverage of the interval.
        tol: Share of the claimed exponent that may be missing.
        **which: Which runs and which quantity of a record, see there.

    Raises:
        ProblemError: (a ValueError) If an argument is not as above, a trajectory has fewer than 8
            usable points, or "exp" is asked for values that do not fall.

    Example:
        >>> k = np.geomspace(10, 1e6, 30)
        >>> wobble = 1 + 0.01 * np.sin(k)
        >>> print(fit_rate("log", steps=k, values=4.4 * wobble / np.log(k) ** 2, claimed=1.0))
        y ~ 4.41 (log k)^-2.002 [1.996, 2.008]: at least as fast as the claimed exponent 1
    """
    if not isinstance(form, str) and callable(getattr(form, "fit_rate", None)):
        given = {"steps": steps, "log_steps": log_steps, "values": values, "log_values": log_values}
        for name, value in given.items():
            if value is not None:
                raise ProblemError(f"{name} is given, but a record has its own: leave it out")
        options = {} if claimed is None else {"claimed": claimed}
        return form.fit_rate(window=window, confidence=confidence, tol=tol, **options, **which)
    if which:
        raise ProblemError(
            f"{', '.join(which)} is for a record, as in fit_rate(record, problem=0, p=2.0): leave"
            " it out, or give the record first"
        )
    if not isinstance(form, str):
        raise ProblemError(
            f"form is {show(form)}: give one of {', '.join(FORMS)}, or a record of a training or"
            " of a flow"
        )
    name = check_choice("form", form, FORMS)
    check_number("confidence", confidence, above=0.0, below=1.0)
    check_number("tol", tol, least=0.0, below=1.0)
    if claimed is not None:
        claimed = check_number("claimed", claimed, above=0.0)
    trajectories, num_dropped = read_trajectories(
        read_logs("steps", steps, log_steps, increasing=True),
        read_logs("values", values, log_values),
        read_window(window, is_log=steps is None),
        FORMS[name].after,
        FORMS[name].coordinate,
    )
    fit_one = fit_exponential if name == "exp" else fit_line
    fits = [fit_one(x, log_y, confidence) for x, log_y in trajectories]
    rising = np.flatnonzero(np.isnan([fit.exponent for fit in fits]))
    if rising.size:
        raise ProblemError(
            f"the values of trajectory {rising[0]} do not fall, but exp(b - C k^a) does: look at"
            ' them, take another window, or fit "power", whose exponent may be negative'
        )
    exponent, interval = pool_seeds(fits, confidence)
    late_exponent, late_interval = np.nan, (-np.inf, np.inf)
    if min(len(x) for x, _ in trajectories) >= 2 * MIN_POINTS:
        halves = [(x[len(x) // 2 :], log_y[len(x) // 2 :]) for x, log_y in trajectories]
        late = [fit_one(x, log_y, confidence) for x, log_y in halves]
        late_exponent, late_interval = pool_seeds(late, confidence)
    solve_one = solve_exponential if name == "exp" else solve_line
    solved = np.array([solve_one(x, log_y, exponent) for x, log_y in trajectories])
    offset, log_coefficient = solved.mean(axis=0)
    return RateFit(
        form=name,
        exponent=exponent,
        interval=interval,
        late_exponent=late_exponent,
        late_interval=late_interval,
        log_coefficient=float(log_coefficient),
        offset=float(offset),
        r_squared=min(fit.r_squared for fit in fits),
        max_residual=max(fit.max_residual for fit in fits),
        num_points=sum(len(x) for x, _ in trajectories),
        num_dropped=num_dropped,
        seed_exponents=tuple(fit.exponent for fit in fits),
        claimed=claimed,
        confidence=confidence,
        verdict=_judge(claimed, tol, exponent, interval, late_exponent, late_interval),
        at_search_end=any(fit.at_search_end for fit in fits),
    )


def _judge(
    claimed: float | None,
    tol: float,
    exponent: float,
    interval: Interval,
    late_exponent: float,
    late_interval: Interval,
) -> RateVerdict:
    if claimed is None:
        return RateVerdict.NO_CLAIM
    low, high = interval
    if not late_interval[0] <= exponent <= late_interval[1]:
        ahead = late_exponent + STILL_TO_BEND * (late_exponent - exponent)
        low, high = min(low, ahead), max(high, ahead)
    if low >= claimed * (1 - tol):
        return RateVerdict.AT_LEAST_AS_FAST
    return RateVerdict.SLOWER if high < claimed else RateVerdict.UNDECIDED


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return (
            f"BoundCheck(holds={self.holds}, early_max={self.early_max:.4g},"
            f" late_max={self.late_max:.4g})"
        )


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
        >>> from mirrormargin.dynamics.rates.laws import claimed_rate
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
    check_function("rate", rate, "rate(log_steps), such as the second part of claimed_rate(p)")
    early, late = read_range("early", early), read_range("late", late)
    if late[0] < early[1]:
        raise ProblemError(
            f"late starts at {late[0]:g}, before early ends at {early[1]:g}: give windows that do"
            " not overlap, in log10 of the steps"
        )
    with np.errstate(all="ignore"):
        bound = _evaluate(rate, log_k)
        ratio = np.where(bound > 0, y / bound, np.nan)
    early_max = _largest("early", early, log_k, ratio)
    late_max = _largest("late", late, log_k, ratio)
    return BoundCheck(late_max <= early_max * (1 + ROUNDING), early_max, late_max, ratio)


def _evaluate(rate: Callable[[Array], Any], log_k: Array) -> Array:
    """The rate at each step."""
    try:
        values = rate(log_k)
    except (TypeError, ValueError, AttributeError) as error:
        raise ProblemError(f"rate fails on an array of log_steps: {error}") from error
    return read_array("rate(log_steps)", values, log_k.shape, "one number for each step")


def choose_windows(decades: float) -> tuple[Interval, Interval]:
    """The early and the late window of :func:`bound_holds` for a flow of so many decades of steps.

    Decades 20 to 50 set the factor of the bound; it has to suffice in the last third.

    Raises:
        ProblemError: (a ValueError) If there are fewer than 100 decades.

    Example:
        >>> choose_windows(300.0)
        ((20.0, 50.0), (200.0, 300.0))
    """
    decades = check_number("decades", decades, least=MIN_DECADES, error=ProblemError)
    return EARLY, (decades * 2 / 3, decades)


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
