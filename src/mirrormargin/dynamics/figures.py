r"""Pictures of what the lab ran: trainings one by one, flows and paths together.

The proven class of a flow's divergence D after k steps is, up to a factor,

    p < 2:  (log k)^-(p - 1)        p = 2:  log log k / log k        p > 2:  1 / log k.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.descent.record import KIND as TRAINING
from mirrormargin.dynamics.flow_record import KIND as FLOW
from mirrormargin.dynamics.paths.joint_regularization_path import KIND as JOINT_PATH
from mirrormargin.dynamics.paths.regularization_path import KIND as PATH
from mirrormargin.dynamics.training_figures import (
    DEFINITION,
    LabRun,
    draw_bound,
    draw_growth,
    draw_training,
)
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import Look, choose_distinct_looks, name_exponent

__all__ = ["KINDS", "LabRun", "draw_bound", "draw_runs"]

KINDS = (TRAINING, FLOW, PATH, JOINT_PATH)


def draw_runs(runs: Sequence[LabRun]) -> list[Figure]:
    """Trainings have figures of their own; flows share one, and so do paths of one kind."""
    figures = [one for run in runs if run.kind == TRAINING for one in draw_training(run)]
    for kind, draw in ((FLOW, draw_flows), (PATH, draw_paths), (JOINT_PATH, draw_joint_paths)):
        chosen = [run for run in runs if run.kind == kind]
        if chosen:
            figures.append(draw(chosen))
    return figures


def draw_flows(runs: Sequence[LabRun]) -> Figure:
    """One line for each flow, and one bound for each exponent."""
    lines: list[Series] = []
    norms: list[Series] = []
    rows = []
    for run, look in zip(runs, _choose_looks(runs), strict=True):
        (p,) = run.exponents
        x, divergence = run["log10_k"], run["divergence"]
        # Where D is zero to rounding there is nothing to show on a log axis.
        shown = np.where(divergence > 0, divergence, np.nan)
        lines.append(Series(look.name, x, shown, style=look.style, group=look.group))
        norms.append(Series(look.name, x, run["norm"], style=look.style, group=look.group))
        end = f"{divergence[-1]:.3g}" if divergence.size else "–"
        norm = f"{run['norm'][-1]:.4g}" if divergence.size else "–"
        rows.append((run.name, f"{p:g}", end, norm, str(run.document.get("status", ""))))
    for p in sorted({run.exponents[0] for run in runs}):
        flows = [run for run in runs if run.exponents[0] == p]
        longest = max(flows, key=lambda run: run["log10_k"].size)
        size = longest["log10_k"].size
        same = [run["divergence"] for run in flows if run["log10_k"].size == size]
        lines.append(draw_bound(longest["log10_k"], np.max(same, axis=0), p))
        if size:
            x, label = longest["log10_k"], f"proven growth, {name_exponent(p)}"
            norms.append(draw_growth(label, x, x, longest["norm"], name_exponent(p)))
    return Figure(
        "flows",
        "How the direction settles along the flow",
        "Divergence D from the max-margin direction, and the norm of W, after k steps of mirror"
        f" descent with a small constant rate. {DEFINITION} Dashed: the proven class of D, scaled"
        " to touch the largest from above, and the proven growth of the norm, like log k, through"
        " the last point of the longest flow.",
        (
            Panel("direction", Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)),
            Panel("norm", Axis("log₁₀ k", "log"), Axis("‖W‖ₚ", "log"), tuple(norms)),
        ),
        table=Table(("run", "p", "last D", "‖W‖ₚ", "status"), tuple(rows)),
    )


def _choose_looks(runs: Sequence[LabRun]) -> list[Look]:
    """A run is called by its exponent, and by its folder too where that is not enough."""
    exponents = [run.exponents[0] for run in runs]
    names = []
    for run, p in zip(runs, exponents, strict=True):
        name = name_exponent(p)
        if exponents.count(p) > 1:
            # seed-1-p-2 says its p already.
            folder = re.sub(rf"-?p-{re.escape(f'{p:g}')}$", "", run.name).rstrip("/")
            name = f"{name}, {folder or run.name}"
        names.append(name)
    # Names without their p may coincide, those of folders never do.
    names = [
        name if names.count(name) == 1 else f"{name_exponent(p)}, {run.name}"
        for name, p, run in zip(names, exponents, runs, strict=True)
    ]
    return choose_distinct_looks(names, [name_exponent(p) for p in exponents])


def draw_paths(runs: Sequence[LabRun]) -> Figure:
    """D and margin against the radius, a line for each path."""
    return Figure(
        "regularisation-paths",
        "Regularisation paths",
        "Least loss over W of norm at most R. Left: divergence from the max-margin direction."
        f" {DEFINITION} Right: least lead of an optimal token over the norm of W.",
        (
            Panel("direction", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "divergence")),
            Panel("margin", Axis("R", "log"), Axis("margin"), _draw_lines(runs, "margin", False)),
        ),
        table=_list_paths(runs),
    )


def draw_joint_paths(runs: Sequence[LabRun]) -> Figure:
    """D of W and D of the head against the radius of W."""
    return Figure(
        "joint-regularisation-paths",
        "Joint regularisation paths",
        "Least loss over W and v of norms at most R and r. Divergence of each from its max-margin"
        f" direction. {DEFINITION} That of v is the same with v and its own max-margin solution.",
        (
            Panel("W", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "divergence")),
            Panel("v", Axis("R", "log"), Axis("D", "log"), _draw_lines(runs, "head_divergence")),
        ),
        table=_list_paths(runs),
    )


def _draw_lines(runs: Sequence[LabRun], name: str, positive: bool = True) -> tuple[Series, ...]:
    series = []
    for run, look in zip(runs, _choose_looks(runs), strict=True):
        values: NDArray[np.float64] = run[name]
        values = np.where(values > 0, values, np.nan) if positive else values
        style = look.style if values.size > 1 else "points"
        series.append(Series(look.name, run["radii"], values, style=style, group=look.group))
    return tuple(series)


def _list_paths(runs: Sequence[LabRun]) -> Table:
    rows = tuple(
        (
            run.name,
            f"{run.exponents[0]:g}",
            f"{run['radii'][-1]:.4g}",
            f"{run['divergence'][-1]:.3g}",
            f"{run['residual'].max():.1e}",
            str(run.document.get("status", "")),
        )
        for run in runs
    )
    return Table(("run", "p", "last R", "last D", "largest residual", "status"), rows)
