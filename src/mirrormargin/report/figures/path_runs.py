"""Regularisation paths of run folders: direction and margin, or both directions of a joint path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import name_exponent
from mirrormargin.report.sources import RunFolder

__all__ = ["build_joint_runs", "build_path_runs"]


def build_path_runs(runs: Sequence[RunFolder]) -> Figure:
    """D and margin against the radius, a line for each path."""
    return Figure(
        "regularisation-paths",
        "Regularisation paths",
        "Least loss over W of norm at most R. Left: divergence from the max-margin direction."
        " Right: least lead of an optimal token over the norm of W.",
        (
            Panel("direction", Axis("R", "log"), Axis("D", "log"), _draw(runs, "divergence")),
            Panel("margin", Axis("R", "log"), Axis("margin"), _draw(runs, "margin", False)),
        ),
        table=_list_paths(runs),
    )


def build_joint_runs(runs: Sequence[RunFolder]) -> Figure:
    """D of W and D of the head against the radius of W."""
    return Figure(
        "joint-regularisation-paths",
        "Joint regularisation paths",
        "Least loss over W and v of norms at most R and r. Divergence of each from its max-margin"
        " direction.",
        (
            Panel("W", Axis("R", "log"), Axis("D", "log"), _draw(runs, "divergence")),
            Panel("v", Axis("R", "log"), Axis("D", "log"), _draw(runs, "head_divergence")),
        ),
        table=_list_paths(runs),
    )


def _draw(runs: Sequence[RunFolder], name: str, positive: bool = True) -> tuple[Series, ...]:
    series = []
    for run in runs:
        values: NDArray[np.float64] = run[name]
        values = np.where(values > 0, values, np.nan) if positive else values
        group = name_exponent(run.exponents[0])
        series.append(Series(group, run["radii"], values, group=group))
    return tuple(series)


def _list_paths(runs: Sequence[RunFolder]) -> Table:
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
