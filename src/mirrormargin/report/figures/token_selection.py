r"""Where classifiers trained on IMDB look: the attention of [CLS] on the word that decides.

scaled = (a_t - min a) / (max a - min a)        of the attention a on the tokens of a review
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.highlights import HighlightedText, HighlightedTexts
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import Spread, describe_mean, describe_seeds, find_mean
from mirrormargin.report.sources import Evidence

__all__ = ["build_token_selection"]

Arrays = dict[str, NDArray[Any]]
COUNTS = {
    "top": ("word attended to most", "W"),
    "right": ("review classified rightly", "optimal tokens"),
}


def build_token_selection(evidence: Evidence) -> Figure | None:
    if "token-selection" not in evidence:
        return None
    _, arrays = evidence["token-selection"]
    names = tuple(map(name_exponent, arrays["p"]))
    places = np.arange(float(len(names)))
    score, untrained = arrays["score"], float(arrays["untrained"].mean())
    points = [
        Series(
            name,
            places[j : j + 1],
            *(end[j : j + 1] for end in _find_share(score) if end is not None),
            style="points",
            group=name,
        )
        for j, name in enumerate(names)
    ]
    baseline = Series("untrained", places, np.full(len(names), untrained), style="dashed")
    shares = tuple(
        Series(label, places, *_find_share(arrays[key]), style="bars", group=group)
        for key, (label, group) in COUNTS.items()
    )
    rows = tuple(
        (
            f"{p:g}",
            describe_mean(score[j].mean(axis=-1), ".3f"),
            describe_mean(arrays["share"][j].mean(axis=-1), ".3f"),
            f"{arrays['top'][j].mean():.0%}",
            f"{arrays['right'][j].mean():.0%}",
        )
        for j, p in enumerate(arrays["p"])
    )
    rows += (("untrained", describe_mean(arrays["untrained"], ".3f"), "–", "–", "–"),)
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
        texts=_write_texts(arrays, names),
    )


def _find_share(values: NDArray[np.float64]) -> Spread:
    """Means of (E, S, N) over reviews and seeds; no share is below 0 or above 1."""
    middle, low, high = find_mean(values.mean(axis=-1).T)
    if low is None or high is None:
        return Spread(middle, None, None)
    return Spread(middle, np.maximum(low, 0.0), np.minimum(high, 1.0))


def _write_texts(arrays: Arrays, names: tuple[str, ...]) -> HighlightedTexts:
    tokens, weights, right = arrays["tokens"], arrays["weights"], arrays["right"]
    rows = tuple(
        tuple(
            _write_text(
                tokens[j, i],
                weights[j, i],
                int(arrays["position"][i]),
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
