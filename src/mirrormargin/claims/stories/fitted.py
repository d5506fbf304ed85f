r"""How fast a training set is fitted: steps until the training loss is 0.5, 0.1, 0.01, 0.001.

Plain steps shrink with the gradient once the data are fitted, and normalised ones do not: paper B's
theory is about losses that vanish. So a subset that can be fitted is trained on until it is, and
the attention maps are measured on the way.

    entropy = -sum_t a_t log a_t / log T,     1 for even attention, 0 for one token

Axes: K methods, S seeds, L levels of the loss, R epochs, Q epochs and the start, B blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import fitted
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    describe_methods,
    gather,
)
from mirrormargin.claims.checks import (
    NUMBER,
    STATEMENT,
    check_seeds,
    check_size,
    surely_smaller,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
from mirrormargin.training.loop import LEVELS

__all__ = ["STORIES", "collect_fitted", "pad_curve"]

NEVER = 2.0  # shares of SGD's steps: one that never gets there counts as this, or what it took
SGD, SNGD = "SGD", "SNGD"

ARRAYS = {
    "optimizer, lr, setting": "K",
    "is_at_edge": "K: whether the chosen setting is the first or last of its grid",
    "level": "L",
    "steps": "K S L: until the training loss, averaged over an epoch's steps, is at the level; -1"
    " if it never is",
    "num_epochs": "K S: how many were trained",
    "test": "K S: test accuracy in the end, in %",
    "steps_per_epoch": ":",
    "loss, accuracy": "K S R: training loss and validation accuracy in %; a training that ended"
    " stays where it was",
    "entropy, largest": "K S Q B: of the attention maps, mean over queries, heads and examples",
    "paired_steps": "2 P L: steps of SGD and SNGD with more seeds, if there are some",
    "paired_taken": "2 P: all steps of these trainings, if there are some",
    "paired_entropy, paired_largest": "P D B: of SNGD's, if there are some; D = 2: before training"
    " and in the end",
}


def pad_curve(curve: list[Any], length: int) -> list[Any]:
    """A training that ended earlier stays where it ended."""
    return curve + curve[-1:] * (length - len(curve))


def collect_fitted(methods: Sequence[Method], finals: Finals) -> Arrays:
    longest = max(len(record["epochs"]) for group in finals for record in group)
    arrays = describe_methods(methods, finals)

    def follow(key: str) -> NDArray[Any]:
        return gather(finals, lambda r: pad_curve([row[key] for row in r["epochs"]], longest))

    return arrays | {
        "is_at_edge": np.array(
            [
                list(method.grid).index(setting) in (0, len(method.grid) - 1)
                for method, setting in zip(methods, arrays["setting"], strict=True)
            ]
        ),
        "level": np.array(LEVELS),
        "steps": gather(finals, lambda r: [r["levels"].get(f"{x:g}", -1) for x in LEVELS]),
        "num_epochs": gather(finals, lambda r: len(r["epochs"])),
        "test": gather(finals, lambda r: r["test"]["last"]),
        "steps_per_epoch": np.array(finals[0][0]["attention"]["step"][1]),
        "loss": follow("train_loss"),
        "accuracy": follow("validation_accuracy"),
        **{
            key: gather(finals, lambda r, key=key: pad_curve(r["attention"][key], longest + 1))
            for key in ("entropy", "largest")
        },
    }


def collect_pairs(methods: Sequence[Method], finals: Finals) -> Arrays:
    """SGD's and SNGD's trainings with more seeds."""
    order = [[method.name.split(",")[0] for method in methods].index(name) for name in (SGD, SNGD)]
    chosen = [finals[k] for k in order]
    return {
        "paired_steps": gather(chosen, lambda r: [r["levels"].get(f"{x:g}", -1) for x in LEVELS]),
        "paired_taken": gather(chosen, lambda r: r["attention"]["step"][-1]),
        **{
            f"paired_{key}": gather(
                chosen[1:], lambda r, key=key: [r["attention"][key][k] for k in (0, -1)]
            )[0]
            for key in ("entropy", "largest")
        },
    }


def find_shares(evidence: Evidence, name: str) -> NDArray[np.float64]:
    """Steps as a share of SGD's, (S, L); nan where SGD does not get there.

    Where SGD gets there alone, it is NEVER, or all steps that were taken if they are more. Seeds
    are paired: those of one number see the same examples in the same order.
    """
    plain, own, taken = _find_pair(evidence, name)
    never = np.maximum(NEVER, taken[:, None] / np.maximum(plain, 1))
    share = np.where(own > 0, own / np.maximum(plain, 1), never)
    return np.where(plain > 0, share, np.nan)


def _find_pair(evidence: Evidence, name: str) -> tuple[NDArray[np.int64], ...]:
    """Steps of SGD and of another optimizer to each level, (S, L), and all steps of the latter."""
    if name == SNGD and "paired_steps" in evidence.arrays:
        return *evidence["paired_steps"], evidence["paired_taken"][1]
    names, steps = evidence["optimizer"].tolist(), evidence["steps"]
    k = names.index(name)
    return (
        steps[names.index(SGD)],
        steps[k],
        evidence["num_epochs"][k] * evidence["steps_per_epoch"],
    )


def examine_speed(evidence: Evidence) -> Finding:
    """The lowest level that SGD reaches decides: there the loss has vanished most."""
    names = evidence["optimizer"].tolist()
    share, is_there = find_shares(evidence, SNGD), _find_pair(evidence, SNGD)[1] > 0
    reached = [k for k in range(len(LEVELS)) if np.isfinite(share[:, k]).all()]
    checks = [
        surely_smaller(
            f"share of the steps that SNGD saves until the training loss is {LEVELS[k]:g}",
            share[:, k],
            np.ones(len(share)),
            kind=STATEMENT if k == reached[-1] else NUMBER,
        )
        for k in reached
    ]
    if not reached:
        plain, own = (evidence["loss"][names.index(name), :, -1] for name in (SGD, SNGD))
        checks = [surely_smaller("last training loss of SGD less that of SNGD", own, plain)]
    checks += [check_seeds(share[:, 0]), check_size(evidence)]
    edges = evidence["optimizer"][evidence["is_at_edge"]].tolist()
    configurations = ", ".join(evidence.settings.get("configurations", []))
    return Finding(
        checks,
        "SNGD needs of SGD's steps "
        + ", ".join(
            f"{_describe_share(share[:, k], is_there[:, k])} to {LEVELS[k]:g}" for k in reached
        )
        if reached
        else "SGD reaches no level",
        f"{configurations}; {len(share)} seed{'s' * (len(share) > 1)}. Each optimizer at the rate"
        " of its grid that fits the training set in the fewest steps"
        + (f"; that of {' and '.join(edges)} is at the edge of the grid." if edges else ".")
        + (
            " A step of fixed length does not shrink with the loss, and the noise of mini-batches"
            " keeps it from settling."
            if reached and not is_there[:, reached[-1]].all()
            else ""
        ),
    )


def _describe_share(share: NDArray[np.float64], there: NDArray[np.bool_]) -> str:
    return f"{share.mean():.0%}" if there.all() else f"(there in {there.sum()} of {there.size})"


def examine_maps(evidence: Evidence) -> Finding:
    by_block, largest = (_find_maps(evidence, key) for key in ("entropy", "largest"))
    entropy, largest = by_block.mean(axis=-1), largest.mean(axis=-1)
    start, end = by_block[:, 0], by_block[:, -1]
    return Finding(
        [
            surely_smaller(
                "entropy of attention before training less that in the end",
                entropy[:, -1],
                entropy[:, 0],
            ),
            surely_smaller(
                "largest attention in the end less that before training",
                largest[:, 0],
                largest[:, -1],
            ),
            check_seeds(entropy[:, 0]),
            check_size(evidence),
        ],
        f"entropy by block {_join(start.mean(axis=0))} before, {_join(end.mean(axis=0))} after",
        "Entropies are shares of the logarithm of the number of tokens; SNGD.",
    )


def _find_maps(evidence: Evidence, key: str) -> NDArray[np.float64]:
    """SNGD's, (S, epochs, B); with more seeds only before training and in the end."""
    if f"paired_{key}" in evidence.arrays:
        return evidence[f"paired_{key}"]
    return evidence[key][evidence["optimizer"].tolist().index(SNGD)]


