"""Accuracy when the smallest weights are removed: how few are needed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.report.figure import Axis, Figure, Panel, Series, Table
from mirrormargin.report.figures.methods import Look, choose_looks
from mirrormargin.report.figures.spread import Spread, describe_mean, describe_seeds, find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_pruning", "draw_pruning", "draw_shares", "tabulate_pruning"]

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
DATA = {
    "pruning-imdb": "IMDB",
    "pruning-plain": "IMDB, trained by the plain rule,",
    "pruning-sst2": "SST-2",
    "pruning-mnist": "MNIST",
    "pruning-cifar10": "CIFAR-10",
}
GROUPS = {"accuracy": "all block matrices", "attention_accuracy": "attention matrices"}
SHOWN = (0.9, 0.95, 0.98, 0.99, 0.998)  # shares removed that are in the table
MAX_BANDS = 5  # more of them hide each other: the table has the intervals
MARKS = (50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2)


def build_pruning(name: str, evidence: Evidence) -> Figure | None:
    """The figure of one data set, by the name of its experiment."""
    if name not in evidence:
        return None
    _, arrays = evidence[name]
    num_methods, num_seeds = arrays["unpruned"].shape
    seeds, average = describe_seeds(num_seeds), ""
    if num_seeds > 1:
        seeds += " (in the table only)" if num_methods > MAX_BANDS else ""
        average = ", geometric mean over seeds"
    return Figure(
        name,
        f"Accuracy on {DATA[name]} when the smallest weights are removed",
        "Test accuracy of the final weights when only the largest are left, with no training"
        f" afterwards, {seeds}. Weights needed: the least share left at which a model is within one"
        " point of the unpruned one, interpolated between the shares that were measured"
        f"{average}. Settings were chosen on validation data."
        + (" Accuracies are of the first 5,000 test reviews." if "IMDB" in DATA[name] else ""),
        draw_pruning(arrays),
        table=tabulate_pruning(arrays),
    )


def draw_pruning(arrays: Arrays) -> tuple[Panel, ...]:
    """One panel for all block matrices, one for attention."""
    accuracy = {title: arrays[key] for key, title in GROUPS.items()}
    return draw_shares(choose_looks(arrays["optimizer"]), arrays["share"], accuracy)


def draw_shares(
    looks: Sequence[Look], share: Array, accuracy: Mapping[str, Array]
) -> tuple[Panel, ...]:
    """A panel for each title, from accuracies (methods, seeds, shares); right is less weights."""
    left = 100 * (1 - share)
    low, high = 0.999 * left.min(), 1.001 * left.max()
    marks = tuple(mark for mark in MARKS if low <= mark <= high)
    with_bands = len(looks) <= MAX_BANDS
    return tuple(
        Panel(
            title,
            Axis("weights left, %", "log", marks=marks, is_reversed=True),
            Axis("accuracy, %"),
            tuple(
                Series(
                    look.name,
                    left,
                    *_find_bounded_mean(values[k], with_bands),
                    style=look.style,
                    group=look.group,
                )
                for k, look in enumerate(looks)
            ),
        )
        for title, values in accuracy.items()
    )


def _find_bounded_mean(accuracy: Array, with_bands: bool) -> Spread:
    """An interval of few seeds may leave what an accuracy can be."""
    mean, *ends = find_mean(accuracy)
    if not with_bands:
        return Spread(mean, None, None)
    low, high = (None if end is None else end.clip(0, 100) for end in ends)
    return Spread(mean, low, high)


def tabulate_pruning(arrays: Arrays) -> Table:
    """Accuracies at some shares, and the weights needed."""
    share = arrays["share"]
    shown = [wanted for wanted in SHOWN if np.isclose(share, wanted).any()]
    places = [int(np.argmin(abs(share - wanted))) for wanted in shown]
    setting = arrays.get("setting")
    rows = []
    for k, name in enumerate(arrays["optimizer"]):
        row = [str(name)] if setting is None else [str(name), str(setting[k])]
        row.append(describe_mean(arrays["unpruned"][k]))
        row += [describe_mean(arrays["accuracy"][k][:, place]) for place in places]
        row += [_describe_needed(share, arrays[key][k]) for key in ("needed", "attention_needed")]
        rows.append(tuple(row))
    columns = (
        "method",
        *(() if setting is None else ("setting",)),
        "unpruned",
        *(f"{100 * wanted:g}% removed" for wanted in shown),
        "weights needed",
        "of attention needed",
    )
    return Table(columns, tuple(rows))


def _describe_needed(share: Array, needed: Array) -> str:
    # Fewer may do, but that was not measured.
    bound = "at most " if (needed <= 1.001 * (1 - share.max())).any() else ""
    return f"{bound}{100 * np.exp(np.log(needed).mean()):.2g}%"
