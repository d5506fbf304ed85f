"""Pictures of trainings on real data, side by side: curves, pruning, weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.weights import KINDS, draw_histograms, draw_shares, join_kinds

__all__ = ["draw_trainings"]

Summary = dict[str, Any]
CURVES = {
    "train_loss": ("training loss", Axis("loss", "log")),
    "validation_accuracy": ("validation accuracy", Axis("accuracy, %")),
}
GROUPS = {"blocks": "all block matrices", "attention": "attention matrices"}


def draw_trainings(summaries: Mapping[str, Summary]) -> list[Figure]:
    """Three figures of all of them together.

    Args:
        summaries: What ``summary.json`` holds, by the name of the training's folder.
    """
    named = {_describe_name(name, summary): summary for name, summary in summaries.items()}
    return [_draw_curves(named), _draw_pruning(named), _draw_weights(named)]


def _draw_curves(named: Mapping[str, Summary]) -> Figure:
    looks = choose_looks(named)
    panels = tuple(
        Panel(
            title,
            Axis("epoch"),
            axis,
            tuple(
                Series(
                    look.name,
                    *(_read_epochs(summary, column) for column in ("epoch", key)),
                    style=look.style,
                    group=look.group,
                )
                for summary, look in zip(named.values(), looks, strict=True)
            ),
        )
        for key, (title, axis) in CURVES.items()
    )
    columns = ("training", "epochs", "best", "validation", "test", "seconds", "settings")
    return Figure(
        "trainings",
        "Trainings by epoch",
        "Loss on training data and accuracy on validation data after each epoch. In the table"
        " accuracies in %, of the epoch that was best on validation data.",
        panels,
        table=Table(columns, tuple(_describe(*one) for one in named.items())),
    )


def _describe(name: str, summary: Summary) -> tuple[str, ...]:
    settings = str(summary["command"]).removeprefix("mirrormargin train ")
    test = f"{summary['test']['selected']:.2f}" if "test" in summary else "–"
    return (
        name,
        str(len(summary["epochs"])),
        f"epoch {summary['selected_epoch']}",
        f"{summary['validation']['selected']:.2f}",
        test,
        f"{summary['seconds']:.0f}",
        settings,
    )


def _describe_name(name: str, summary: Summary) -> str:
    """The folder's name and how it was trained, which also chooses the colour."""
    optimizer = summary["config"]["optimizer"]
    has_p = optimizer["name"].startswith("Mirror")
    return f"{name}, {optimizer['name']}" + (f" p={optimizer['p']:g}" if has_p else "")


def _draw_pruning(named: Mapping[str, Summary]) -> Figure:
    summaries = list(named.values())
    part = "test" if all("test" in summary for summary in summaries) else "validation"
    found = [summary[part] for summary in summaries]
    groups = [group for group in GROUPS if all(group in one["frontier"] for one in found)]
    share = np.array(summaries[0]["shares"])
    looks = choose_looks(named)
    accuracy = {
        GROUPS[group]: np.array([[one["frontier"][group]] for one in found]) for group in groups
    }
    shown = [int(np.argmin(abs(share - wanted))) for wanted in (0.9, 0.95, 0.99)]
    rows = tuple(
        (
            name,
            f"{one['unpruned']:.2f}",
            *(f"{one['frontier']['blocks'][index]:.2f}" for index in shown),
        )
        for name, one in zip(named, found, strict=True)
    )
    columns = ("training", "unpruned", *(f"{100 * share[index]:g}% removed" for index in shown))
    return Figure(
        "trainings-pruning",
        "Accuracy when the smallest weights are removed",
        f"Accuracy on {part} data of the final weights when only the largest are left, with no"
        " training afterwards. In the table weights of all block matrices are removed.",
        draw_shares(looks, share, accuracy),
        columns=len(groups),
        table=Table(columns, rows),
    )


def _draw_weights(named: Mapping[str, Summary]) -> Figure:
    weights = [[summary["weights"][kind] for kind in KINDS] for summary in named.values()]
    longest = max(len(one["histogram"]) for row in weights for one in row)
    histogram = np.zeros((len(named), len(KINDS), longest), dtype=np.int64)
    for j, row in enumerate(weights):
        for k, one in enumerate(row):
            histogram[j, k, : len(one["histogram"])] = one["histogram"]
    rows = tuple(
        (
            name,
            join_kinds([one["above"] for one in row]),
            join_kinds([one["largest"] for one in row], ".3f"),
            join_kinds([_or_nan(one["l1_l2"]) for one in row], ".3f"),
        )
        for name, row in zip(named, weights, strict=True)
    )
    threshold = weights[0][0]["threshold"]
    columns = ("training", f"entries above {threshold:g}", "largest entry", "l1 / (√N l2)")
    return Figure(
        "trainings-weights",
        "Magnitudes of key, query and value weights",
        "Entries of all key, query and value matrices by magnitude. In the table key / query /"
        " value; l1 / (√N l2) is 1 if all magnitudes are equal, and the smaller the sparser.",
        draw_histograms(choose_looks(named), histogram, weights[0][0]["bin_width"]),
        columns=3,
        table=Table(columns, rows),
    )


def _read_epochs(summary: Summary, key: str) -> np.ndarray:
    return np.array([float(row[key]) for row in summary["epochs"]])


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)
