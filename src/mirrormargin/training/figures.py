"""Pictures of trainings on real data, side by side: curves, pruning, weights.

Language models, which are judged by their loss, have pictures of their own.

Each training has its own colour and its own label, which says where it differs from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import Look, choose_distinct_looks, find_group
from mirrormargin.figures.weights import KINDS, draw_histograms, draw_shares, join_kinds, merge_bins
from mirrormargin.training.differences import label_trainings, list_differences
from mirrormargin.training.tasks import CLASSIFICATION, CORRELATION, LANGUAGE, Task, read_task

__all__ = ["draw_trainings"]

Summary = dict[str, Any]
CURVES = {
    CLASSIFICATION: {
        "train_loss": ("training loss", Axis("loss", "log")),
        "validation_accuracy": ("validation accuracy", Axis("accuracy, %")),
    },
    CORRELATION: {
        "train_loss": ("training loss", Axis("loss", "log")),
        "validation_matthews": ("correlation on validation data", Axis(CORRELATION.axis)),
    },
    LANGUAGE: {
        "train_loss": ("training loss", Axis(LANGUAGE.axis)),
        "validation_loss": ("validation loss", Axis(LANGUAGE.axis)),
    },
}
# Of a figure's name.
PREFIX = {
    CLASSIFICATION: "trainings",
    CORRELATION: "correlation-trainings",
    LANGUAGE: "language-trainings",
}
GROUPS = {"blocks": "all block matrices", "attention": "attention matrices"}


class Training(NamedTuple):
    """A training as it is drawn: what its folder is called, how it looks, what is known of it."""

    folder: str
    look: Look
    summary: Summary


def draw_trainings(summaries: Mapping[str, Summary]) -> list[Figure]:
    """Three figures of all trainings that are judged by the same number.

    Args:
        summaries: What ``summary.json`` holds, by the name of the training's folder.
    """
    figures: list[Figure] = []
    for task in (CLASSIFICATION, CORRELATION, LANGUAGE):
        own = {
            name: summary
            for name, summary in summaries.items()
            if read_task(summary["config"]).measure == task.measure
        }
        figures += _draw_task(task, own) if own else []
    return figures


def _draw_task(task: Task, summaries: Mapping[str, Summary]) -> list[Figure]:
    configs = {name: summary["config"] for name, summary in summaries.items()}
    labels = label_trainings(configs)
    groups = [find_group(_name_method(config["optimizer"])) for config in configs.values()]
    looks = choose_distinct_looks(labels, groups)
    trainings = [
        Training(name, look, summary)
        for (name, summary), look in zip(summaries.items(), looks, strict=True)
    ]
    return [draw(task, trainings) for draw in (_draw_curves, _draw_pruning, _draw_weights)]


def _name_method(optimizer: Mapping[str, Any]) -> str:
    """The optimizer and its exponent, which choose the colour."""
    has_p = optimizer["name"].startswith("Mirror")
    return str(optimizer["name"]) + (f" p={optimizer['p']:g}" if has_p else "")


def _draw_curves(task: Task, trainings: Sequence[Training]) -> Figure:
    longest = max(len(one.summary["epochs"]) for one in trainings)
    panels = tuple(
        Panel(
            title,
            Axis("epoch", marks=choose_epochs(longest)),
            axis,
            tuple(
                Series(
                    one.look.name,
                    *(_read_epochs(one.summary, column) for column in ("epoch", key)),
                    # A line of one point is not seen.
                    style=one.look.style if len(one.summary["epochs"]) > 1 else "points",
                    group=one.look.group,
                )
                for one in trainings
            ),
        )
        for key, (title, axis) in CURVES[task].items()
    )
    if task is LANGUAGE:
        title = "Language models by epoch"
        caption = (
            "Loss on training and on validation data after each epoch. In the table losses and"
            " perplexities on validation data, of the epoch that was best there; a word's is"
            " exp(total loss / number of words), ends of lines included."
        )
    elif task is CORRELATION:
        title = "Trainings by epoch, judged by correlation"
        caption = (
            "Loss on training data and Matthews' correlation with the labels of validation data"
            " after each epoch. In the table correlations in %, of the epoch that was best on"
            " validation data."
        )
    else:
        title = "Trainings by epoch"
        caption = (
            "Loss on training data and accuracy on validation data after each epoch. In the table"
            " accuracies in %, of the epoch that was best on validation data."
        )
    return Figure(PREFIX[task], title, caption, panels, table=_tabulate(task, trainings))


def choose_epochs(count: int) -> tuple[float, ...]:
    """Whole epochs to be written below an axis from 1 to ``count``: at most eight, the first too.

    Example:
        >>> choose_epochs(3), choose_epochs(30)
        ((1.0, 2.0, 3.0), (1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0))
    """
    decade = 10 ** max(0, math.floor(math.log10(max(count, 1) / 7)))
    stride = next(digit * decade for digit in (1, 2, 5, 10, 20) if count // (digit * decade) <= 7)
    return tuple(float(mark) for mark in sorted({1, *range(stride, count + 1, stride)}))


def _tabulate(task: Task, trainings: Sequence[Training]) -> Table:
    """Results, and the settings in which trainings differ; of one training those that were set."""
    differences = list_differences([one.summary["config"] for one in trainings])
    is_comparison = len(trainings) > 1
    rows = []
    for one, different in zip(trainings, differences, strict=True):
        summary = one.summary
        test = _format(task, summary["test"]["selected"]) if "test" in summary else "–"
        command = str(summary["command"]).removeprefix("mirrormargin train ")
        rows.append(
            (
                one.look.name,
                str(len(summary["epochs"])),
                f"epoch {summary['selected_epoch']}",
                _format(task, summary["validation"]["selected"]),
                test,
                *(_list_perplexities(summary["validation"]) if task is LANGUAGE else ()),
                f"{summary['seconds']:.0f}",
                *((different, one.folder, command) if is_comparison else (command, one.folder)),
            )
        )
    columns = (
        "training",
        "epochs",
        "best",
        "validation",
        "test",
        *(("perplexity", "of a word") if task is LANGUAGE else ()),
        "seconds",
        *(("settings", "folder", "command") if is_comparison else ("settings", "folder")),
    )
    return Table(columns, tuple(rows))


def _format(task: Task, value: float) -> str:
    return f"{value:.{task.digits}f}"


def _list_perplexities(part: Mapping[str, Any]) -> tuple[str, str]:
    word = part["word_perplexity"]
    return f"{part['perplexity']:.3f}", "–" if word is None else f"{word:.1f}"


def _draw_pruning(task: Task, trainings: Sequence[Training]) -> Figure:
    summaries = [one.summary for one in trainings]
    part = "test" if all("test" in summary for summary in summaries) else "validation"
    found = [summary[part] for summary in summaries]
    groups = [group for group in GROUPS if all(group in one["frontier"] for one in found)]
    share = np.array(summaries[0]["shares"])
    looks = [one.look for one in trainings]
    accuracy = {
        GROUPS[group]: np.array([[one["frontier"][group]] for one in found]) for group in groups
    }
    shown = [int(np.argmin(abs(share - wanted))) for wanted in (0.9, 0.95, 0.99)]
    rows = tuple(
        (
            look.name,
            _format(task, one["unpruned"]),
            *(_format(task, one["frontier"]["blocks"][index]) for index in shown),
        )
        for look, one in zip(looks, found, strict=True)
    )
    measure = "Matthews' correlation" if task is CORRELATION else task.measure.capitalize()
    columns = ("training", "unpruned", *(f"{100 * share[index]:g}% removed" for index in shown))
    return Figure(
        f"{PREFIX[task]}-pruning",
        f"{measure} when the smallest weights are removed",
        f"{measure} on {part} data of the final weights when only the largest are left, with no"
        " training afterwards. In the table weights of all block matrices are removed.",
        draw_shares(looks, share, accuracy, task.axis),
        columns=len(groups),
        table=Table(columns, rows),
    )


def _draw_weights(task: Task, trainings: Sequence[Training]) -> Figure:
    weights = [[one.summary["weights"][kind] for kind in KINDS] for one in trainings]
    looks = [one.look for one in trainings]
    longest = max(len(one["histogram"]) for row in weights for one in row)
    histogram = np.zeros((len(looks), len(KINDS), longest), dtype=np.int64)
    for j, row in enumerate(weights):
        for k, one in enumerate(row):
            histogram[j, k, : len(one["histogram"])] = one["histogram"]
    histogram, bin_width = merge_bins(histogram, weights[0][0]["bin_width"])
    rows = tuple(
        (
            look.name,
            join_kinds([one["above"] for one in row]),
            join_kinds([one["largest"] for one in row], ".3f"),
            join_kinds([_or_nan(one["l1_l2"]) for one in row], ".3f"),
        )
        for look, row in zip(looks, weights, strict=True)
    )
    threshold = weights[0][0]["threshold"]
    columns = ("training", f"entries above {threshold:g}", "largest entry", "l1 / (√N l2)")
    return Figure(
        f"{PREFIX[task]}-weights",
        "Magnitudes of key, query and value weights",
        "Entries of all key, query and value matrices by magnitude. In the table key / query /"
        " value; l1 / (√N l2) is 1 if all magnitudes are equal, and the smaller the sparser.",
        draw_histograms(looks, histogram, bin_width),
        columns=3,
        table=Table(columns, rows),
    )


def _read_epochs(summary: Summary, key: str) -> np.ndarray:
    return np.array([float(row[key]) for row in summary["epochs"]])


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)
