"""When the best tokens can be selected, and of what rank the max-margin solutions are."""

from __future__ import annotations

import numpy as np

from mirrormargin.report.figure import Axis, Figure, Panel, Series
from mirrormargin.report.figures.spread import find_mean, find_share
from mirrormargin.report.sources import Evidence

__all__ = ["build_rank"]

NORMS = ("Frobenius solution", "nuclear-norm solution")
CHOSEN = (("separable", "best tokens"), ("drawn_separable", "random tokens"))


def build_rank(evidence: Evidence) -> Figure | None:
    if "rank" not in evidence:
        return None
    _, arrays = evidence["rank"]
    sizes = np.stack([arrays[name] for name in ("n", "T", "d")], axis=1)
    shares, ranks = [], []
    families = list(dict.fromkeys((int(n), int(T)) for n, T, _ in sizes))
    single = len({T for _, T in families}) == 1
    for n, T in families:
        size = f"n = {n}" if single else f"n = {n}, T = {T}"
        inside = (sizes[:, 0] == n) & (sizes[:, 1] == T)
        dims = np.unique(sizes[inside, 2])
        for key, what in CHOSEN:
            spreads = [find_share(arrays[key][inside & (sizes[:, 2] == d)]) for d in dims]
            style = "line" if key == "separable" else "dashed"
            label = f"{what}, {size}"
            shares.append(Series(label, dims, *_stack(spreads), style=style, group=f"n = {n}, {T}"))
        for k, name in enumerate(NORMS):
            known = [arrays["rank"][inside & (sizes[:, 2] == d), k] for d in dims]
            spreads = [find_mean(one[one > 0]) if (one > 0).any() else None for one in known]
            middle = np.array([np.nan if one is None else float(one.middle) for one in spreads])
            if np.isfinite(middle).any():
                style = "line" if k == 0 else "dashed"
                label = f"{name}, {size}"
                ranks.append(Series(label, dims, middle, style=style, group=f"n = {n}, {T}"))
    return Figure(
        "rank",
        "When tokens can be selected, and the rank of the solutions",
        "Left: share of random problems whose chosen tokens can be selected, with Wilson's 95%"
        " intervals. Right: mean rank of the max-margin solutions where there are some.",
        (
            Panel("separable", Axis("dimension d"), Axis("share"), tuple(shares)),
            Panel("rank", Axis("dimension d"), Axis("rank"), tuple(ranks)),
        ),
    )


def _stack(spreads: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, middle, high = (
        np.array([float(getattr(one, name)) for one in spreads])
        for name in ("low", "middle", "high")
    )
    return middle, low, high
