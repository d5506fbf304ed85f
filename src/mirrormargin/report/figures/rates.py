r"""How fast the direction settles, over hundreds of decades of steps, against the proven class.

p < 2:  (log k)^-(p - 1)        p = 2:  log log k / log k        p > 2:  1 / log k
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_rates", "draw_bound", "find_rate"]

Array = NDArray[np.float64]
FIRST_DECADE = 3.0  # before it the start is seen, not the rate
REGIMES = (("p below 2", 1.0, 2.0), ("p = 2", 2.0, 2.0), ("p above 2", 2.0, np.inf))


def build_rates(evidence: Evidence) -> Figure | None:
    if "rates" not in evidence:
        return None
    _, arrays = evidence["rates"]
    p = arrays["p"]
    regimes = []
    for title, low, high in REGIMES:
        inside = (p == 2) if low == high else (p > low) & (p < high)
        if inside.any():
            regimes.append((title, np.unique(p[inside])))
    settling, growing = [], []
    for title, exponents in regimes:
        lines: list[Series] = []
        norms: list[Series] = []
        for one in exponents:
            flows = p == one
            x, group = arrays["log10_k"][flows][0], name_exponent(one)
            spread = find_median(arrays["divergence"][flows])
            lines.append(Series(group, x, *spread, group=group))
            most = spread.middle if spread.high is None else spread.high
            lines.append(draw_bound(x, most, one))
            norms.append(Series(group, x, *find_median(arrays["norm"][flows]), group=group))
        settling.append(Panel(title, Axis("log₁₀ k", "log"), Axis("D", "log"), tuple(lines)))
        axes = Axis("log₁₀ k", "log"), Axis("‖W‖ₚ", "log")
        growing.append(Panel(f"norm, {title}", *axes, tuple(norms)))
    count = len(np.unique(arrays["seed"]))
    return Figure(
        "rates",
        "How fast the direction settles, against the proven rate",
        f"Top: divergence D from the max-margin direction after k steps, median of {count} problems"
        " with the least and the largest. Dashed: the proven class, scaled so that it touches the"
        " largest D from above; only its slope is claimed. Bottom: the norm of W, which should grow"
        " like log k.",
        (*settling, *growing),
        columns=len(regimes),
    )


def find_rate(log10_k: Array, p: float) -> Array:
    """The proven class at p, up to a factor; nan where it is not decreasing yet."""
    log_k = np.asarray(log10_k, dtype=np.float64) * np.log(10)
    with np.errstate(all="ignore"):
        if p == 2:
            return np.where(log_k > np.e, np.log(log_k) / log_k, np.nan)
        return np.where(log_k > 0, log_k ** -min(p - 1, 1.0), np.nan)


def draw_bound(log10_k: Array, divergence: Array, p: float) -> Series:
    """The proven class as a line that lies on the data or above it."""
    rate = find_rate(log10_k, p)
    late = log10_k >= FIRST_DECADE
    ratio = (divergence / rate)[late]
    ratio = ratio[np.isfinite(ratio)]
    scale = float(ratio.max()) if ratio.size else np.nan
    bound = np.where(late, scale * rate, np.nan)
    group = name_exponent(p)
    return Series(f"proven class, {group}", log10_k, bound, style="dashed", group=group)
