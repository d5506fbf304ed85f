r"""Weights removed by size, without any training afterwards: how few are needed?

Four data sets with MirrorAdam, AdamW and other ways to sparsity, and mirror descent at three
p as paper A uses it.

Axes: K methods, S seeds, R shares. Accuracies are in %.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

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
from mirrormargin.claims.checks import check_seeds, mean_at_least, mean_at_most, ratio_at_most
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Figure, Panel, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds
from mirrormargin.figures.weights import MAX_BANDS, draw_shares
from mirrormargin.training.pruning import find_needed
from mirrormargin.training.summary import SHARES

__all__ = ["STORIES", "draw_pruning", "tabulate_pruning"]

ADAMW = "AdamW"
TUNED, TUNED_ADAMW = "MirrorAdam for pruning", "AdamW for pruning"
PENALIZED = "MirrorAdam + L1"
BASELINES = (
    ADAMW,
    TUNED_ADAMW,
    "AdamW + L1",
    "AdamW + L1 for pruning",
    "Powerpropagation",
    "gradual pruning to 95%",
    "gradual pruning to 98%",
)
GROUPS = {"accuracy": "all block matrices", "attention_accuracy": "attention matrices"}
SHOWN = (0.9, 0.95, 0.98, 0.99, 0.998)  # shares removed that are in the table

ARRAYS = {
    "optimizer, lr, setting": "K",
    "share": "R: of the weights, removed",
    "accuracy, attention_accuracy": "K S R: test accuracy with that share of the entries of all"
    " block matrices, or of Q, K and V, removed",
    "unpruned": "K S",
    "needed, attention_needed": "K S: the share of weights that must be left for an accuracy"
    " within a point of the unpruned one",
}


def collect_pruning(methods: Sequence[Method], finals: Finals) -> Arrays:
    def find(matrices: str) -> NDArray[Any]:
        return gather(
            finals,
            lambda r: find_needed(SHARES, r["test"]["frontier"][matrices], r["test"]["unpruned"]),
        )

    return describe_methods(methods, finals) | {
        "share": np.array(SHARES),
        "accuracy": gather(finals, lambda r: r["test"]["frontier"]["blocks"]),
        "attention_accuracy": gather(finals, lambda r: r["test"]["frontier"]["attention"]),
        "unpruned": gather(finals, lambda r: r["test"]["unpruned"]),
        "needed": find("blocks"),
        "attention_needed": find("attention"),
    }


def examine_pruning(evidence: Evidence) -> Finding:
    names, shares = evidence["optimizer"].tolist(), evidence["share"]
    needed = dict(zip(names, evidence["needed"], strict=True))
    at = int(np.argmin(abs(shares - 0.95)))
    kept = dict(zip(names, evidence["accuracy"][:, :, at], strict=True))
    checks = [
        ratio_at_most(
            f"weights that {TUNED} needs, over those of {name}", needed[TUNED], needed[name], 1 / 3
        )
        for name in (ADAMW, TUNED_ADAMW)
    ]
    checks += [
        mean_at_least(
            f"accuracy with 95% removed, {TUNED} less {name}", kept[TUNED] - kept[name], 0.0
        )
        for name in BASELINES
    ]
    return Finding(
        [*checks, check_seeds(needed[TUNED])],
        "; ".join(
            f"{name}: {100 * np.exp(np.log(needed[name]).mean()):.2g}% needed,"
            f" {kept[name].mean():.1f} at 95%"
            for name in names
        ),
        "Weights are removed by size in one go, from all block matrices together, without any"
        " training afterwards; what is needed is counted from a method's own accuracy, and averaged"
        " over seeds as logarithms. Powerpropagation with Adam is close to MirrorAdam at"
        " p = 1 + 1/alpha.",
    )


def examine_sparsest(evidence: Evidence) -> Finding:
    names, shares = evidence["optimizer"].tolist(), evidence["share"]
    at = int(np.argmin(abs(shares - 0.998)))
    kept = dict(zip(names, evidence["accuracy"][:, :, at], strict=True))
    lost = evidence["unpruned"][names.index(PENALIZED)] - kept[PENALIZED]
    return Finding(
        [
            mean_at_most(f"points that {PENALIZED} loses with 99.8% removed", lost, 1.0),
            *(
                mean_at_least(
                    f"accuracy with 99.8% removed, {PENALIZED} less {name}",
                    kept[PENALIZED] - kept[name],
                    0.0,
                )
                for name in (TUNED, *BASELINES)
            ),
            check_seeds(lost),
        ],
        "; ".join(f"{name}: {kept[name].mean():.1f} at 99.8%" for name in names),
        "One block weight in 500 is left. MirrorAdam's and AdamW's penalties are chosen on"
        " validation data with 90 to 99.8% removed, settings of the others, and of AdamW + L1 for"
        " pruning, with 90 to 98%.",
    )


def examine_plain(evidence: Evidence) -> Finding:
    names = evidence["optimizer"].tolist()
    needed = [evidence["needed"][names.index(f"MirrorDescent p={p}")] for p in (1.1, 2, 3)]
    low, middle, high = needed
    return Finding(
        [
            ratio_at_most("weights that p = 1.1 needs, over those of p = 2", low, middle, 1.0),
            ratio_at_most("weights that p = 2 needs, over those of p = 3", middle, high, 1.0),
            check_seeds(low),
        ],
        "; ".join(
            f"p = {p}: {100 * np.exp(np.log(one).mean()):.2g}% needed"
            for p, one in zip((1.1, 2, 3), needed, strict=True)
        ),
        "What is needed is counted from a training's own accuracy, which is higher at smaller p.",
    )


def _list_claims(name: str, data: str) -> tuple[Claim, ...]:
    return (
        Claim(
            id=f"M.pruning.{name}",
            title=f"On {data} MirrorAdam near p = 1 needs a third of the weights that AdamW needs",
            statement="With weights removed by size and no further training, MirrorAdam near p = 1"
            " keeps its accuracy to one point with at most a third of the weights that AdamW needs,"
            " and with 95% removed is at or above AdamW, AdamW with an l1 penalty, Powerpropagation"
            " and gradual pruning, on average over seeds.",
            source="this library",
            provenance=Provenance.OWN,
            published="",
            examine=examine_pruning,
            should_hold=False,
        ),
        Claim(
            id=f"M.sparsest.{name}",
            title=f"On {data} MirrorAdam with an l1 penalty needs one weight in 500",
            statement="With 99.8% of the block weights removed by size and no further training,"
            " MirrorAdam near p = 1 with an l1 penalty loses at most one point, and is at or above"
            " MirrorAdam and AdamW alone, AdamW with a penalty, Powerpropagation and gradual"
            " pruning, on average over seeds.",
            source="this library",
            provenance=Provenance.OWN,
            published="",
            examine=examine_sparsest,
            should_hold=False,
        ),
    )


PLAIN = Claim(
    id="M.pruning.plain",
    title="The plain rule needs fewer weights the smaller p",
    statement="Of text transformers trained on IMDB by mirror descent as paper A uses it, those at"
    " p = 1.1 keep their accuracy to one point with fewer weights than those at p = 2, and these"
    " with fewer than those at p = 3, on average over seeds.",
    source="this library",
    provenance=Provenance.OWN,
    published="",
    examine=examine_plain,
    should_hold=False,
)


def draw_frontier(data: str, evidence: Evidence) -> Figure:
    """The figure of one data set."""
    num_methods, num_seeds = evidence["unpruned"].shape
    seeds, average = describe_seeds(num_seeds), ""
    if num_seeds > 1:
        seeds += " (in the table only)" if num_methods > MAX_BANDS else ""
        average = ", geometric mean over seeds"
    return Figure(
        evidence.experiment,
        f"Accuracy on {data} when the smallest weights are removed",
        "Test accuracy of the final weights when only the largest are left, with no training"
        f" afterwards, {seeds}. Weights needed: the least share left at which a model is within one"
        " point of the unpruned one, interpolated between the shares that were measured"
        f"{average}. Settings were chosen on validation data."
        + (" Accuracies are of the first 5,000 test reviews." if "IMDB" in data else ""),
        draw_pruning(evidence),
        table=tabulate_pruning(evidence),
    )


def draw_pruning(evidence: Evidence) -> tuple[Panel, ...]:
    """One panel for all block matrices, one for attention."""
    accuracy = {title: evidence[key] for key, title in GROUPS.items()}
    return draw_shares(choose_looks(evidence["optimizer"]), evidence["share"], accuracy)


def tabulate_pruning(evidence: Evidence) -> Table:
    """Accuracies at some shares, and the weights needed."""
    share = evidence["share"]
    shown = [wanted for wanted in SHOWN if np.isclose(share, wanted).any()]
    indices = [int(np.argmin(abs(share - wanted))) for wanted in shown]
    setting = evidence.arrays.get("setting")
    rows = []
    for k, name in enumerate(evidence["optimizer"]):
        row = [str(name)] if setting is None else [str(name), str(setting[k])]
        row.append(describe_mean(evidence["unpruned"][k]))
        row += [describe_mean(evidence["accuracy"][k][:, i]) for i in indices]
        row += [_describe_needed(share, evidence[key][k]) for key in ("needed", "attention_needed")]
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


def _describe_needed(share: NDArray[np.float64], needed: NDArray[np.float64]) -> str:
    # Fewer may do, but that was not measured.
    bound = "at most " if (needed <= 1.001 * (1 - share.max())).any() else ""
    return f"{bound}{100 * np.exp(np.log(needed).mean()):.2g}%"


def _make_story(
    name: str,
    data: str,
    title: str,
    compared: tuple[Method, ...],
    claims: tuple[Claim, ...],
    more: tuple[Method, ...] = (),
) -> Story:
    return Story(
        name=name,
        title=f"weights removed from {title}",
        arrays=ARRAYS,
        table=TrainingTable(
            (*compared, *more), collect_pruning, tuple(method.name for method in compared)
        ),
        needs="trainings (mirrormargin campaign)",
        draw=(partial(draw_frontier, data),),
        claims=claims,
    )


STORIES = (
    _make_story(
        "pruning-imdb",
        "IMDB",
        "text transformers, IMDB",
        compared_methods.FRONTIERS["imdb/small"],
        _list_claims("imdb", "IMDB"),
        more=compared_methods.SMALL,
    ),
    _make_story(
        "pruning-plain",
        "IMDB, trained by the plain rule,",
        "text transformers trained by the plain rule, IMDB",
        compared_methods.PLAIN,
        (PLAIN,),
    ),
    *(
        _make_story(
            f"pruning-{name}",
            data,
            f"{kind} transformers, {data}",
            compared_methods.FRONTIERS[f"{name}/small"],
            _list_claims(name, data),
        )
        for name, data, kind in (
            ("sst2", "SST-2", "text"),
            ("mnist", "MNIST", "vision"),
            ("cifar10", "CIFAR-10", "vision"),
        )
    ),
)