def _join(values: NDArray[np.float64]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


def draw_fitted(what: str, evidence: Evidence) -> Figure:
    looks = choose_looks(evidence["optimizer"])
    first = float(evidence["steps_per_epoch"])
    num_seeds, num_epochs = evidence["loss"].shape[1:]

    def panel(title: str, axis: Axis, values: NDArray[np.float64]) -> Panel:
        """Values (K, S, R), or with the start."""
        steps = first * np.arange(num_epochs + 1 - values.shape[-1], num_epochs + 1)
        # After the longest of its seeds has ended, a method's line ends.
        ends = evidence["num_epochs"].max(axis=1) + values.shape[-1] - num_epochs
        lines = tuple(
            Series(
                look.name,
                steps[: ends[k]],
                *find_mean(values[k, :, : ends[k]]),
                style=look.style,
                group=look.group,
            )
            for k, look in enumerate(looks)
        )
        return Panel(title, Axis("step"), axis, lines)

    rows = tuple(
        (
            look.name,
            str(evidence["setting"][k]) + " (edge)" * bool(evidence["is_at_edge"][k]),
            *(_describe_level(evidence, look.name, j) for j in range(len(LEVELS))),
            describe_mean(evidence["test"][k]),
            _join(evidence["entropy"][k, :, -1].mean(axis=0)),
            _join(evidence["largest"][k, :, -1].mean(axis=0)),
        )
        for k, look in enumerate(looks)
    )
    return Figure(
        evidence.experiment,
        f"{what}, trained until it is fitted",
        f"Training loss, validation accuracy and attention maps, {describe_seeds(num_seeds)},"
        " each optimizer at the setting of its grid that fits the training set in the fewest"
        " steps; a training ends when its loss is 0.001. Entropy of attention is a share of the"
        " logarithm of the number of tokens; that and the largest weight are means over queries,"
        " heads, 100 training examples and, in the panels, blocks. In the table: steps until the"
        f" training loss is so low, and their share of {SGD}'s with the same seed; test accuracy"
        " in %; entropy and largest weight by block in the end.",
        (
            panel("training loss", Axis("loss", "log"), evidence["loss"]),
            panel("validation", Axis("accuracy, %"), evidence["accuracy"]),
            panel("entropy of attention", Axis("share"), evidence["entropy"].mean(axis=-1)),
            panel("largest attention", Axis("weight"), evidence["largest"].mean(axis=-1)),
        ),
        columns=2,
        table=Table(
            (
                "optimizer",
                "setting",
                *(f"steps to {level:g}" for level in LEVELS),
                "test accuracy",
                "entropy",
                "largest weight",
            ),
            rows,
        ),
    )


def _describe_level(evidence: Evidence, name: str, j: int) -> str:
    """Steps to a level, and as a share of SGD's."""
    steps = evidence["steps"][evidence["optimizer"].tolist().index(name), :, j]
    reached = steps > 0
    if not reached.all():
        return f"in {reached.sum()} of {reached.size}"
    share = find_shares(evidence, name)[:, j]
    tail = f" ({share.mean():.0%})" if np.isfinite(share).all() and name != SGD else ""
    return f"{steps.mean():,.0f}{tail}"


def _make_story(name: str, data: str, training: str, what: str, config: str) -> Story:
    methods, more = fitted.FITTED[config], fitted.MORE_SEEDS.get(config, ())
    size = methods[0].grid[next(iter(methods[0].grid))].data.num_train
    return Story(
        name=f"fitted-{name}",
        title=f"{what}, {size:,} examples, until they are fitted",
        arrays=ARRAYS,
        table=TrainingTable(
            methods, collect_fitted, required=(SGD, SNGD), extra=more, build_extra=collect_pairs
        ),
        needs="trainings (mirrormargin campaign)",
        draw=(partial(draw_fitted, f"{what}, {size:,} examples"),),
        claims=(
            Claim(
                id=f"B.fig.{name}",
                title=f"On {data} normalised stochastic steps train faster than SGD",
                statement=f"{training} on {data}, normalised mini-batch steps lower the training"
                " loss faster than plain ones: fewer steps until it has vanished.",
                source=f"paper B, figure of {data}",
                provenance=Provenance.SEEN,
                published="SNGD faster than SGD",
                examine=examine_speed,
                should_hold=False,
            ),
            Claim(
                id=f"M.maps.{name}",
                title=f"Attention maps sparsify while {data} is fitted",
                statement=f"{training} on {data} with normalised steps until the training loss"
                " vanishes, attention concentrates: its entropy falls and its largest weight"
                " rises.",
                source="paper B, sparsification of the attention map, asked of a real model",
                provenance=Provenance.DERIVED,
                published="",
                examine=examine_maps,
                should_hold=False,
            ),
        ),
    )


# Those whose trainings are recorded; paper B's claims on the others rest on a single pass.
STORIES = (
    _make_story("mnist", "MNIST", "Training", "A ViT on MNIST", "mnist/fitted"),
    _make_story(
        "civil",
        "CivilComments",
        "Fine-tuning BERT",
        "An encoder on CivilComments",
        "civil-subset/fitted",
    ),
)
