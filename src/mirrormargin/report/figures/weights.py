"""How weight is spread over the entries of W: p near 1 gives few large ones, large p many."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_mean, find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_weights"]

SMALLEST = 1e-6  # of the largest entry: what is below is not drawn


def build_weights(evidence: Evidence) -> Figure | None:
    if "weights" not in evidence:
        return None
    _, arrays = evidence["weights"]
    p, entries = arrays["p"], arrays["entries"]
    ranks = np.arange(1, entries.shape[-1] + 1, dtype=np.float64)
    lines = []
    for j, one in enumerate(p):
        middle = find_median(entries[:, j]).middle
        middle = np.where(middle >= SMALLEST, middle, np.nan)
        lines.append(Series(name_exponent(one), ranks, middle, group=name_exponent(one)))
    shares = (
        Series("‖W‖₁ / (d ‖W‖₂)", p, *find_mean(arrays["l1_l2"]), group="spread"),
        Series("entries below 1%", p, *find_mean(arrays["small"]), group="small", style="dashed"),
    )
    rows = tuple(
        (
            f"{one:g}",
            f"{arrays['l1_l2'][:, j].mean():.3f}",
            f"{arrays['hoyer'][:, j].mean():.3f}",
            f"{arrays['small'][:, j].mean():.1%}",
            f"{np.median(arrays['divergence'][:, j]):.2g}",
        )
        for j, one in enumerate(p)
    )
    return Figure(
        "weights",
        "How weight is spread over the entries of W",
        f"Left: entries of W by size, relative to the largest one, median over {entries.shape[0]}"
        " problems. Right: two measures of how evenly weight is spread, mean with 95% interval.",
        (
            Panel("entries by size", Axis("rank"), Axis("|W_ij| / largest", "log"), tuple(lines)),
            Panel("spread", Axis("p", "log"), Axis("share"), shares),
        ),
        table=Table(("p", "‖W‖₁ / (d ‖W‖₂)", "Hoyer", "entries below 1%", "median D"), rows),
    )
