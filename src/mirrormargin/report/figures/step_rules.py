"""Gradient descent against normalised steps and Polyak's: direction, loss, attention, norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median
from mirrormargin.report.sources import Evidence

__all__ = ["build_step_rules"]

Array = NDArray[np.float64]
NAMES = {"constant": "gradient descent", "normalized": "normalised", "polyak": "Polyak"}
QUANTILES = (0.1, 0.9)


def build_step_rules(evidence: Evidence) -> Figure | None:
    if "steps" not in evidence:
        return None
    _, arrays = evidence["steps"]
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = np.log10(arrays["divergence"])
    quantities: tuple[tuple[str, str, str, Array], ...] = (
        ("direction", "log₁₀(1 − cos)", "linear", np.where(np.isfinite(turned), turned, np.nan)),
        ("loss", "log₁₀ of the loss gap", "linear", arrays["log_loss_gap"] / np.log(10)),
        ("attention", "log₁₀(1 − attention)", "linear", arrays["log_unattended"] / np.log(10)),
        ("norm", "‖W‖", "log", arrays["norm"]),
    )
    entries = _name_entries(arrays)
    panels = tuple(
        Panel(
            title,
            Axis("step", "log"),
            Axis(label, scale),
            tuple(
                Series(
                    name,
                    arrays["steps"],
                    *find_median(values[:, place], *QUANTILES),
                    style=style,
                    group=group,
                    visible=visible,
                )
                for place, (name, group, style, visible) in enumerate(entries)
            ),
        )
        for title, label, scale, values in quantities
    )
    return Figure(
        "steps",
        "Normalised and Polyak steps against gradient descent",
        f"Median over {arrays['seed'].size} problems with equal scores and nearly orthogonal"
        " tokens, with the range from the 10th to the 90th of a hundred. Of gradient descent the"
        " best rate is shown; the legend has the others.",
        panels,
    )


def _name_entries(arrays: dict[str, NDArray[Any]]) -> list[tuple[str, str, str, bool]]:
    """Name, colour group, style and visibility of each rule."""
    rules, rates = arrays["rule"].tolist(), arrays["lr"].tolist()
    ends = np.median(arrays["divergence"][..., -1], axis=0)
    best = {
        rule: min((k for k, one in enumerate(rules) if one == rule), key=lambda k: ends[k])
        for rule in rules
    }
    entries = []
    for k, (rule, rate) in enumerate(zip(rules, rates, strict=True)):
        group = NAMES.get(rule, rule)
        word = "factor" if rule == "polyak" else "lr ="
        name = group if rules.count(rule) == 1 else f"{group}, {word} {rate:g}"
        shown = k == best[rule] or rule == "polyak"
        entries.append((name, group, "line" if k == best[rule] else "dotted", shown))
    return entries
