r"""A line and its band from many runs: means with 95% intervals, medians with what lies around.

mean +- t_{0.975, S-1} s / sqrt(S)            of S seeds, Student's
share +- Wilson's interval at 95%             of counts
median, and two quantiles                     where a few runs are far out
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Spread",
    "describe_mean",
    "describe_seeds",
    "find_half_width",
    "find_mean",
    "find_median",
    "find_share",
    "find_share_of",
]

Array = NDArray[np.float64]
NORMAL_95 = 1.959963984540054  # of a normal variable, two-sided


class Spread(NamedTuple):
    """A middle and the ends of its band."""

    middle: Array
    low: Array | None
    high: Array | None


def find_mean(values: ArrayLike) -> Spread:
    """Mean over the first axis, with its interval; gaps are left out where they are."""
    samples = np.asarray(values, dtype=np.float64)
    if samples.shape[0] == 1:
        return Spread(samples[0], None, None)
    known = np.isfinite(samples)
    count = known.sum(axis=0)
    total = np.where(known, samples, 0.0).sum(axis=0)
    with np.errstate(all="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
        square = np.where(known, samples - mean, 0.0) ** 2
        half = find_half_width(np.sqrt(square.sum(axis=0) / (count - 1)), count)
    return Spread(mean, mean - half, mean + half)


def describe_mean(values: ArrayLike, form: str = ".2f") -> str:
    """The mean of all values with half its interval, in words; of one value that alone.

    Example:
        >>> describe_mean([1.0, 2.0, 3.0]), describe_mean([1.0])
        ('2.00 ± 2.48', '1.00')
    """
    middle, _, high = find_mean(np.ravel(np.asarray(values, dtype=np.float64)))
    return f"{middle:{form}}" if high is None else f"{middle:{form}} ± {high - middle:{form}}"


def describe_seeds(count: int) -> str:
    """How the values of a figure come from so many seeds.

    Example:
        >>> describe_seeds(3), describe_seeds(1)
        ('mean over 3 seeds with 95% interval', 'one seed')
    """
    return f"mean over {count} seeds with 95% interval" if count > 1 else "one seed"


def find_median(values: ArrayLike, low: float = 0.0, high: float = 1.0) -> Spread:
    """Median over the first axis, with two quantiles; nan where any run has a gap."""
    samples = np.asarray(values, dtype=np.float64)
    if samples.shape[0] == 1:
        return Spread(samples[0], None, None)
    middle, least, most = np.quantile(samples, [0.5, low, high], axis=0)
    return Spread(middle, least, most)


def find_share(holds: ArrayLike) -> tuple[Array, Array, Array]:
    """Share of runs, along the first axis, that have a property, and its interval."""
    flags = np.asarray(holds, dtype=np.float64)
    return find_share_of(flags.sum(axis=0), flags.shape[0])


def find_share_of(successes: ArrayLike, count: int) -> tuple[Array, Array, Array]:
    """The share of successes and Wilson's 95% interval, sensible at 0 and at 1 too.

    Example:
        >>> [round(float(end), 3) for end in find_share_of(0, 10)]
        [0.0, 0.0, 0.278]
    """
    share, square = np.asarray(successes) / count, NORMAL_95**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    root = np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    half = NORMAL_95 * root / (1 + square / count)
    # The share is inside, and all between 0 and 1, which rounding could change.
    low, high = np.maximum(0.0, middle - half), np.minimum(1.0, middle + half)
    return share, np.minimum(share, low), np.maximum(share, high)


def find_half_width(deviation: ArrayLike, count: ArrayLike, confidence: float = 0.95) -> Array:
    """Half of Student's interval of a mean, from the standard deviation of so many samples."""
    from scipy.special import stdtrit

    count = np.asarray(count)
    return stdtrit(count - 1, 0.5 + confidence / 2) * np.asarray(deviation) / np.sqrt(count)
