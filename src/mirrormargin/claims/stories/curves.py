r"""Training loss by step: SGD, normalised steps and Adam, on four data sets.

Axes: K methods, S seeds, R recorded steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import compared_methods
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    describe_methods,
    gather,
)
from mirrormargin.claims.checks import (
    check_seeds,
    check_size,
    mean_at_most,
    share_at_least,
    surely_smaller,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories import fitted
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean

__all__ = ["STORIES"]

Array = NDArray[np.float64]
NEVER = 2.0  # shares of the steps: one that never gets there took more steps than there were
SGD, SNGD, PER_TENSOR = "SGD", "SNGD", "SNGD per tensor"

ARRAYS = {
    "optimizer, lr, setting": "K",
    "step": "R",
    "loss": "K S R: training loss",
    "accuracy": "K S: test accuracy in %, of the epoch selected on validation data",
}


def collect_curves(methods: Sequence[Method], finals: Finals) -> Arrays:
    return describe_methods(methods, finals) | {
        "step": np.array(finals[0][0]["steps"]["step"]),
        "loss": gather(finals, lambda r: r["steps"]["train_loss"]),
        "accuracy": gather(finals, lambda r: r["test"]["selected"]),
    }


def smooth(loss: Array) -> Array:
    """Each value of (S, R) with those before it, a tenth of the steps: single ones are noisy."""
    width = max(1, loss.shape[-1] // 10)
    total = np.cumsum(np.pad(loss, ((0, 0), (1, 0))), axis=-1)
    start = np.maximum(np.arange(loss.shape[-1]) + 1 - width, 0)
    end = np.arange(loss.shape[-1]) + 1
    return (total[:, end] - total[:, start]) / (end - start)


def find_first_steps(steps: NDArray[np.int64], loss: Array, reference: Array) -> Array:
    """The first step at which each smoothed loss is at most the reference's last one.

    Args:
        steps: (R,).
        loss: (S, R).
        reference: (S, R), seed by seed.

    Returns:
        (S,), nan where it never is.
    """
    reached = smooth(loss) <= smooth(reference)[:, -1:]
    first = steps[reached.argmax(axis=1)].astype(np.float64)
    return np.where(reached.any(axis=1), first, np.nan)


def compare_steps(steps: NDArray[np.int64], loss: Array, reference: Array) -> Array:
    """Steps to the reference's last loss as a share of the reference's own, (S,); or NEVER."""
    first = find_first_steps(steps, loss, reference)
    return np.nan_to_num(first / find_first_steps(steps, reference, reference), nan=NEVER)


def examine_curves(evidence: Evidence) -> Finding:
    names, steps = evidence["optimizer"].tolist(), evidence["step"]
    plain, normalized = (evidence["loss"][names.index(name)] for name in ("SGD", "SNGD"))
    share = compare_steps(steps, normalized, plain)
    is_reached = share < NEVER
    configurations = evidence.settings.get("configurations", [])
    return Finding(
        [
            surely_smaller(
                "last training loss of SGD less that of SNGD",
                smooth(normalized)[:, -1],
                smooth(plain)[:, -1],
            ),
            share_at_least("trainings in which SNGD reaches SGD's last loss", is_reached),
            surely_smaller(
                "share of the steps that SNGD saves until SGD's last loss",
                share,
                np.ones_like(share),
            ),
            check_size(evidence),
        ],
        f"SNGD reaches SGD's last loss after {np.mean(share):.0%} of the steps"
        if is_reached.all()
        else f"SNGD reaches SGD's last loss in {is_reached.sum()} of {share.size} trainings",
        f"{', '.join(configurations)}; {share.size} seed{'s' * (share.size > 1)}. Losses are"
        " averaged over a tenth of the training before they are compared; learning rates are those"
        " with the best validation accuracy.",
    )


def examine_speed(evidence: Evidence) -> Finding:
    loss = dict(zip(evidence["optimizer"].tolist(), evidence["loss"], strict=True))
    plain = loss.pop("SGD")
    shares = {name: compare_steps(evidence["step"], one, plain) for name, one in loss.items()}
    return Finding(
        [
            mean_at_most(f"share of the steps that {PER_TENSOR} needs", shares[PER_TENSOR], 0.5),
            check_seeds(plain[:, 0]),
        ],
        "; ".join(
            f"{name} {share.mean():.0%}"
            if share.max() < NEVER
            else f"{name} gets there in {(share < NEVER).sum()} of {share.size}"
            for name, share in shares.items()
        ),
        "Steps until SGD's last training loss, averaged over a tenth of the training, as a share of"
        " SGD's own; learning rates are those with the best validation accuracy.",
    )


def draw_losses(what: str, evidence: Evidence) -> Figure:
    """The figure of one data set."""
    loss, steps = np.array([smooth(one) for one in evidence["loss"]]), evidence["step"]
    looks = choose_looks(evidence["optimizer"])
    lines = tuple(
        Series(look.name, steps, *find_mean(loss[k]), style=look.style, group=look.group)
        for k, look in enumerate(looks)
    )
    rows = tuple(
        (
            look.name,
            f"{evidence['lr'][k]:g}",
            describe_mean(loss[k, :, -1], ".4f"),
            _describe_steps(evidence, k),
            describe_mean(evidence["accuracy"][k]),
        )
        for k, look in enumerate(looks)
    )
    return Figure(
        evidence.experiment,
        f"Training loss of {what}",
        "Training loss by step, averaged over the tenth of the steps before it,"
        f" {describe_seeds(loss.shape[1])}, each optimizer at the learning rate that validation"
        f" data chose. Steps until {SGD}'s last loss: the first recorded step at which that"
        f" average is at most the last one of {SGD} with the same seed. Test accuracy in %,"
        " of the epoch selected on validation data.",
        (Panel("training loss", Axis("step"), Axis("loss", "log"), lines),),
        columns=1,
        table=Table(
            (
                "optimizer",
                "lr",
                "last loss",
                f"steps until {SGD}'s last loss",
                "test accuracy",
            ),
            rows,
        ),
    )


def _describe_steps(evidence: Evidence, k: int) -> str:
    reference = evidence["loss"][evidence["optimizer"].tolist().index(SGD)]
    first = find_first_steps(evidence["step"], evidence["loss"][k], reference)
    known = np.isfinite(first)
    if known.all():
        return describe_mean(first, ",.0f")
    return f"reached in {known.sum()} of {known.size}"


def _make_story(
    name: str, data: str, training: str, model: str, what: str, trained: tuple[Method, ...]
) -> Story:
    claims = []
    if f"fitted-{name}" not in {story.name for story in fitted.STORIES}:
        claims.append(
            Claim(
                id=f"B.fig.{name}",
                title=f"On {data} normalised stochastic steps train faster than SGD",
                statement=f"{training} on {data}, normalised mini-batch steps lower the training"
                " loss faster than plain ones.",
                source=f"paper B, figure of {data}",
                provenance=Provenance.SEEN,
                published="SNGD faster than SGD",
                examine=examine_curves,
                should_hold=False,
            )
        )
    names = {method.name for method in trained}
    if PER_TENSOR in names:
        claims.append(
            Claim(
                id=f"M.speed.{name}",
                title=f"On {data} steps normalised tensor by tensor need half of SGD's",
                statement="Mini-batch steps of one length for each tensor bring the training loss"
                " to where SGD ends with at most half of its steps, on average over seeds.",
                source="this library",
                provenance=Provenance.OWN,
                published="",
                examine=examine_speed,
                should_hold=False,
            )
        )
    return Story(
        name=name,
        title=f"{model} on {data}",
        arrays=ARRAYS,
        table=TrainingTable(
            trained,
            collect_curves,
            required=tuple(name for name in (SGD, SNGD, PER_TENSOR) if name in names),
        ),
        needs="trainings (mirrormargin campaign)",
        draw=(partial(draw_losses, what),),
        claims=tuple(claims),
    )


STORIES = (
    _make_story(
        "mnist",
        "MNIST",
        "Training",
        "a ViT",
        "a ViT trained on MNIST",
        compared_methods.VISION["mnist/small"],
    ),
    _make_story(
        "cifar10",
        "CIFAR-10",
        "Training a small ViT",
        "a ViT",
        "a ViT trained on CIFAR-10",
        compared_methods.VISION["cifar10/small"],
    ),
    _make_story(
        "mnli",
        "MultiNLI",
        "Fine-tuning BERT",
        "a BERT-type encoder",
        "an encoder fine-tuned on MultiNLI",
        compared_methods.ENCODERS["mnli-subset/minilm"],
    ),
    _make_story(
        "civil",
        "CivilComments",
        "Fine-tuning BERT",
        "a BERT-type encoder",
        "an encoder fine-tuned on CivilComments",
        compared_methods.ENCODERS["civil-subset/minilm"],
    ),
)
