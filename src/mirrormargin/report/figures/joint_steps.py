"""W and the head trained together by steps that shrink: the loss falls like exp(-c k^(1/3))."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_joint_steps"]


def build_joint_steps(evidence: Evidence) -> Figure | None:
    if "joint-steps" not in evidence:
        return None
    _, arrays = evidence["joint-steps"]
    steps = arrays["steps"].astype(np.float64)
    loss = find_median(-arrays["log_loss"])
    late = np.flatnonzero(steps >= 100)
    roots = np.cbrt(steps)
    slope = float(np.polyfit(roots[late], loss.middle[late], 1)[0]) if late.size > 2 else np.nan
    unattended = arrays["log_unattended"] / np.log(10)
    panels = (
        Panel(
            "loss",
            Axis("k^(1/3)"),
            Axis("−log loss"),
            (Series("loss", roots, *loss, group="target"),),
        ),
        Panel(
            "direction",
            Axis("step k", "log"),
            Axis("D", "log"),
            (
                Series("W", steps, *find_median(arrays["divergence"]), group="W"),
                Series("head", steps, *find_median(arrays["head_divergence"]), group="head"),
            ),
        ),
        Panel(
            "margin of the head",
            Axis("step k", "log"),
            Axis("share lacking", "log"),
            (Series("head", steps, *find_median(arrays["head_margin_gap"]), group="head"),),
        ),
        Panel(
            "attention",
            Axis("step k", "log"),
            Axis("log₁₀(1 − attention)"),
            (Series("W", steps, *find_median(unattended), group="W"),),
        ),
    )
    return Figure(
        "joint-steps",
        "Joint training with shrinking steps",
        f"Median over {arrays['seed'].size} problems with the least and the largest. Against the"
        f" cube root of the step −log loss rises with a slope of {slope:.2g} at the end: a straight"
        " line is the proven exp(−c k^(1/3)), a line bent upwards is faster.",
        panels,
    )
