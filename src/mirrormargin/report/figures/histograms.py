"""Histograms of the magnitudes of key, query and value matrices, as outlines on a log axis.

Bin k holds k h <= |w| < (k + 1) h, h the width of a bin; empty bins are gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.report.figure import Axis, Panel, Series
from mirrormargin.report.figures.methods import Look

__all__ = ["KINDS", "draw_histograms", "join_kinds"]

KINDS = ("key", "query", "value")


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
                    *_outline(histogram[place, k], width),
                    style=look.style,
                    group=look.group,
                )
                for place, look in enumerate(looks)
            ),
        )
        for k, kind in enumerate(KINDS)
    )


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
