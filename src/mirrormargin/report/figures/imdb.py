"""Mirror descent on IMDB at several p: accuracy by epoch, and three ways to say what it came to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.report.figure import Axis, Figure, Panel, Series, Table
from mirrormargin.report.figures.spread import describe_mean, find_mean, name_exponent
from mirrormargin.report.sources import Evidence

__all__ = ["build_imdb"]

COLUMNS = (
    "p",
    "layers",
    "test accuracy, epoch selected on validation data",
    "last epoch",
    "best on test data, as published",
    "epochs",
    "last training accuracy",
)


def build_imdb(evidence: Evidence) -> Figure | None:
    if "imdb" not in evidence:
        return None
    _, arrays = evidence["imdb"]
    p, validation = arrays["p"], arrays["validation"]
    epochs = np.arange(1.0, validation.shape[-1] + 1)
    lines = tuple(
        Series(name_exponent(one), epochs, *find_mean(validation[j]), group=name_exponent(one))
        for j, one in enumerate(p)
    )
    rows = [_describe(arrays, j, k) for k in range(arrays["layers"].size) for j in range(p.size)]
    long = _describe_long_runs(arrays)
    return Figure(
        "imdb",
        "Text transformers trained on IMDB by mirror descent",
        f"Validation accuracy by epoch, mean over {validation.shape[1]} seeds with 95% interval; a"
        " training that has ended stays at its last value. The table has accuracies in %. To take"
        " the epoch that is best on test data, as published, is to select on what is reported:"
        " it is shown to compare with." + (" Long runs are of one seed each." if long else ""),
        (Panel("validation", Axis("epoch"), Axis("accuracy, %"), lines),),
        columns=1,
        table=Table(COLUMNS, tuple(rows + long)),
    )


def _describe(arrays: dict[str, NDArray[Any]], j: int, k: int) -> tuple[str, ...]:
    return (
        f"{arrays['p'][j]:g}",
        f"{arrays['layers'][k]:g}",
        *(describe_mean(arrays[key][j, k]) for key in ("selected_test", "last_test", "best_test")),
        describe_mean(arrays["epochs"][j, k], ".0f"),
        describe_mean(arrays["train"][j, k]),
    )


def _describe_long_runs(arrays: dict[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    if "long_p" not in arrays:
        return []
    keys = ("long_p", "long_selected", "long_best", "long_epochs")
    columns = (arrays[key].tolist() for key in keys)
    return [
        (f"{p:g}, long run", "–", f"{selected:.2f}", "–", f"{best:.2f}", f"{epochs:.0f}", "–")
        for p, selected, best, epochs in zip(*columns, strict=True)
    ]
