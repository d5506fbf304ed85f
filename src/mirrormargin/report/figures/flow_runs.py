"""Flows: how the direction settles over decades of steps, with the proven class at each p."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import name_exponent
from mirrormargin.report.figures.rates import draw_bound
from mirrormargin.report.sources import RunFolder

__all__ = ["build_flows"]


def build_flows(runs: Sequence[RunFolder]) -> Figure:
    """One line for each flow, and one bound for each exponent."""
    lines: list[Series] = []
    norms: list[Series] = []
    rows = []
    for run in runs:
        (p,) = run.exponents
        x, divergence, group = run["log10_k"], run["divergence"], name_exponent(p)
        # Where D is zero to rounding there is nothing to show on a log axis.
        lines.append(Series(group, x, np.where(divergence > 0, divergence, np.nan), group=group))
        norms.append(Series(group, x, run["norm"], group=group))
        end = f"{divergence[-1]:.3g}" if divergence.size else "–"
        norm = f"{run['norm'][-1]:.4g}" if divergence.size else "–"
        rows.append((run.name, f"{p:g}", end, norm, str(run.document.get("status", ""))))
    for p in sorted({run.exponents[0] for run in runs}):
        flows = [run for run in runs if run.exponents[0] == p]
        longest = max(flows, key=lambda run: run["log10_k"].size)
        size = longest["log10_k"].size
        same = [run["divergence"] for run in flows if run["log10_k"].size == size]
        lines.append(draw_bound(longest["log10_k"], np.max(same, axis=0), p))
    return Figure(
        "flows",
        "How the direction settles along the flow",
        "Divergence D from the max-margin direction, and the norm of W, after k steps of mirror"
        " descent with a small constant rate. Dashed: the proven class, scaled to touch the largest"
        " D from above.",
        (
            Panel("direction", Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)),
            Panel("norm", Axis("log₁₀ k", "log"), Axis("‖W‖ₚ", "log"), tuple(norms)),
        ),
        table=Table(("run", "p", "last D", "‖W‖ₚ", "status"), tuple(rows)),
    )
