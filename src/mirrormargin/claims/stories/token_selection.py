r"""Where classifiers trained on IMDB look: the attention of [CLS] on the word that decides.

    scaled = (a_t - min a) / (max a - min a)        of the attention a on the tokens of a review

Two exponents of mirror descent, and beside them MirrorAdam and AdamW; seeds are paired.

Axes: E exponents, S seeds, N reviews, T tokens; K = MirrorAdam and AdamW, Z their seeds; 5 kinds of
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import compared_methods, fitted
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    gather,
    read_exponents,
)
from mirrormargin.claims.checks import check_size, find_interval, mean_near, surely_smaller
from mirrormargin.claims.claim import Claim, Finding, Provenance
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
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import Spread, describe_mean, describe_seeds, find_mean

__all__ = ["STORY"]

SELECTION = (0.4387, 0.3122)  # mean scaled attention on the sentiment word, l1.1 and l2
KINDS = ("[CLS]", "[SEP]", "punctuation", "the sentiment word", "other words")
COUNTS = {
    "top": ("word attended to most", "W"),
    "right": ("review classified rightly", "optimal tokens"),
}

ARRAYS = {
    "p": "E",
    "score": "E S N: scaled attention on the sentiment word",
    "share": "E S N: attention on it",
    "top": "E S N: whether it has the most attention of all words",
    "right": "E S N: whether the review gets its label",
    "untrained": "S: mean score before training",
    "text, position": "N: the reviews, and where the sentiment word is",
    "tokens, weights": "E N T: of the first seed; short reviews are filled up with '' and 0",
    "kind_share": "E S 5: attention on [CLS], [SEP], punctuation, the sentiment word, other words",
    "adam_optimizer": "K",
    "adam_score, adam_share, adam_top, adam_right": "K Z N: as above",
    "adam_untrained": "Z",
    "adam_kind_share": "K Z 5",
}


def sort_tokens(tokens: Sequence[str], position: int) -> list[int]:
    """The kind of each token of a review, as an index of KINDS."""

    def find_kind(k: int, token: str) -> int:
        if k == position:
            return 3
        if token in KINDS[:2]:
            return KINDS.index(token)
        return 4 if any(char.isalnum() for char in token) else 2

    return [find_kind(k, token) for k, token in enumerate(tokens)]


def share_by_kind(record: dict[str, Any]) -> list[float]:
    """How much of [CLS]'s attention falls on each kind of token, mean over reviews, (5,)."""
    shares = [
        np.bincount(
            sort_tokens(review["tokens"], review["position"]),
            weights=np.divide(review["weights"], np.sum(review["weights"])),  # rounded in records
            minlength=len(KINDS),
        )
        for review in record["selection"]["reviews"]
    ]
    return np.mean(shares, axis=0).tolist()


def _collect_scores(finals: Finals) -> Arrays:
    def take(key: str) -> NDArray[Any]:
        return gather(finals, lambda r: r["selection"][key])

    return {
        "score": take("scaled"),
        "share": take("share"),
        "top": take("is_top_word"),
        "right": take("is_right"),
        "untrained": take("untrained").mean(axis=(0, 2)),
        "kind_share": gather(finals, share_by_kind),
    }


def collect_adam(methods: Sequence[Method], finals: Finals) -> Arrays:
    scores = {f"adam_{key}": array for key, array in _collect_scores(finals).items()}
    names = [method.name.partition(",")[0] for method in methods]
    return {"adam_optimizer": np.array(names), **scores}


def collect_selection(methods: Sequence[Method], finals: Finals) -> Arrays:
    reviews = [group[0]["selection"]["reviews"] for group in finals]
    longest = max(len(review["tokens"]) for review in reviews[0])

    def fill(key: str, empty: Any) -> NDArray[Any]:
        return np.array(
            [[(r[key] + [empty] * longest)[:longest] for r in group] for group in reviews]
        )

    return {
        "p": read_exponents(finals),
        **_collect_scores(finals),
        "text": np.array([review["text"] for review in reviews[0]]),
        "position": np.array([review["position"] for review in reviews[0]]),
        "tokens": fill("tokens", ""),
        "weights": fill("weights", 0.0),
    }


def examine_selection(evidence: Evidence) -> Finding:
    p, score = evidence["p"].tolist(), evidence["score"].mean(axis=-1)  # of all reviews, by seed
    one, two = score[p.index(1.1)], score[p.index(2.0)]
    untrained = evidence["untrained"].mean()
    return Finding(
        [
            surely_smaller("attention on the sentiment word, l1.1 less l2", two, one),
            mean_near("attention on the sentiment word, l1.1", one, SELECTION[0], 0.05),
            mean_near("attention on the sentiment word, l2", two, SELECTION[1], 0.05),
            check_size(evidence),
        ],
        f"{one.mean():.3f} against {two.mean():.3f}; untrained {untrained:.3f}",
        f"{one.size} seeds. " + _describe_adam(evidence),
    )


