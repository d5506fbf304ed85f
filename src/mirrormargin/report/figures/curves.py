"""Training loss by step: SGD, normalised steps and Adam on one data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.curves import find_first_steps, smooth
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_curves"]

DATA = {
    "mnist": "a ViT trained on MNIST",
    "cifar10": "a ViT trained on CIFAR-10",
    "mnli": "an encoder fine-tuned on MultiNLI",
    "civil": "an encoder fine-tuned on CivilComments",
}
REFERENCE = "SGD"


def build_curves(name: str, evidence: Evidence) -> Figure | None:
    """The figure of one data set, by the name of its experiment."""
    if name not in evidence:
        return None
    _, arrays = evidence[name]
    loss, steps = np.array([smooth(one) for one in arrays["loss"]]), arrays["step"]
    looks = choose_looks(arrays["optimizer"])
    lines = tuple(
        Series(look.name, steps, *find_mean(loss[k]), style=look.style, group=look.group)
        for k, look in enumerate(looks)
    )
    rows = tuple(
        (
            look.name,
            f"{arrays['lr'][k]:g}",
            describe_mean(loss[k, :, -1], ".4f"),
            _describe_steps(arrays, k),
            describe_mean(arrays["accuracy"][k]),
        )
        for k, look in enumerate(looks)
    )
    return Figure(
        name,
        f"Training loss of {DATA[name]}",
        "Training loss by step, averaged over the tenth of the course before it,"
        f" {describe_seeds(loss.shape[1])}, each optimizer at the learning rate that validation"
        f" data chose. Steps until {REFERENCE}'s last loss: the first recorded step at which that"
        f" average is at most the last one of {REFERENCE} with the same seed. Test accuracy in %,"
        " of the epoch selected on validation data.",
        (Panel("training loss", Axis("step"), Axis("loss", "log"), lines),),
        columns=1,
        table=Table(
            (
                "optimizer",
                "lr",
                "last loss",
                f"steps until {REFERENCE}'s last loss",
                "test accuracy",
            ),
            rows,
        ),
    )


def _describe_steps(arrays: dict[str, NDArray[Any]], k: int) -> str:
    reference = arrays["loss"][arrays["optimizer"].tolist().index(REFERENCE)]
    first = find_first_steps(arrays["step"], arrays["loss"][k], reference)
    known = np.isfinite(first)
    if known.all():
        return describe_mean(first, ",.0f")
    return f"reached in {known.sum()} of {known.size}"
