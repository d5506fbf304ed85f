"""Linear models: mirror descent goes to the lp max-margin separator, at every p."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_linear"]


def build_linear(evidence: Evidence) -> Figure | None:
    panels: list[Panel] = []
    if "linear-flow" in evidence:
        _, arrays = evidence["linear-flow"]
        lp = arrays["potential"] == "lp"
        settling, entries = [], []
        for p in np.unique(arrays["p"][lp]):
            flows, group = lp & (arrays["p"] == p), name_exponent(p)
            x = arrays["log10_k"][flows][0]
            settling.append(
                Series(group, x, *find_median(arrays["divergence"][flows]), group=group)
            )
            sizes = find_median(arrays["entries"][flows]).middle
            ranks = np.arange(1.0, sizes.size + 1)
            entries.append(Series(group, ranks, sizes, group=group))
        others = [
            Series(
                name,
                arrays["log10_k"][arrays["potential"] == name][0],
                *find_median(arrays["divergence"][arrays["potential"] == name]),
                group=name,
            )
            for name in dict.fromkeys(arrays["potential"][~lp].tolist())
        ]
        decades = Axis("log₁₀ k", "log")
        panels.append(Panel("small steps, lp", decades, Axis("D", "log"), tuple(settling)))
        if others:
            label = Axis("1 − cos", "log")
            panels.append(Panel("other potentials", decades, label, tuple(others)))
        size = Axis("|w_i| / largest")
        panels.append(Panel("entries in the end", Axis("rank"), size, tuple(entries)))
    if "linear-steps" in evidence:
        _, arrays = evidence["linear-steps"]
        lines = [
            Series(
                name_exponent(p),
                arrays["steps"],
                *find_median(arrays["divergence"][arrays["p"] == p]),
                group=name_exponent(p),
            )
            for p in np.unique(arrays["p"])
        ]
        axes = Axis("step", "log"), Axis("D", "log")
        panels.append(Panel("normalised steps, lp", *axes, tuple(lines)))
    if not panels:
        return None
    return Figure(
        "linear",
        "Linear models against the max-margin separator of their geometry",
        "Divergence of w from the max-margin separator in the norm of its potential, and the"
        " entries of w by size; median over data sets, with the least and the largest where it is a"
        " divergence.",
        tuple(panels),
    )