def _describe_adam(evidence: Evidence) -> str:
    if "adam_score" not in evidence.arrays:
        return ""
    first, second = evidence["adam_score"].mean(axis=-1)
    difference, low, high = find_interval(first - second)
    names = evidence["adam_optimizer"]
    interval = "" if low is None else f" [{low:.3f}, {high:.3f}]"
    return (
        f"{names[0]} {first.mean():.3f}, {names[1]} {second.mean():.3f}: a difference of"
        f" {difference:.3f}{interval}; untrained {evidence['adam_untrained'].mean():.3f}."
    )


CLAIMS = (
    Claim(
        id="A.tab.attention",
        title="l1.1 mirror descent attends more to the word that decides",
        statement="On short reviews the scaled attention of [CLS] on the sentiment word is higher"
        " at p = 1.1 than at p = 2.",
        source="paper A, table of attention maps",
        provenance=Provenance.SEEN,
        published="0.4387 against 0.3122",
        examine=examine_selection,
        should_hold=False,
    ),
)


def draw_token_selection(evidence: Evidence) -> Figure:
    names = tuple(map(name_exponent, evidence["p"]))
    x = np.arange(float(len(names)))
    score, untrained = evidence["score"], float(evidence["untrained"].mean())
    points = [
        Series(
            name,
            x[j : j + 1],
            *(end[j : j + 1] for end in _find_share(score) if end is not None),
            style="points",
            group=name,
        )
        for j, name in enumerate(names)
    ]
    baseline = Series("untrained", x, np.full(len(names), untrained), style="dashed")
    shares = tuple(
        Series(label, x, *_find_share(evidence[key]), style="bars", group=group)
        for key, (label, group) in COUNTS.items()
    )
    rows = _describe_rows(evidence, [f"mirror descent, p = {p:g}" for p in evidence["p"]])
    if "adam_score" in evidence.arrays:
        rows += _describe_rows(evidence, evidence["adam_optimizer"].tolist(), "adam_")
    axis = Axis("", ticks=names)
    return Figure(
        "token-selection",
        "Attention on the word that decides a review",
        f"Attention of [CLS] in the last block on the sentiment word of {score.shape[-1]} short"
        " reviews, scaled so that the least of a review is 0 and the largest 1; mean over"
        f" reviews, {describe_seeds(score.shape[1])}. The dashed line is that of models before"
        " training. In the texts the background is that attention and the sentiment word is"
        " underlined; ✓ and ✗ are reviews that all or no trainings classify rightly, a number is"
        " their share. The last columns of the table say where attention falls instead: its share"
        " on tokens of each kind.",
        (
            Panel(
                "scaled attention on the word", axis, Axis("scaled attention"), (*points, baseline)
            ),
            Panel("reviews", axis, Axis("share of reviews"), shares),
        ),
        table=Table(
            (
                "optimizer",
                "scaled attention",
                "untrained",
                "reviews where the word has most",
                "reviews classified rightly",
                *(f"attention on {kind}" for kind in KINDS),
            ),
            rows,
        ),
        texts=_write_texts(evidence, names),
    )


def _describe_rows(
    evidence: Evidence, names: Sequence[str], prefix: str = ""
) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            name,
            describe_mean(evidence[f"{prefix}score"][j].mean(axis=-1), ".3f"),
            describe_mean(evidence[f"{prefix}untrained"], ".3f"),
            f"{evidence[f'{prefix}top'][j].mean():.0%}",
            f"{evidence[f'{prefix}right'][j].mean():.0%}",
            *(f"{share:.0%}" for share in evidence[f"{prefix}kind_share"][j].mean(axis=0)),
        )
        for j, name in enumerate(names)
    )


def _find_share(values: NDArray[np.float64]) -> Spread:
    """Means of (E, S, N) over reviews and seeds; no share is below 0 or above 1."""
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


STORY = Story(
    name="token-selection",
    title="attention of the IMDB transformers",
    arrays=ARRAYS,
    table=TrainingTable(
        fitted.PAIRED["imdb/tiny"],
        collect_selection,
        required=tuple(method.name for method in fitted.PAIRED["imdb/tiny"]),
        published=compared_methods.PAPER_6,
        extra=fitted.PAIRED["imdb/small"],
        build_extra=collect_adam,
    ),
    needs="trainings (mirrormargin campaign)",
    draw=(draw_token_selection,),
    claims=CLAIMS,
)
