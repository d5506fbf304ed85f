"""K and Q trained in place of W: they go to the solution of least nuclear norm."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_factors"]

TRAINED = ("W", "K Qᵀ")
SOLUTIONS = ("Frobenius solution", "nuclear-norm solution")


def build_factors(evidence: Evidence) -> Figure | None:
    if "factors" not in evidence:
        return None
    _, arrays = evidence["factors"]
    cosine, attention, steps = (arrays[name] for name in ("cosine", "attention", "steps"))
    places = np.arange(len(TRAINED), dtype=np.float64)
    bars = tuple(
        Series(name, places, *find_mean(cosine[:, :, k]), style="bars", group=name)
        for k, name in enumerate(SOLUTIONS)
    )
    lines = tuple(
        Series(f"trained {name}", steps, *find_mean(attention[:, k]), group=f"trained {name}")
        for k, name in enumerate(TRAINED)
    )
    ticks = tuple(f"trained {name}" for name in TRAINED)
    return Figure(
        "factors",
        "K and Q trained in place of W, against two solutions",
        f"Left: cosine of what was trained to two solutions for the tokens it selects. Right: mean"
        f" attention on these tokens. Means over {cosine.shape[0]} problems with 95% intervals.",
        (
            Panel("direction", Axis("", ticks=ticks), Axis("cosine"), bars),
            Panel("attention", Axis("step", "log"), Axis("attention"), lines),
        ),
    )
