"""Prompts in the plane, from several starts: which token each one goes to, and how fast."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_prompts"]

TITLES = {
    "alike": "other tokens score alike",
    "local": "a second token is locally optimal",
    "multi": "three sequences",
}
RULES = {"normalized": "normalised", "constant": "gradient descent"}
VIEW = 4.0  # radius of the plane that is shown: the keys are within 2


def build_prompts(evidence: Evidence) -> Figure | None:
    if "prompts" not in evidence:
        return None
    _, arrays = evidence["prompts"]
    names = list(dict.fromkeys(arrays["problem"].tolist()))
    planes, rates = [], []
    for name in names:
        chosen = arrays["problem"] == name
        title = TITLES.get(name, str(name))
        normalized = np.flatnonzero(chosen & (arrays["rule"] == "normalized"))
        series = [_draw_ray(arrays["target"][place]) for place in _choose_rays(arrays, normalized)]
        for place in normalized:
            path = arrays["path"][place]
            path = path[np.hypot(*path.T) <= VIEW]
            best = arrays["optimal"][place] == 1
            group = "optimal tokens" if best else "locally optimal"
            style = "arrow path"
            series.append(Series(f"to the {group}", *path.T, style=style, group=group))
        keys = arrays["keys"][chosen][0].reshape(-1, 2)
        series.append(Series("tokens", *keys.T, style="points", group="target"))
        axes = Axis("first coordinate"), Axis("second coordinate")
        planes.append(Panel(title, *axes, tuple(series), equal_aspect=True))
        lines = []
        for rule, group in RULES.items():
            values = arrays["divergence"][chosen & (arrays["rule"] == rule)]
            values = np.where(values > 0, values, np.nan)
            lines.append(Series(group, arrays["steps"], *find_median(values), group=group))
        axes = Axis("step", "log"), Axis("1 − cos", "log")
        rates.append(Panel(f"1 − cos, {title}", *axes, tuple(lines)))
    return Figure(
        "prompts",
        "Where a prompt goes from several starts",
        "Top: normalised descent from six starts, near the origin; dashed rays are the max-margin"
        " directions of the tokens selected in the end. Bottom: 1 − cos to that direction, median"
        " over the starts with the least and the largest.",
        (*planes, *rates),
        columns=len(names),
    )


def _choose_rays(arrays: dict[str, np.ndarray], places: np.ndarray) -> list[int]:
    """One run for each target that there is."""
    seen: dict[tuple[float, ...], int] = {}
    for place in places:
        seen.setdefault(tuple(np.round(arrays["target"][place], 6).tolist()), int(place))
    return list(seen.values())


def _draw_ray(target: np.ndarray) -> Series:
    end = VIEW * target / max(float(np.hypot(*target)), 1e-300)
    x, y = np.array([0.0, end[0]]), np.array([0.0, end[1]])
    return Series("max-margin direction", x, y, style="dashed", group="target")
