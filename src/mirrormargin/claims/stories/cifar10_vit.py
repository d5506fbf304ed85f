r"""A ViT on CIFAR-10, by mirror descent at p = 1.1 and by Adam: accuracy and weights.

Which optimizer ends better is decided only where both have converged.

Axes: K methods; S seeds; R epochs; 3 = key, query, value; B bins. Accuracies are in %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mirrormargin.claims.campaign import compared_methods
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    describe_methods,
    gather,
)
from mirrormargin.claims.checks import (
    all_at_least,
    check_seeds,
    check_size,
    mean_at_most,
    mean_near,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.fitted import pad_curve
from mirrormargin.claims.stories.imdb_weights import collect_weights
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
from mirrormargin.figures.weights import draw_histograms, join_kinds

__all__ = ["STORY"]

ADAM, MIRROR = "Adam", "MD p=1.1"
VIT = (81.5, 81.0)  # test accuracy in the end, Adam and l1.1

ARRAYS = {
    "optimizer, lr, setting": "K",
    "epoch": "R",
    "accuracy": "K S R: on validation data; a training that ended stays where it was",
    "train": "K S: training accuracy in the end",
    "test": "K S: in the end",
    "near_zero": "K 3: entries in the first bin of the histogram, of all seeds",
    "largest": "K 3: the largest magnitude",
    "histogram": "K 3 B: entries by magnitude",
    "bin_width": ": of the histogram",
}


def collect_vit(methods: Sequence[Method], finals: Finals) -> Arrays:
    weights = collect_weights(methods, finals)
    longest = max(len(record["epochs"]) for group in finals for record in group)
    longest_epochs = next(
        record["epochs"] for group in finals for record in group if len(record["epochs"]) == longest
    )

    def curve(record: dict[str, Any]) -> list[float]:
        return pad_curve([row["validation_accuracy"] for row in record["epochs"]], longest)

    return describe_methods(methods, finals) | {
        "epoch": np.array([row["epoch"] for row in longest_epochs]),
        "accuracy": gather(finals, curve),
        "train": gather(finals, lambda r: r["epochs"][-1]["train_accuracy"]),
        "test": gather(finals, lambda r: r["test"]["last"]),
        "near_zero": weights["histogram"][:, :, 0],
        **{key: weights[key] for key in ("largest", "histogram", "bin_width")},
    }


def examine_vit(evidence: Evidence) -> Finding:
    names, train, accuracy = (evidence[key] for key in ("optimizer", "train", "test"))
    adam, mirror = (names.tolist().index(name) for name in (ADAM, MIRROR))
    converged = all_at_least("training accuracy of both in the end", train[[adam, mirror]], 95.0)
    others = [
        f"{name} {accuracy[k].mean():.1f}"
        for k, name in enumerate(names)
        if k not in (adam, mirror)
    ]
    return Finding(
        [
            replace(converged, is_open=not converged.holds),  # more epochs could help
            mean_at_most(
                "accuracy of Adam less that of l1.1", accuracy[adam] - accuracy[mirror], 1.0
            ),
            mean_near("accuracy of Adam", accuracy[adam], VIT[0], 0.5),
            mean_near("accuracy of l1.1", accuracy[mirror], VIT[1], 0.5),
            check_seeds(accuracy),
            check_size(evidence),
        ],
        f"Adam {accuracy[adam].mean():.1f}, l1.1 {accuracy[mirror].mean():.1f}; of the training"
        f" images {train[adam].mean():.1f} and {train[mirror].mean():.1f}",
        f"{accuracy.shape[1]} seeds, rates tuned alike. Also: {', '.join(others)}."
        if others
        else "",
    )


def examine_vit_weights(evidence: Evidence) -> Finding:
    names, near_zero = evidence["optimizer"].tolist(), evidence["near_zero"]
    adam, mirror = (near_zero[names.index(name)] for name in (ADAM, MIRROR))
    ratio = mirror / adam
    return Finding(
        [
            all_at_least("small entries of l1.1 over those of Adam", ratio, 2.0),
            mean_near("the same, mean of K, Q and V", ratio.mean(), 2.3, 0.5),
            check_size(evidence),
        ],
        f"{ratio.min():.1f} to {ratio.max():.1f} times as many",
    )


CLAIMS = (
    Claim(
        id="A.fig.vit",
        title="On CIFAR-10 l1.1 mirror descent ends as well as Adam",
        statement="A ViT trained for 1000 epochs ends at about the same test accuracy with l1.1"
        " mirror descent as with Adam.",
        source="paper A, figure of ViT accuracies, read to half a point",
        provenance=Provenance.SEEN,
        published="Adam 81.5, l1.1 81",
        examine=examine_vit,
        should_hold=False,
    ),
    Claim(
        id="A.fig.vit-weights",
        title="On CIFAR-10 l1.1 mirror descent leaves more weights near zero than Adam",
        statement="More than twice as many entries of K, Q and V fall into the first histogram bin"
        " with l1.1 mirror descent as with Adam.",
        source="paper A, weight histograms of the ViT, read off",
        provenance=Provenance.SEEN,
        published="2.3 times as many",
        examine=examine_vit_weights,
        should_hold=False,
    ),
)


def draw_cifar10_vit(evidence: Evidence) -> Figure:
    looks = choose_looks(evidence["optimizer"])
    lines = tuple(
        Series(
            look.name,
            evidence["epoch"],
            *find_mean(evidence["accuracy"][k]),
            style=look.style,
            group=look.group,
        )
        for k, look in enumerate(looks)
    )
    panels = (Panel("validation accuracy", Axis("epoch"), Axis("accuracy, %"), lines),)
    panels += draw_histograms(looks, evidence["histogram"], evidence["bin_width"])
    rows = tuple(
        (
            look.name,
            str(evidence["setting"][k]),
            describe_mean(evidence["train"][k]),
            describe_mean(evidence["accuracy"][k, :, -1]),
            describe_mean(evidence["test"][k]),
            join_kinds(evidence["near_zero"][k]),
            join_kinds(evidence["largest"][k], ".2f"),
        )
        for k, look in enumerate(looks)
    )
    return Figure(
        "cifar10-vit",
        "A ViT on CIFAR-10, by mirror descent and by Adam",
        f"Validation accuracy by epoch, {describe_seeds(evidence['accuracy'].shape[1])}, each"
        " optimizer at the rate that validation data chose, and the entries of all key, query and"
        " value matrices by magnitude, of all seeds. In the table: accuracies after the last"
        " epoch, entries in the first bin of the histogram, and the largest magnitude, for key /"
        " query / value.",
        panels,
        columns=2,
        table=Table(
            (
                "optimizer",
                "setting",
                "training, %",
                "validation, %",
                "test, %",
                "entries near zero",
                "largest entry",
            ),
            rows,
        ),
    )


STORY = Story(
    name="cifar10-vit",
    title="a ViT on CIFAR-10, mirror descent and Adam",
    arrays=ARRAYS,
    table=TrainingTable(
        tuple(
            one for one in compared_methods.VISION["cifar10/small"] if one.name in (ADAM, MIRROR)
        ),
        collect_vit,
        required=(ADAM, MIRROR),
        published=compared_methods.PAPER_VIT,
    ),
    needs="trainings (mirrormargin campaign)",
    draw=(draw_cifar10_vit,),
    claims=CLAIMS,
)
