r"""The kinds of checks: each turns measured values into a :class:`Check` that can fail.

    mean_at_most      mean over seeds <= bound               all_at_most    every value <= bound
    mean_near         |mean - published| <= tol              all_at_least   every value >= bound
    mean_covers       the interval of the mean reaches a published number
    mean_at_least     mean over seeds >= bound               all_equal      every value = expected
    share_at_least    count / total >= bound                 surely_smaller mean of b - a > 0
    ratio_at_most     geometric mean of a / b <= bound       check_size, check_seeds
    rate_at_least     a fitted exponent is at least the claimed one
    rate_decays       a fitted exponent is surely positive

Intervals are of 95%: Student's for means over seeds, Wilson's for shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.claims.claim import Check
from mirrormargin.claims.evidence import Evidence
from mirrormargin.figures.spread import find_half_width, find_share

__all__ = [
    "FIRST_FITTED",
    "NUMBER",
    "STATEMENT",
    "all_at_least",
    "all_at_most",
    "all_equal",
    "check_seeds",
    "check_size",
    "find_interval",
    "fit_late",
    "mean_at_least",
    "mean_at_most",
    "mean_covers",
    "mean_near",
    "rate_at_least",
    "rate_decays",
    "ratio_at_most",
    "share_at_least",
    "surely_smaller",
]

STATEMENT, NUMBER = "statement", "number"
FIRST_FITTED = 100  # the first step that the fit of a rate uses


def mean_at_most(name: str, values: ArrayLike, bound: float, kind: str = STATEMENT) -> Check:
    """The mean over seeds does not exceed a bound."""
    mean, low, high = find_interval(values)
    holds = bool(mean <= bound)
    is_open = not holds and (low is None or low <= bound)
    return Check(name, kind, f"at most {bound:g}", mean, low, high, holds, is_open)


def mean_at_least(name: str, values: ArrayLike, bound: float, kind: str = STATEMENT) -> Check:
    """The mean over seeds is not below a bound."""
    mean, low, high = find_interval(values)
    holds = bool(mean >= bound)
    is_open = not holds and (high is None or high >= bound)
    return Check(name, kind, f"at least {bound:g}", mean, low, high, holds, is_open)


def mean_near(
    name: str, values: ArrayLike, published: float, tol: float, kind: str = NUMBER
) -> Check:
    """The mean over seeds is within ``tol``, the precision of the published number, of it."""
    mean, low, high = find_interval(values)
    near = bool(abs(mean - published) <= tol)
    return Check(name, kind, f"{published:g} ± {tol:g}", mean, low, high, near)


def mean_covers(
    name: str, values: ArrayLike, published: float, tol: float, kind: str = NUMBER
) -> Check:
    """The interval of the mean, widened by ``tol`` on both sides, holds the published number."""
    mean, low, high = find_interval(values)
    low, high = (mean, mean) if low is None or high is None else (low, high)
    covers = bool(low - tol <= published <= high + tol)
    return Check(
        name, kind, f"an interval within {tol:.2g} of {published:g}", mean, low, high, covers
    )


def all_at_most(name: str, values: ArrayLike, bound: float, kind: str = STATEMENT) -> Check:
    """No value exceeds a bound; nan does."""
    worst = float(np.max(_read(values)))
    return Check(name, kind, f"at most {bound:g}", worst, None, None, bool(worst <= bound))


def all_at_least(name: str, values: ArrayLike, bound: float, kind: str = STATEMENT) -> Check:
    """No value is below a bound; nan is."""
    worst = float(np.min(_read(values)))
    return Check(name, kind, f"at least {bound:g}", worst, None, None, bool(worst >= bound))


def all_equal(name: str, values: Any, expected: Any, kind: str = STATEMENT) -> Check:
    """Values that are counted, chosen or named are the expected ones."""
    found, wanted = np.asarray(values).tolist(), np.asarray(expected).tolist()
    return Check(name, kind, str(wanted), str(found), None, None, found == wanted)


def share_at_least(name: str, holds: ArrayLike, bound: float = 1.0, kind: str = STATEMENT) -> Check:
    """A share of runs has a property; ``holds`` says which of them do."""
    flags = (np.asarray(holds) == 1).ravel()  # nan is no success
    if flags.size == 0:
        raise ValueError(f"there are no runs for {name!r}")
    share, low, high = map(float, find_share(flags))
    holds = bool(share >= bound)
    # One counterexample is enough against "all": more runs cannot help.
    is_open = not holds and high >= bound and bound < 1.0
    return Check(name, kind, f"share at least {bound:g}", share, low, high, holds, is_open)


def surely_smaller(name: str, a: ArrayLike, b: ArrayLike, kind: str = STATEMENT) -> Check:
    """Seed by seed, a is smaller than b on average: the interval of b - a lies above zero."""
    difference, low, high = find_interval(_read(b) - _read(a))
    surely = bool(low > 0 if low is not None else difference > 0)
    is_open = not surely and (high is None or high > 0)
    return Check(name, kind, "above 0", difference, low, high, surely, is_open)


def ratio_at_most(
    name: str, a: ArrayLike, b: ArrayLike, bound: float, kind: str = STATEMENT
) -> Check:
    """Seed by seed a over b, their geometric mean, does not exceed a bound."""
    logs = find_interval(np.log(_read(a)) - np.log(_read(b)))
    mean, low, high = (None if one is None else float(np.exp(one)) for one in logs)
    assert mean is not None
    holds = bool(mean <= bound)
    is_open = not holds and (low is None or low <= bound)
    return Check(name, kind, f"at most {bound:.3g}", mean, low, high, holds, is_open)


def check_size(evidence: Evidence) -> Check:
    """Whether models are of the published sizes: numbers of other ones are not comparable."""
    configurations = evidence.settings.get("configurations", [])
    holds = bool(configurations) and all("/paper" in name for name in configurations)
    return Check("models", NUMBER, "as published", ", ".join(configurations), None, None, holds)


def check_seeds(values: NDArray[Any]) -> Check:
    """There are at least 3 seeds; with fewer the best verdict is "reproduced differently"."""
    return all_at_least("seeds", values.shape[-1], 3, kind=NUMBER)


def rate_at_least(name: str, fit: Any, kind: str = STATEMENT) -> Check:
    """A decay that :func:`mirrormargin.fit_rate` fitted has at least the claimed exponent."""
    low, high = (float(end) if np.isfinite(end) else None for end in fit.interval)
    holds = str(fit.verdict).startswith("at least as fast")
    is_open = not holds and (high is None or high >= fit.claimed)
    expected = f"at least {fit.claimed:.3g}"
    return Check(name, kind, expected, float(fit.exponent), low, high, holds, is_open)


def rate_decays(name: str, fit: Any, kind: str = STATEMENT) -> Check:
    """A fitted decay is surely one: the interval of its exponent lies above zero."""
    low, high = (float(end) if np.isfinite(end) else None for end in fit.interval)
    holds = low is not None and low > 0
    is_open = not holds and (high is None or high > 0)
    return Check(name, kind, "above 0", float(fit.exponent), low, high, holds, is_open)


def fit_late(
    evidence: Evidence,
    form: str,
    name: str,
    *,
    claimed: float | None = None,
    chosen: int | None = None,
) -> Any:
    """The decay of an array, (S, R), or of one of its rules, (S, K, R), from step FIRST_FITTED on.

    Arrays whose name begins with "log_" hold logarithms.
    """
    from mirrormargin.dynamics import fit_rate

    values = evidence[name] if chosen is None else evidence[name][:, chosen]
    late, is_log = evidence["steps"] >= FIRST_FITTED, name.startswith("log_")
    return fit_rate(
        form,
        steps=evidence["steps"][late],
        values=None if is_log else values[:, late],
        log_values=values[:, late] if is_log else None,
        claimed=claimed,
    )


def find_interval(values: ArrayLike) -> tuple[float, float | None, float | None]:
    """Mean and Student's 95% interval over seeds; no interval for a single one."""
    samples = _read(values).ravel()
    mean = float(samples.mean())
    if samples.size < 2:
        return mean, None, None
    half = float(find_half_width(samples.std(ddof=1), samples.size))
    return mean, mean - half, mean + half


def _read(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("a check needs at least one value")
    return array
