"""Mirror descent on IMDB at several p: accuracy by epoch, and three ways to say what it came to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
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
    p, layers, validation = arrays["p"], arrays["layers"], arrays["validation"]
    epochs = np.arange(1.0, validation.shape[-1] + 1)
    panels = tuple(
        Panel(
            f"validation, {count:g} layers",
            Axis("epoch"),
            Axis("accuracy, %"),
            tuple(
                Series(
                    name_exponent(one),
                    epochs,
                    *find_mean(validation[j, k]),
                    group=name_exponent(one),
                )
                for j, one in enumerate(p)
            ),
        )
        for k, count in enumerate(layers)
    )
    rows = [_describe(arrays, j, k) for k in range(layers.size) for j in range(p.size)]
    long = _describe_long_runs(arrays)
    return Figure(
        "imdb",
        "Text transformers trained on IMDB by mirror descent",
        f"Validation accuracy by epoch, {describe_seeds(validation.shape[2])}; a training that has"
        " ended stays at its last value. The table has accuracies in %. To take the epoch that is"
        " best on test data, as published, is to select on what is reported: it is shown to compare"
        " with, and of small models is that of the first 5,000 test reviews."
        + (" Long runs are of one seed each." if long else ""),
        panels,
        columns=len(panels),
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
    keys = ("long_selected", "long_last", "long_best")
    return [
        (
            f"{p:g}, long run",
            f"{arrays['long_layers'][j]:g}",
            *(f"{arrays[key][j]:.2f}" for key in keys),
            f"{arrays['long_epochs'][j]:.0f}",
            f"{arrays['long_train'][j]:.2f}",
        )
        for j, p in enumerate(arrays["long_p"])
    ]
