r"""Optimizers on IMDB, each at the setting that validation data chose.

Axes: K methods, S seeds. Accuracies are in %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirrormargin.claims.campaign import compared_methods
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    describe_methods,
    gather,
)
from mirrormargin.claims.checks import check_seeds, mean_at_least, mean_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean

__all__ = ["STORY"]

MIRROR, ADAMW = "MirrorAdam p=1.1", "AdamW"
PUBLISHED = 83.5  # paper A's best text transformers, best epoch on test data

ARRAYS = {
    "optimizer, lr, setting": "K",
    "selected_test, last_test": "K S: test accuracy of the epoch selected on validation data, and"
    " of the last one",
    "validation": "K S: validation accuracy of the selected epoch",
}


def collect_accuracies(methods: Sequence[Method], finals: Finals) -> Arrays:
    return describe_methods(methods, finals) | {
        "selected_test": gather(finals, lambda r: r["test"]["selected"]),
        "last_test": gather(finals, lambda r: r["test"]["last"]),
        "validation": gather(finals, lambda r: r["validation"]["selected"]),
    }


def examine_accuracy(evidence: Evidence) -> Finding:
    names = evidence["optimizer"].tolist()
    test = evidence["selected_test"]
    mirror, adamw = test[names.index(MIRROR)], test[names.index(ADAMW)]
    return Finding(
        [
            mean_at_most(f"test accuracy of AdamW less that of {MIRROR}", adamw - mirror, 1.0),
            mean_at_least(f"test accuracy of {MIRROR}", mirror, PUBLISHED),
            check_seeds(mirror),
        ],
        ", ".join(f"{name} {test[k].mean():.2f}" for k, name in enumerate(names)),
        f"Paper A's {PUBLISHED} is of larger models and of the best epoch on test data.",
    )


CLAIMS = (
    Claim(
        id="M.accuracy.imdb",
        title="MirrorAdam trains a text transformer as well as AdamW",
        statement="On IMDB, with the same epochs and learning rates chosen on validation data,"
        " MirrorAdam at p = 1.1 is within one point of AdamW, and above what paper A reports.",
        source="this library",
        provenance=Provenance.OWN,
        published="",
        examine=examine_accuracy,
        should_hold=False,
    ),
)


def draw_imdb_optimizers(evidence: Evidence) -> Figure:
    names = tuple(map(str, evidence["optimizer"]))
    selected = evidence["selected_test"]
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
            str(evidence["setting"][k]),
            *(
                describe_mean(evidence[key][k])
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


STORY = Story(
    name="imdb-optimizers",
    title="a text transformer on IMDB, adaptive and plain optimizers",
    arrays=ARRAYS,
    table=TrainingTable(
        (*compared_methods.FRONTIERS["imdb/small"], *compared_methods.SMALL),
        collect_accuracies,
        required=(MIRROR, ADAMW),
    ),
    needs="trainings (mirrormargin campaign)",
    draw=(draw_imdb_optimizers,),
    claims=CLAIMS,
)
