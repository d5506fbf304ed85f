"""Two entries of W along training, and the ray of the max-margin solution that they approach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.report.figure import Axis, Figure, Panel, Series
from mirrormargin.report.figures.spread import name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_trajectories", "draw_path"]

Array = NDArray[np.float64]
FIRST, SECOND = (1, 2), (3, 4)  # the entries


def build_trajectories(evidence: Evidence) -> Figure | None:
    if "trajectories" not in evidence:
        return None
    _, arrays = evidence["trajectories"]
    p, steps, W, target, arrows = (arrays[name] for name in ("p", "steps", "W", "target", "arrows"))
    panels = []
    for j, exponent in enumerate(p):
        (a, b), (c, d) = FIRST, SECOND
        xy = np.stack([W[j, :, a, b], W[j, :, c, d]])
        ray = np.array([target[j, a, b], target[j, c, d]])
        marks = np.isin(steps[j], arrows[j])
        panels.append(
            Panel(
                name_exponent(exponent),
                Axis("W[1, 2]"),
                Axis("W[3, 4]"),
                draw_path(xy, ray, name_exponent(exponent), marks),
            )
        )
    return Figure(
        "trajectories",
        "W along training, and the max-margin ray",
        "Two entries of W, trained from zero on one problem. The grey ray has the direction of"
        " the max-margin solution at the same p; dots are at the steps "
        + "; ".join(
            f"{', '.join(map(str, row.tolist()))} ({name_exponent(one)})"
            for one, row in zip(p, arrows, strict=True)
        )
        + ".",
        tuple(panels),
        columns=3,
    )


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
