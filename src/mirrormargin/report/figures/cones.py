"""Started in a cone around a locally optimal direction, mirror descent stays in it and settles."""

from __future__ import annotations

import numpy as np

from mirrormargin.report.figure import Axis, Figure, HeatFrames, Panel, Series
from mirrormargin.report.figures.spread import find_median, name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_cones"]


def build_cones(evidence: Evidence) -> Figure | None:
    if "cones" not in evidence:
        return None
    _, arrays = evidence["cones"]
    p, mu, radius = (arrays[name] for name in ("p", "mu", "radius"))
    lines, maps = [], []
    for one in np.unique(p):
        flows, group = p == one, name_exponent(one)
        spread = find_median(arrays["divergence"][flows])
        lines.append(Series(group, arrays["log10_k"][flows][0], *spread, group=group))
        heat = HeatFrames(
            arrays["descends"][flows].mean(axis=0)[None],
            ("all seeds",),
            tuple(f"{width:g}" for width in mu),
            tuple(f"{size:g}" for size in radius),
            quantity="share that descends",
        )
        title = f"descends, {group}"
        maps.append(Panel(title, Axis("lead in logits"), Axis("width μ of the cone"), heat=heat))
    stays = arrays["stays"]
    return Figure(
        "cones",
        "Cones around locally optimal directions",
        "First: divergence D of descent started in a cone of width 0.01, median over problems with"
        f" the least and the largest; {int(stays.sum())} of {stays.size} end at the selection of"
        " their cone. Then: share of random W on the rim of a cone at which the loss falls towards"
        " the max-margin solution.",
        (
            Panel(
                "from a start in the cone", Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)
            ),
            *maps,
        ),
        columns=2,
    )
