"""A ViT on CIFAR-10, by mirror descent at p = 1.1 and by Adam: accuracy and weights."""

from __future__ import annotations

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.weights import draw_histograms, join_kinds
from mirrormargin.report.sources import Evidence

__all__ = ["build_cifar10_vit"]


def build_cifar10_vit(evidence: Evidence) -> Figure | None:
    if "cifar10-vit" not in evidence:
        return None
    _, arrays = evidence["cifar10-vit"]
    looks = choose_looks(arrays["optimizer"])
    lines = tuple(
        Series(
            look.name, arrays["epoch"], arrays["accuracy"][k], style=look.style, group=look.group
        )
        for k, look in enumerate(looks)
    )
    panels = (Panel("validation accuracy", Axis("epoch"), Axis("accuracy, %"), lines),)
    panels += draw_histograms(looks, arrays["histogram"], arrays["bin_width"])
    rows = tuple(
        (
            look.name,
            f"{arrays['accuracy'][k, -1]:.2f}",
            f"{arrays['test'][k]:.2f}",
            join_kinds(arrays["near_zero"][k]),
            join_kinds(arrays["largest"][k], ".2f"),
        )
        for k, look in enumerate(looks)
    )
    return Figure(
        "cifar10-vit",
        "A ViT on CIFAR-10, by mirror descent and by Adam",
        "Validation accuracy by epoch, and the entries of all key, query and value matrices by"
        " magnitude. In the table: accuracies after the last epoch, entries in the first bin of"
        " the histogram, and the largest magnitude, for key / query / value.",
        panels,
        columns=2,
        table=Table(
            ("optimizer", "validation, %", "test, %", "entries near zero", "largest entry"), rows
        ),
    )
