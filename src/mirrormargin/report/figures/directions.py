"""Training at p against the max-margin solutions at several q: the nearest one is at q = p."""

from __future__ import annotations

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_directions"]

PUBLISHED, SAFE = 0, 1  # places on the axis of arithmetics


def build_directions(evidence: Evidence) -> Figure | None:
    if "directions" not in evidence:
        return None
    _, arrays = evidence["directions"]
    p, steps, own, same = (arrays[name] for name in ("p", "steps", "own", "same"))
    panels = []
    for j, exponent in enumerate(p):
        series = [
            Series(
                f"solution at q = {q:g}",
                steps[j],
                *find_mean(own[:, SAFE, j, k]),
                group=name_exponent(q),
            )
            for k, q in enumerate(p)
        ]
        series.append(
            Series(
                "q = p, with the published + eps",
                steps[j],
                find_mean(own[:, PUBLISHED, j, j]).middle,
                style="dashed",
                group="published",
            )
        )
        series += [
            Series(
                f"q = {q:g}, for the same tokens",
                steps[j],
                *find_mean(same[:, SAFE, j, k]),
                style="dotted",
                group=name_exponent(q),
                visible=False,
            )
            for k, q in enumerate(p)
        ]
        panels.append(
            Panel(
                f"trained at {name_exponent(exponent)}",
                Axis("step", "log"),
                Axis("D", "log"),
                tuple(series),
            )
        )
    return Figure(
        "directions",
        "Training at p against the max-margin directions of several q",
        f"Directional divergence D of W, trained at p, from the max-margin solution at q; mean over"
        f" {own.shape[0]} problems with its 95% interval. Each solution is for the tokens that the"
        " run at q selects; “for the same tokens” takes those of this run at every q.",
        tuple(panels),
        columns=3,
    )
