"""Optimizers on IMDB, each at the learning rate that validation data chose."""

from __future__ import annotations

import numpy as np

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_imdb_optimizers"]


def build_imdb_optimizers(evidence: Evidence) -> Figure | None:
    if "imdb-optimizers" not in evidence:
        return None
    _, arrays = evidence["imdb-optimizers"]
    names = tuple(map(str, arrays["optimizer"]))
    selected = arrays["selected_test"]
    points = Series(
        "epoch selected on validation data",
        np.arange(float(len(names))),
        *find_mean(selected.T),
        style="points",
        group="spread",
    )
    rows = tuple(
        (
            name,
            str(arrays["setting"][k]),
            *(
                describe_mean(arrays[key][k])
                for key in ("validation", "selected_test", "last_test")
            ),
        )
        for k, name in enumerate(names)
    )
    return Figure(
        "imdb-optimizers",
        "Ways to train a text transformer on IMDB",
        "Test accuracy of the epoch that validation data selected,"
        f" {describe_seeds(selected.shape[1])}. The setting too was chosen on validation data, with"
        " one seed: for accuracy, or, where pruning, a penalty or a power is meant, for accuracy"
        " with most weights removed.",
        (
            Panel(
                "test accuracy",
                Axis("", ticks=names),
                Axis("accuracy, %"),
                (points,),
            ),
        ),
        columns=1,
        table=Table(
            ("optimizer", "setting", "validation", "test, selected epoch", "test, last epoch"), rows
        ),
    )
