"""Two entries of W along training, and the ray of the max-margin solution that they approach."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.plane import draw_path
from mirrormargin.report.sources import Evidence

__all__ = ["build_trajectories"]

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
