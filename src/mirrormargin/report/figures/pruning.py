"""Accuracy when the smallest weights are removed: how few are needed?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Figure, Panel, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds
from mirrormargin.figures.weights import MAX_BANDS, draw_shares
from mirrormargin.report.sources import Evidence

__all__ = ["build_pruning", "draw_pruning", "tabulate_pruning"]

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
