r"""Where classifiers trained on IMDB look: the attention of [CLS] on the word that decides.

    scaled = (a_t - min a) / (max a - min a)        of the attention a on the tokens of a review

Axes: E exponents, S seeds, N reviews, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import compared_methods
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.training_table import (
    Finals,
    TrainingTable,
    gather,
    read_exponents,
)
from mirrormargin.claims.checks import check_size, mean_near, surely_smaller
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
        "p": read_exponents(finals),
        "score": take("scaled"),
        "share": take("share"),
        "top": take("is_top_word"),
        "right": take("is_right"),
        "untrained": untrained.mean(axis=(0, 2)),
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
    rows = tuple(
        (
            f"{p:g}",
            describe_mean(score[j].mean(axis=-1), ".3f"),
            describe_mean(evidence["share"][j].mean(axis=-1), ".3f"),
            f"{evidence['top'][j].mean():.0%}",
            f"{evidence['right'][j].mean():.0%}",
        )
        for j, p in enumerate(evidence["p"])
    )
    rows += (("untrained", describe_mean(evidence["untrained"], ".3f"), "–", "–", "–"),)
    axis = Axis("", ticks=names)
    return Figure(
        "token-selection",
        "Attention on the word that decides a review",
        f"Attention of [CLS] in the last block on the sentiment word of {score.shape[-1]} short"
        " reviews, scaled so that the least of a review is 0 and the largest 1; mean over"
        f" reviews, {describe_seeds(score.shape[1])}. The dashed line is that of models before"
        " training. In the texts the background is that attention and the sentiment word is"
        " underlined; ✓ and ✗ are reviews that all or no trainings classify rightly, a number is"
        " their share.",
        (
            Panel(
                "scaled attention on the word", axis, Axis("scaled attention"), (*points, baseline)
            ),
            Panel("reviews", axis, Axis("share of reviews"), shares),
        ),
        table=Table(
            (
                "p",
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
        compared_methods.PLAIN,
        collect_selection,
        required=tuple(method.name for method in compared_methods.PLAIN),
        published=compared_methods.PAPER_6,
    ),
    needs="trainings (mirrormargin campaign)",
    draw=(draw_token_selection,),
    claims=CLAIMS,
)
