"""Paths in the plane, each with the ray that it approaches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures.figure import Series

__all__ = ["draw_path"]

Array = NDArray[np.float64]


def draw_path(xy: Array, ray: Array, group: str, marks: NDArray[np.bool_]) -> tuple[Series, ...]:
    """A path in the plane, dots on it, and a ray of its length.

    Args:
        xy: The path, (2, m).
        ray: A direction, (2,).
        group: Of the path's colour.
        marks: Which points get a dot, (m,).
    """
    length = float(np.hypot(*ray))
    scale = np.nanmax(np.hypot(*xy)) / length if length > 0 else 0.0
    end = 1.05 * scale * ray
    # A run that has ended repeats its last point, and from there an arrow has no direction.
    moved = np.append(True, (np.diff(xy, axis=1) != 0).any(axis=0))
    xy, marks = xy[:, moved], marks[moved]
    return (
        Series("max-margin ray", *np.stack([np.zeros(2), end], axis=1), style="wide"),
        Series(f"training at {group}", xy[0], xy[1], style="arrow path", group=group),
        Series("marked steps", xy[0, marks], xy[1, marks], style="points", group="target"),
    )
