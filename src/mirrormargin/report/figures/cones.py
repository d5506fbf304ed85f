"""Started in a cone around a locally optimal direction, mirror descent stays in it and settles."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_cones"]


GRID = np.geomspace(0.3, 30.0, 120)


def build_cones(evidence: Evidence) -> Figure | None:
    if "cones" not in evidence:
        return None
    _, arrays = evidence["cones"]
    p, mu, radius = (arrays[name] for name in ("p", "mu", "radius"))
    flows, slopes = [], []
    for one in np.unique(p):
        chosen, group = p == one, name_exponent(one)
        curves = [_rescale(arrays, row) for row in np.flatnonzero(chosen).tolist()]
        flows.append(Series(group, GRID, *find_median(np.array(curves)), group=group))
        share = arrays["descends"][chosen].mean(axis=0)
        slopes.append(Series(group, mu, share[:, radius.argmax()], group=group))
    stays = arrays["stays"]
    return Figure(
        "cones",
        "Cones around locally optimal directions",
        f"Left: divergence D of {stays.size} flows that start in a cone, over that at the start,"
        " against log k over the lead in logits at the start; median with the least and the"
        f" largest. {int(stays.sum())} end at the selection of their cone. Right: share of random W"
        f" on the rim of a cone, at a lead of {radius.max():g} in logits, at which the loss falls"
        " towards the max-margin solution.",
        (
            Panel(
                "from a start in the cone",
                Axis("log k / lead at the start", "log"),
                Axis("D / D at the start", "log"),
                tuple(flows),
            ),
            Panel(
                "slope towards W_mm",
                Axis("width μ of the cone", "log"),
                Axis("share that descends"),
                tuple(slopes),
            ),
        ),
        columns=2,
    )


def _rescale(arrays: dict[str, np.ndarray], row: int) -> np.ndarray:
    """Flows of different lengths on one axis: each outgrows its start when log k is its lead."""
    D = arrays["divergence"][row]
    x = np.log(10) * arrays["log10_k"][row] / arrays["start_radius"][row]
    return np.interp(GRID, x, D / D[0])
