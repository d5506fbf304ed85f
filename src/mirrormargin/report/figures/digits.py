"""A small transformer on scikit-learn's digits: pruning, weights, and where it looks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.maps import draw_pictures
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.weights import KINDS, draw_histograms, join_kinds
from mirrormargin.report.figures.pruning import draw_pruning, tabulate_pruning
from mirrormargin.report.sources import Evidence

__all__ = ["build_digits"]


def build_digits(evidence: Evidence) -> Figure | None:
    if "digits" not in evidence:
        return None
    _, arrays = evidence["digits"]
    looks = choose_looks(arrays["optimizer"])
    places = np.arange(float(len(KINDS)))
    spread = Panel(
        "how evenly weight is spread",
        Axis("", ticks=KINDS),
        Axis("|w|₁ / (√N |w|₂)"),
        tuple(
            # Lines, though between kinds there is nothing: methods of one colour differ in dashes.
            Series(
                look.name,
                places,
                arrays["l1_l2"][k].mean(axis=0),
                style=look.style,
                group=look.group,
            )
            for k, look in enumerate(looks)
        ),
    )
    pictures = draw_pictures(
        [look.name for look in looks],
        *(arrays[key] for key in ("image", "attention", "label", "prediction")),
    )
    return Figure(
        "digits",
        "A small transformer on handwritten digits",
        "Top: test accuracy when only the largest weights are left, mean over"
        f" {arrays['unpruned'].shape[1]} seeds with 95% interval, and how evenly weight is spread"
        " over the entries, 1 if all magnitudes are equal. Then, of the first seed, the entries"
        " by magnitude. Below: images, and the attention of [CLS] on their patches relative to the"
        " largest, with the ink of the image as dots and the class that the model gives.",
        (
            *draw_pruning(arrays),
            spread,
            *draw_histograms(looks, arrays["histogram"], arrays["bin_width"]),
            pictures,
        ),
        columns=3,
        table=_tabulate(arrays),
    )


def _tabulate(arrays: dict[str, NDArray[Any]]) -> Table:
    pruned = tabulate_pruning(arrays)
    more = ("|w|₁ / (√N |w|₂), key / query / value", "exact zeros")
    rows = tuple(
        (*row, join_kinds(arrays["l1_l2"][k].mean(axis=0), ".3f"), join_kinds(arrays["zeros"][k]))
        for k, row in enumerate(pruned.rows)
    )
    return Table((*pruned.columns, *more), rows)
