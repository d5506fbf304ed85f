"""Under a head that is not linear several tokens stay attended, and W splits into two parts."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_multi_token"]

SOLUTIONS = (
    ("cosine_eq", "W_eq, both parts", "line"),
    ("cosine_dir", "W_dir, the growing part", "dashed"),
    ("cosine_one", "W_one, one token only", "dotted"),
)


def build_multi_token(evidence: Evidence) -> Figure | None:
    if "multi-token" not in evidence:
        return None
    _, arrays = evidence["multi-token"]
    panels = []
    for d in np.unique(arrays["d"]):
        runs = (arrays["d"] == d) & arrays["counts"].astype(bool)
        if not runs.any():
            continue
        series = tuple(
            Series(
                label, arrays["steps"], *find_median(arrays[key][runs]), style=style, group=label
            )
            for key, label, style in SOLUTIONS
        )
        title = f"d = {d:g}, runs: {int(runs.sum())}"
        panels.append(Panel(title, Axis("step", "log"), Axis("cosine"), series))
    if not panels:
        return None
    return Figure(
        "multi-token",
        "Several attended tokens: a finite part of W and a growing one",
        "Cosine of W to three solutions along training, median over the runs that count with the"
        " least and the largest. The dotted solution keeps only the most attended token of each"
        " sequence.",
        tuple(panels),
        columns=min(len(panels), 3),
    )
