"""The least loss on growing balls: its direction and margin go to those of the max-margin W."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_paths"]


def build_paths(evidence: Evidence) -> Figure | None:
    if "paths" not in evidence:
        return None
    _, arrays = evidence["paths"]
    p, best = arrays["p"], arrays["target_margin"][:, None]
    turned, margins = [], []
    for one in np.unique(p):
        paths, group = p == one, name_exponent(one)
        # In units of |W_mm| the radii of different problems mean the same.
        x = np.median((arrays["radii"] * best)[paths], axis=0)
        divergence = np.where(arrays["divergence"] > 0, arrays["divergence"], np.nan)
        lacking = 1 - arrays["margin"] / best
        lacking = np.where(lacking > 0, lacking, np.nan)
        turned.append(Series(group, x, *find_median(divergence[paths]), group=group))
        margins.append(Series(group, x, *find_median(lacking[paths]), group=group))
    certified = arrays["is_certified"]
    radius = Axis("R / ‖W_mm‖ₚ", "log")
    return Figure(
        "paths",
        "The regularisation path against the max-margin direction",
        f"Least loss over W of norm at most R, for {len(np.unique(arrays['seed']))} problems:"
        " median with the least and the largest. Left: divergence of W from the max-margin"
        " direction. Right: the share of the largest margin that W lacks."
        f" {int(certified.sum())} of {certified.size} points are certified as local minimisers.",
        (
            Panel("direction", radius, Axis("D", "log"), tuple(turned)),
            Panel("margin", radius, Axis("1 − margin / largest", "log"), tuple(margins)),
        ),
    )
