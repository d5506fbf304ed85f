"""The same two sequences under two losses: the prompt keeps a height that the loss decides."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_prompt_losses"]


def build_prompt_losses(evidence: Evidence) -> Figure | None:
    if "prompt-losses" not in evidence:
        return None
    _, arrays = evidence["prompt-losses"]
    heights, lines = [], []
    for loss in dict.fromkeys(arrays["loss"].tolist()):
        runs = np.flatnonzero(arrays["loss"] == loss)
        runs = runs[np.argsort(arrays["C"][runs])]
        group, C = f"{loss} loss", arrays["C"][runs]
        formula = arrays["height"][runs]
        heights.append(Series(f"formula, {group}", C, formula, style="dashed", group=group))
        ends = arrays["path"][runs, -1, 1]
        heights.append(Series(group, C, ends, style="points", group=group))
        divergence = arrays["divergence"][runs]
        divergence = np.where(divergence > 0, divergence, np.nan)
        # With C = 1 the prompt is on the axis from the first step on: there is nothing to settle.
        settled = np.isnan(divergence[:, 1:]).all(axis=1)
        spread = find_median(divergence[~settled])
        lines.append(Series(group, arrays["steps"], *spread, group=group))
    return Figure(
        "prompt-losses",
        "The height at which a prompt goes to infinity, under two losses",
        "Two sequences whose gains from attending differ by a factor C. The prompt goes along"
        " (1, 0), the max-margin direction, at a height where both pull alike. Left: the height at"
        " the end, and where both pull alike by the formula. Right: 1 − cos to (1, 0), median over"
        " C with the least and the largest.",
        (
            Panel("height", Axis("C", "log"), Axis("second coordinate"), tuple(heights)),
            Panel("direction", Axis("step", "log"), Axis("1 − cos", "log"), tuple(lines)),
        ),
    )
