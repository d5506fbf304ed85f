"""Where training from random starts ends: at the optimal tokens, at a local selection, or not."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_share
from mirrormargin.report.sources import Evidence

__all__ = ["build_basins"]

KINDS = {
    "global": "optimal tokens",
    "local": "locally optimal",
    "unsettled": "not settled",
    "unknown": "unknown",
}
ARITHMETICS = ("with the published + eps", "safe gradients")


def build_basins(evidence: Evidence) -> Figure | None:
    if "directions" not in evidence:
        return None
    _, arrays = evidence["directions"]
    p, kind = arrays["p"], arrays["kind"]
    present = [name for name in KINDS if (kind == name).any()]
    places = np.arange(len(p), dtype=np.float64)
    panels = tuple(
        Panel(
            title,
            Axis("", ticks=tuple(map(name_exponent, p))),
            Axis("share of runs"),
            tuple(
                Series(
                    KINDS[name],
                    places,
                    *find_share(kind[:, place] == name),
                    style="bars",
                    group=KINDS[name],
                )
                for name in present
            ),
        )
        for place, title in reversed(list(enumerate(ARITHMETICS)))
    )
    return Figure(
        "basins",
        "Which tokens training ends at",
        f"Share of {kind.shape[0]} runs from random starts that end at the optimal tokens, at"
        " another locally optimal selection, or at neither; Wilson's 95% intervals.",
        panels,
    )
