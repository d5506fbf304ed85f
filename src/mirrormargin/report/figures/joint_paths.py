"""The least loss over W and the head in growing balls, and where both go."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_joint_paths"]

TITLES = {"toy": "both sequences support the head", "relaxed": "one sequence does not"}

ROUNDING = 1e-16  # a D below it is zero


def build_joint_paths(evidence: Evidence) -> Figure | None:
    if "joint-paths" not in evidence:
        return None
    _, arrays = evidence["joint-paths"]
    names = list(dict.fromkeys(arrays["problem"].tolist()))
    panels = []
    for name in names:
        series: list[Series] = []
        for place in np.flatnonzero(arrays["problem"] == name):
            group = name_exponent(arrays["p"][place])
            x = arrays["radii"][place]
            for key, style, what in (
                ("divergence", "line", "W"),
                ("head_divergence", "dashed", "v"),
            ):
                values = np.maximum(arrays[key][place], ROUNDING)
                series.append(Series(f"{what}, {group}", x, values, style=style, group=group))
        title = TITLES.get(name, str(name))
        panels.append(Panel(title, Axis("R", "log"), Axis("D", "log"), tuple(series)))
    certified = arrays["is_certified"]
    return Figure(
        "joint-paths",
        "The joint path against both max-margin directions",
        "Divergence of W and of the head v from their max-margin solutions where the loss is least"
        " over balls of radii R and r. Where a sequence does not support the head, W goes to the"
        f" solution that asks no lead of it. {int(certified.sum())} of {certified.size} points are"
        " certified. A D that rounding alone makes is drawn at 1e-16.",
        tuple(panels),
    )
