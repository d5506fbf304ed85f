r"""Where classifiers trained on IMDB look: the attention of [CLS] on the word that decides.

    scaled = (a_t - min a) / (max a - min a)        of the attention a on the tokens of a review

Two optimizers are compared seed by seed: mirror descent at p = 1.1 and 2, as published, and
MirrorAdam and AdamW.

Axes: K methods, S seeds, N reviews, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import compared_methods, fitted
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import Finals, TrainingTable, gather
from mirrormargin.claims.checks import check_seeds, check_size, mean_near, surely_smaller
from mirrormargin.claims.claim import Check, Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import (
    Axis,
    Figure,
    HighlightedText,
    HighlightedTexts,
    Panel,
    Series,
    Table,
)
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import Spread, describe_mean, describe_seeds, find_mean

__all__ = ["STORIES"]

MIRROR = ("MirrorDescent p=1.1", "MirrorDescent p=2")
ADAM = ("MirrorAdam p=1.05", "AdamW")
SELECTION = (0.4387, 0.3122)  # mean scaled attention on the sentiment word, l1.1 and l2
COUNTS = {
    "top": ("word attended to most", "W"),
    "right": ("review classified rightly", "optimal tokens"),
}

WORTHWHILE = 0.05  # a difference of scores that is worth a claim; the published one is 0.13
KINDS = ("sentiment word", "other words", "punctuation", "[CLS]", "[SEP]")

ARRAYS = {
    "optimizer": "K",
    "score": "K S N: scaled attention on the sentiment word",
    "share": "K S N: attention on it",
    "top": "K S N: whether it has the most attention of all words",
    "right": "K S N: whether the review gets its label",
    "kind": "K S 5: attention on the sentiment word, other words, punctuation, [CLS] and [SEP];"
    " mean over reviews",
    "untrained": "S: mean score before training",
    "text, position": "N: the reviews, and where the sentiment word is",
    "tokens, weights": "K N T: of the first seed; short reviews are filled up with '' and 0",
}


def collect_selection(methods: Sequence[Method], finals: Finals) -> Arrays:
    def take(key: str) -> NDArray[Any]:
        return gather(finals, lambda r: r["selection"][key])

    untrained = gather(finals, lambda r: r["selection"]["untrained"])
    reviews = [group[0]["selection"]["reviews"] for group in finals]
    longest = max(len(review["tokens"]) for review in reviews[0])

    def fill(key: str, empty: Any) -> NDArray[Any]:
        return np.array(
            [[(r[key] + [empty] * longest)[:longest] for r in group] for group in reviews]
        )

    return {
        "optimizer": np.array([method.name.split(", ")[0] for method in methods]),
        "score": take("scaled"),
        "share": take("share"),
        "top": take("is_top_word"),
        "right": take("is_right"),
        "kind": gather(finals, lambda r: _add_up_kinds(r["selection"]["reviews"])),
        "untrained": untrained.mean(axis=(0, 2)),
        "text": np.array([review["text"] for review in reviews[0]]),
        "position": np.array([review["position"] for review in reviews[0]]),
        "tokens": fill("tokens", ""),
        "weights": fill("weights", 0.0),
    }


def _add_up_kinds(reviews: Sequence[dict[str, Any]]) -> list[float]:
    """How much attention falls on each of ``KINDS``, mean over reviews."""
    totals: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for review in reviews:
        for k, (token, weight) in enumerate(zip(review["tokens"], review["weights"], strict=True)):
            totals[_find_kind(token, k == review["position"])] += weight
    return [total / len(reviews) for total in totals.values()]


def _find_kind(token: str, is_sentiment: bool) -> str:
    if is_sentiment:
        return KINDS[0]
    if token in KINDS:
        return token
    return KINDS[1] if any(letter.isalnum() for letter in token) else KINDS[2]


def compare_scores(evidence: Evidence, name: str, other: str) -> tuple[list[Check], str, str]:
    """Whether the first method attends more to the word, what was measured, and a remark."""
    names, score = evidence["optimizer"].tolist(), evidence["score"].mean(axis=-1)
    one, two = (score[names.index(one)] for one in (name, other))
    check = surely_smaller(f"attention on the sentiment word, {name} less {other}", two, one)
    # An interval that ends below this excludes what was claimed, whether 0 is in it or not.
    if not check.holds and check.high is not None:
        check = replace(check, is_open=check.high >= WORTHWHILE)
    remark = (
        f"{one.size} seeds, paired. Attention falls on"
        f" {_describe_kinds(evidence, name)} with {name}; {_describe_kinds(evidence, other)} with"
        f" {other}."
    )
    measured = (
        f"{one.mean():.3f} against {two.mean():.3f}; untrained {evidence['untrained'].mean():.3f}"
    )
    return [check, check_seeds(one), check_size(evidence)], measured, remark


def _describe_kinds(evidence: Evidence, name: str) -> str:
    shares = evidence["kind"][evidence["optimizer"].tolist().index(name)].mean(axis=0)
    order = np.argsort(-shares)[:3]
    return ", ".join(f"{KINDS[k]} {shares[k]:.0%}" for k in order)


def examine_selection(evidence: Evidence) -> Finding:
    checks, measured, remark = compare_scores(evidence, *MIRROR)
    names, score = evidence["optimizer"].tolist(), evidence["score"].mean(axis=-1)
    numbers = [
        mean_near(
            f"attention on the sentiment word, {name}", score[names.index(name)], published, 0.05
        )
        for name, published in zip(MIRROR, SELECTION, strict=True)
    ]
    return Finding(checks + numbers, measured, remark)


def examine_adam(evidence: Evidence) -> Finding:
    checks, measured, remark = compare_scores(evidence, *ADAM)
    return Finding(checks[:2], measured, remark)  # at this size is what the claim says


PUBLISHED_CLAIM = Claim(
    id="A.tab.attention",
    title="l1.1 mirror descent attends more to the word that decides",
    statement="On short reviews the scaled attention of [CLS] on the sentiment word is higher at"
    " p = 1.1 than at p = 2.",
    source="paper A, table of attention maps",
    provenance=Provenance.SEEN,
    published="0.4387 against 0.3122",
    examine=examine_selection,
    should_hold=False,
)
ADAM_CLAIM = Claim(
    id="M.attention.imdb",
    title="MirrorAdam attends more to the word that decides than AdamW",
    statement="On short reviews the scaled attention of [CLS] on the sentiment word is higher"
    " with MirrorAdam at p = 1.05 than with AdamW, both tuned, two layers.",
    source="paper A's table of attention maps, asked of MirrorAdam",
    provenance=Provenance.DERIVED,
    published="",
    examine=examine_adam,
    should_hold=False,
)


def draw_token_selection(what: str, evidence: Evidence) -> Figure:
    looks = choose_looks(evidence["optimizer"])
    names = tuple(look.name for look in looks)
    x = np.arange(float(len(names)))
    score, untrained = evidence["score"], float(evidence["untrained"].mean())
    points = [
        Series(
            look.name,
            x[j : j + 1],
            *(end[j : j + 1] for end in _find_share(score) if end is not None),
            style="points",
            group=look.group,
        )
        for j, look in enumerate(looks)
    ]
    baseline = Series("untrained", x, np.full(len(names), untrained), style="dashed")
    counts = tuple(
        Series(label, x, *_find_share(evidence[key]), style="bars", group=group)
        for key, (label, group) in COUNTS.items()
    )
    places = np.arange(float(len(KINDS)))
    kinds = tuple(
        Series(look.name, places, *find_mean(evidence["kind"][j]), style="points", group=look.group)
        for j, look in enumerate(looks)
    )
    rows = tuple(
        (
            name,
            describe_mean(score[j].mean(axis=-1), ".3f"),
            describe_mean(evidence["share"][j].mean(axis=-1), ".3f"),
            f"{evidence['top'][j].mean():.0%}",
            f"{evidence['right'][j].mean():.0%}",
        )
        for j, name in enumerate(names)
    )
    rows += (("untrained", describe_mean(evidence["untrained"], ".3f"), "–", "–", "–"),)
    axis = Axis("", ticks=names)
    return Figure(
        evidence.experiment,
        f"Attention on the word that decides a review, {what}",
        f"Attention of [CLS] in the last block on the sentiment word of {score.shape[-1]} short"
        " reviews, scaled so that the least of a review is 0 and the largest 1; mean over"
        f" reviews, {describe_seeds(score.shape[1])}. The dashed line is that of models before"
        " training. The last panel has the attention, not scaled, on all tokens of a kind. In the"
        " texts the background is the scaled attention and the sentiment word is underlined; ✓ and"
        " ✗ are reviews that all or no trainings classify rightly, a number is their share.",
        (
            Panel(
                "scaled attention on the word", axis, Axis("scaled attention"), (*points, baseline)
            ),
            Panel("reviews", axis, Axis("share of reviews"), counts),
            Panel("attention by kind of token", Axis("", ticks=KINDS), Axis("attention"), kinds),
        ),
        table=Table(
            (
                "optimizer",
                "scaled attention",
                "share of attention",
                "reviews where the word has most",
                "reviews classified rightly",
            ),
            rows,
        ),
        texts=_write_texts(evidence, names),
    )


def _find_share(values: NDArray[np.float64]) -> Spread:
    """Means of (K, S, N) over reviews and seeds; no share is below 0 or above 1."""
    middle, low, high = find_mean(values.mean(axis=-1).T)
    if low is None or high is None:
        return Spread(middle, None, None)
    return Spread(middle, np.maximum(low, 0.0), np.minimum(high, 1.0))


def _write_texts(evidence: Evidence, names: tuple[str, ...]) -> HighlightedTexts:
    tokens, weights, right = evidence["tokens"], evidence["weights"], evidence["right"]
    rows = tuple(
        tuple(
            _write_text(
                tokens[j, i],
                weights[j, i],
                int(evidence["position"][i]),
                float(right[j, :, i].mean()),
            )
            for j in range(len(names))
        )
        for i in range(tokens.shape[1])
    )
    return HighlightedTexts("Attention of [CLS] on each token", names, rows)


def _write_text(
    tokens: NDArray[np.str_],
    weights: NDArray[np.float64],
    marked: int,
    right: float,
) -> HighlightedText:
    size = np.count_nonzero(tokens != "")
    attention = weights[:size].astype(np.float64)
    low, high = attention.min(), attention.max()
    scaled = (attention - low) / (high - low) if high > low else np.zeros(size)
    return HighlightedText(tuple(map(str, tokens[:size])), tuple(map(float, scaled)), marked, right)


def _make_story(
    name: str, config: str, what: str, published: tuple[Method, ...], claim: Claim
) -> Story:
    methods = fitted.PAIRED[config]
    return Story(
        name=name,
        title=f"attention of the IMDB transformers, {what}",
        arrays=ARRAYS,
        table=TrainingTable(
            methods,
            collect_selection,
            required=tuple(method.name for method in methods),
            published=published,
        ),
        needs="trainings (mirrormargin campaign)",
        draw=(partial(draw_token_selection, what),),
        claims=(claim,),
    )


STORIES = (
    _make_story(
        "token-selection",
        "imdb/tiny",
        "mirror descent",
        compared_methods.PAPER_6,
        PUBLISHED_CLAIM,
    ),
    _make_story("token-selection-adam", "imdb/small", "MirrorAdam and AdamW", (), ADAM_CLAIM),
)
