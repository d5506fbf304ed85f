"""Fewer points in the same shape: the ends stay, and of each stretch its least and largest value.

A gap stays a gap. An outlier of one point therefore survives, which an average would hide.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Figure, HeatFrames, Series

__all__ = ["thin_figure", "thin_series"]

MAX_FRAMES = 60


def thin_figure(figure: Figure, max_points: int) -> Figure:
    """The figure with at most so many points in a line and ``MAX_FRAMES`` frames in a map."""
    panels = tuple(
        replace(
            panel,
            series=tuple(thin_series(series, max_points) for series in panel.series),
            heat=_thin_frames(panel.heat),
        )
        for panel in figure.panels
    )
    return replace(figure, panels=panels)


def thin_series(series: Series, max_points: int) -> Series:
    """The series itself if it is short enough; else at most ``max_points`` of its points."""
    size = series.y.size
    if size <= max_points:
        return series
    # A stretch keeps up to three: its least value, its largest one and a gap.
    edges = np.linspace(1, size - 1, max(1, (max_points - 2) // 3) + 1).astype(int)
    kept = {0, size - 1}
    for start, end in pairwise(edges):
        kept.update(start + place for place in _find_marks(series, start, end))
    return series.take(np.array(sorted(kept), dtype=np.intp))


def _find_marks(series: Series, start: int, end: int) -> list[int]:
    # Along a path x says as much as y, but then one of them is enough to keep the shape.
    part: NDArray[np.float64] = series.y[start:end]
    finite = np.flatnonzero(np.isfinite(part))
    marks = []
    if finite.size:
        marks += [int(finite[part[finite].argmin()]), int(finite[part[finite].argmax()])]
    if finite.size < part.size:
        marks.append(int(np.flatnonzero(~np.isfinite(part))[0]))
    return marks


def _thin_frames(heat: HeatFrames | None) -> HeatFrames | None:
    if heat is None or len(heat.frame_labels) <= MAX_FRAMES:
        return heat
    frames = np.unique(np.linspace(0, len(heat.frame_labels) - 1, MAX_FRAMES).round().astype(int))
    return heat.take([int(frame) for frame in frames])
