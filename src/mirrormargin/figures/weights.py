"""The weights of trained models: their magnitudes, and accuracy when the smallest are removed.

Histograms of key, query and value matrices are outlines on a log axis: bin k holds
k h <= |w| < (k + 1) h, h the width of a bin; empty bins are gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.figures.figure import Axis, Panel, Series
from mirrormargin.figures.palette import Look
from mirrormargin.figures.spread import Spread, find_mean

__all__ = ["KINDS", "MAX_BANDS", "draw_histograms", "draw_shares", "join_kinds", "merge_bins"]

Array = NDArray[np.float64]
KINDS = ("key", "query", "value")
MAX_BANDS = 5  # more of them hide each other: a table has the intervals
MAX_BINS = 40
MARKS = (50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2)


def draw_histograms(
    looks: Sequence[Look], histogram: NDArray[np.int64], bin_width: ArrayLike
) -> tuple[Panel, ...]:
    """A panel for key, query and value each, from counts (methods, 3, bins)."""
    width = float(np.asarray(bin_width))
    axes = Axis("|w|"), Axis("entries", "log")
    return tuple(
        Panel(
            f"{kind} matrices",
            *axes,
            tuple(
                Series(
                    look.name,
                    *_outline(histogram[j, k], width),
                    style=look.style,
                    group=look.group,
                )
                for j, look in enumerate(looks)
            ),
        )
        for k, kind in enumerate(KINDS)
    )


def merge_bins(histogram: NDArray[np.int64], bin_width: float) -> tuple[NDArray[np.int64], float]:
    """Counts (..., bins) in at most ``MAX_BINS`` wider bins, and their width.

    Small models have a few entries in a fine bin, and lines of single entries hide each other.

    Example:
        >>> merge_bins(np.ones((1, 80), dtype=np.int64), 0.01)[0].shape
        (1, 40)
    """
    merged = max(1, -(-histogram.shape[-1] // MAX_BINS))
    room = [(0, 0)] * (histogram.ndim - 1) + [(0, -histogram.shape[-1] % merged)]
    counts = np.pad(histogram, room).reshape(*histogram.shape[:-1], -1, merged).sum(axis=-1)
    return counts, merged * float(bin_width)


def join_kinds(values: ArrayLike, form: str = ",.0f") -> str:
    """The numbers of key, query and value in one cell."""
    return " / ".join(f"{value:{form}}" for value in np.asarray(values, dtype=np.float64))


def _outline(
    counts: NDArray[np.int64], width: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    filled = np.flatnonzero(counts)
    counts = counts[: filled[-1] + 1 if filled.size else 1]
    edges = np.arange(counts.size + 1, dtype=np.float64) * width
    heights = np.where(counts > 0, counts.astype(np.float64), np.nan)
    return np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)


def draw_shares(
    looks: Sequence[Look],
    share: Array,
    accuracy: Mapping[str, Array],
    label: str = "accuracy, %",
) -> tuple[Panel, ...]:
    """A panel for each title, from accuracies (methods, seeds, shares); right is less weights.

    Losses of language models are drawn in the same way, with their own label.
    """
    left = 100 * (1 - share)
    low, high = 0.999 * left.min(), 1.001 * left.max()
    marks = tuple(mark for mark in MARKS if low <= mark <= high)
    with_bands = len(looks) <= MAX_BANDS
    return tuple(
        Panel(
            title,
            Axis("weights left, %", "log", marks=marks, is_reversed=True),
            Axis(label),
            tuple(
                Series(
                    look.name,
                    left,
                    *_find_bounded_mean(values[k], with_bands),
                    style=look.style,
                    group=look.group,
                )
                for k, look in enumerate(looks)
            ),
        )
        for title, values in accuracy.items()
    )


def _find_bounded_mean(accuracy: Array, with_bands: bool) -> Spread:
    """An interval of few seeds may leave what an accuracy can be."""
    mean, *ends = find_mean(accuracy)
    if not with_bands:
        return Spread(mean, None, None)
    low, high = (None if end is None else end.clip(0, 100) for end in ends)
    return Spread(mean, low, high)
