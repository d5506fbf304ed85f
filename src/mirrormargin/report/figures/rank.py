"""When the best tokens can be selected, and of what rank the max-margin solutions are."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_mean, find_share
from mirrormargin.report.sources import Evidence

__all__ = ["build_rank"]

STYLES = ("line", "dashed")
CHOSEN = ("separable", "drawn_separable")  # the best tokens, and random ones
NORMS = (0, 1)  # places of the Frobenius norm and of the nuclear norm


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
        labels = (size, f"{size}, dashed")
        for key, label, style in zip(CHOSEN, labels, STYLES, strict=True):
            spreads = [find_share(arrays[key][inside & (sizes[:, 2] == d)]) for d in dims]
            shares.append(Series(label, dims, *np.array(spreads).T, style=style, group=size))
        for k, label, style in zip(NORMS, labels, STYLES, strict=True):
            known = [arrays["rank"][inside & (sizes[:, 2] == d), k] for d in dims]
            spreads = [find_mean(one[one > 0]) if (one > 0).any() else None for one in known]
            middle = np.array([np.nan if one is None else float(one.middle) for one in spreads])
            if np.isfinite(middle).any():
                ranks.append(Series(label, dims, middle, style=style, group=size))
    return Figure(
        "rank",
        "When tokens can be selected, and the rank of the solutions",
        "Left: share of random problems whose chosen tokens can be selected, with Wilson's 95%"
        " intervals; solid for the best tokens, dashed for random ones. Right: mean rank of the"
        " max-margin solutions where there are some; solid for the least Frobenius norm, dashed for"
        " the least nuclear norm.",
        (
            Panel(
                "separable: best tokens, dashed random ones",
                Axis("dimension d"),
                Axis("share"),
                tuple(shares),
            ),
            Panel(
                "rank: Frobenius norm, dashed nuclear norm",
                Axis("dimension d"),
                Axis("rank"),
                tuple(ranks),
            ),
        ),
    )
