"""Trainings of models on real data, side by side: curves, pruning, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.weights import KINDS, draw_histograms, draw_shares, join_kinds
from mirrormargin.report.sources import RunFolder

__all__ = ["build_model_trainings"]

CURVES = {
    "train_loss": ("training loss", Axis("loss", "log")),
    "validation_accuracy": ("validation accuracy", Axis("accuracy, %")),
}
GROUPS = {"blocks": "all block matrices", "attention": "attention matrices"}


def build_model_trainings(runs: Sequence[RunFolder]) -> list[Figure]:
    """Three figures of all of them together."""
    return [_draw_curves(runs), _draw_pruning(runs), _draw_weights(runs)]


def _draw_curves(runs: Sequence[RunFolder]) -> Figure:
    looks = choose_looks(map(_name, runs))
    panels = tuple(
        Panel(
            title,
            Axis("epoch"),
            axis,
            tuple(
                Series(
                    look.name,
                    *(_read_epochs(run, column) for column in ("epoch", key)),
                    style=look.style,
                    group=look.group,
                )
                for run, look in zip(runs, looks, strict=True)
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
        table=Table(columns, tuple(_describe(run) for run in runs)),
    )


def _describe(run: RunFolder) -> tuple[str, ...]:
    document = run.document
    settings = str(document["command"]).removeprefix("mirrormargin train ")
    test = f"{document['test']['selected']:.2f}" if "test" in document else "–"
    return (
        _name(run),
        str(len(document["epochs"])),
        f"epoch {document['selected_epoch']}",
        f"{document['validation']['selected']:.2f}",
        test,
        f"{document['seconds']:.0f}",
        settings,
    )


def _name(run: RunFolder) -> str:
    """The folder's name and how it was trained, which also chooses the colour."""
    optimizer = run.document["config"]["optimizer"]
    has_p = optimizer["name"].startswith("Mirror")
    return f"{run.name}, {optimizer['name']}" + (f" p={optimizer['p']:g}" if has_p else "")


def _draw_pruning(runs: Sequence[RunFolder]) -> Figure:
    part = "test" if all("test" in run.document for run in runs) else "validation"
    found = [run.document[part] for run in runs]
    groups = [group for group in GROUPS if all(group in one["frontier"] for one in found)]
    share = np.array(runs[0].document["shares"])
    looks = choose_looks(map(_name, runs))
    accuracy = {
        GROUPS[group]: np.array([[one["frontier"][group]] for one in found]) for group in groups
    }
    shown = [int(np.argmin(abs(share - wanted))) for wanted in (0.9, 0.95, 0.99)]
    rows = tuple(
        (
            _name(run),
            f"{one['unpruned']:.2f}",
            *(f"{one['frontier']['blocks'][place]:.2f}" for place in shown),
        )
        for run, one in zip(runs, found, strict=True)
    )
    columns = ("training", "unpruned", *(f"{100 * share[place]:g}% removed" for place in shown))
    return Figure(
        "trainings-pruning",
        "Accuracy when the smallest weights are removed",
        f"Accuracy on {part} data of the final weights when only the largest are left, with no"
        " training afterwards. In the table weights of all block matrices are removed.",
        draw_shares(looks, share, accuracy),
        columns=len(groups),
        table=Table(columns, rows),
    )


def _draw_weights(runs: Sequence[RunFolder]) -> Figure:
    weights = [[run.document["weights"][kind] for kind in KINDS] for run in runs]
    longest = max(len(one["histogram"]) for row in weights for one in row)
    histogram = np.zeros((len(runs), len(KINDS), longest), dtype=np.int64)
    for j, row in enumerate(weights):
        for k, one in enumerate(row):
            histogram[j, k, : len(one["histogram"])] = one["histogram"]
    rows = tuple(
        (
            _name(run),
            join_kinds([one["above"] for one in row]),
            join_kinds([one["largest"] for one in row], ".3f"),
            join_kinds([_or_nan(one["l1_l2"]) for one in row], ".3f"),
        )
        for run, row in zip(runs, weights, strict=True)
    )
    threshold = weights[0][0]["threshold"]
    columns = ("training", f"entries above {threshold:g}", "largest entry", "l1 / (√N l2)")
    return Figure(
        "trainings-weights",
        "Magnitudes of key, query and value weights",
        "Entries of all key, query and value matrices by magnitude. In the table key / query /"
        " value; l1 / (√N l2) is 1 if all magnitudes are equal, and the smaller the sparser.",
        draw_histograms(choose_looks(map(_name, runs)), histogram, weights[0][0]["bin_width"]),
        columns=3,
        table=Table(columns, rows),
    )


def _read_epochs(run: RunFolder, key: str) -> np.ndarray:
    return np.array([float(row[key]) for row in run.document["epochs"]])


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)
