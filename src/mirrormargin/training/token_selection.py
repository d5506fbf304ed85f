"""Does a classifier attend to the word that decides?

a = attention of [CLS] on the T tokens of a review, [CLS] and [SEP] included: the last block, the
mean over its heads. With t the sentiment word,

    scaled = (a_t - min a) / (max a - min a)        the score of paper A; 0 if all a are equal
    share  = a_t                                    1/T if it attends to nothing in particular

The row sums to one, so that shares of reviews of different lengths differ by that much alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirrormargin.errors import ModelError, TrainingError
from mirrormargin.training.reviews import REVIEWS, Review

__all__ = ["AttendedReview", "TokenSelection", "attend", "score_token_selection"]

Encode = Callable[[str], tuple[list[int], list[str]]]
CLS, PAD = "[CLS]", "[PAD]"
SPECIAL = (CLS, "[SEP]")


@dataclass(frozen=True)
class AttendedReview:
    """A review as the model read it.

    Attributes:
        review: Text, label and sentiment word.
        tokens: The T tokens, [CLS] and [SEP] included.
        weights: The attention of [CLS] on each, (T,): last block, mean over heads.
        position: Which token is the sentiment word.
        prediction: The class that the model gives.
    """

    review: Review
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    position: int
    prediction: int

    @property
    def is_right(self) -> bool:
        """Whether the model gives the review its label."""
        return self.prediction == self.review.label


@dataclass(frozen=True)
class TokenSelection:
    """How much of the attention of [CLS] falls on the sentiment words, for R reviews.

    Attributes:
        reviews: The R reviews with their tokens and attention, to be shown.
        scaled: Attention on the word, min-max scaled over all tokens of the review, (R,).
        share: Attention on the word, (R,).
        is_top_word: Whether no other token, [CLS] and [SEP] aside, has as much attention, (R,).
        is_right: Whether the model classifies the review rightly, (R,).
        skipped: Reviews whose word is not, exactly once, one of their tokens.
    """

    reviews: tuple[AttendedReview, ...]
    scaled: NDArray[np.float64]
    share: NDArray[np.float64]
    is_top_word: NDArray[np.bool_]
    is_right: NDArray[np.bool_]
    skipped: tuple[Review, ...]

    @property
    def score(self) -> float:
        """The mean of ``scaled``, which paper A compares."""
        return float(self.scaled.mean())

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it, numbers to four places."""
        return {
            "score": round(self.score, 5),
            "scaled": _round(self.scaled),
            "share": _round(self.share),
            "is_top_word": self.is_top_word.tolist(),
            "is_right": self.is_right.tolist(),
            "reviews": [
                {
                    "text": row.review.text,
                    "label": row.review.label,
                    "tokens": list(row.tokens),
                    "weights": _round(row.weights),
                    "position": row.position,
                    "prediction": row.prediction,
                }
                for row in self.reviews
            ],
            "skipped": [review.text for review in self.skipped],
        }


def score_token_selection(
    model: nn.Module,
    encode: Encode,
    reviews: Sequence[Review] = REVIEWS,
    longest: int = 512,
) -> TokenSelection:
    """Measure how much of the attention of [CLS] falls on the sentiment word of each review.

    Args:
        model: ``model(ids)`` gives logits, (B,), (B, 1) or (B, 2), and ``model.attention(ids)`` the
            attention (B, layers, heads, T, T), rows that sum to one, for ids (B, T). It is used
            in evaluation mode and put back into the mode it was in.
        encode: From a text to its ids and the tokens they stand for, [CLS] first, so that a word
            which a shortened vocabulary lacks appears as [UNK]. Trailing [PAD]s are removed.
        reviews: Each with its label and sentiment word.
        longest: Tokens that the model takes; longer reviews are skipped.

    Raises:
        TrainingError: If no review is left, or its tokens do not start with [CLS].
        ModelError: If the model gives attention or logits of another form.
    """
    rows: list[AttendedReview] = []
    skipped: list[Review] = []
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for review in reviews:
            ids, tokens = _encode(encode, review)
            if tokens.count(review.word) != 1 or len(ids) > longest:
                skipped.append(review)
                continue
            position = tokens.index(review.word)
            weights = attend(model, ids)
            with torch.no_grad():
                prediction = _classify(model(_make_batch(model, ids)))
            rows.append(AttendedReview(review, tuple(tokens), weights, position, prediction))
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not rows:
        raise TrainingError(
            f"none of the {len(reviews)} reviews has its word among its tokens, {longest} at most:"
            " give more reviews, or a larger vocabulary"
        )
    return TokenSelection(
        reviews=tuple(rows),
        scaled=np.array([_scale(row) for row in rows]),
        share=np.array([row.weights[row.position] for row in rows]),
        is_top_word=np.array([_is_top_word(row) for row in rows]),
        is_right=np.array([row.is_right for row in rows]),
        skipped=tuple(skipped),
    )


def _encode(encode: Encode, review: Review) -> tuple[list[int], list[str]]:
    ids, tokens = encode(review.text)
    if len(ids) != len(tokens):
        raise TrainingError(
            f"{review.text!r} was encoded as {len(ids)} ids and {len(tokens)} tokens: give one "
            "token for each id"
        )
    length = len(tokens)
    while length and tokens[length - 1] == PAD:
        length -= 1
    if not length or tokens[0] != CLS:
        raise TrainingError(
            f"{review.text!r} was encoded as {tokens[:length]}: the first token must be {CLS}, "
            "whose attention is measured"
        )
    return list(ids[:length]), list(tokens[:length])


@torch.no_grad()
def attend(model: Any, ids: Sequence[int]) -> tuple[float, ...]:
    """The attention of [CLS] on each of T tokens, in the last block, the mean over its heads.

    Raises:
        ModelError: If the model gives attention of another form.
    """
    batch, size = _make_batch(model, ids), len(ids)
    attention = model.attention(batch)
    if attention.ndim != 5 or attention.shape[0] != 1 or attention.shape[3:] != (size, size):
        raise ModelError(
            f"model.attention gave shape {tuple(attention.shape)} for one text of {size} tokens, "
            f"expected (1, layers, heads, {size}, {size})"
        )
    # Of a model that was shrunk, nan stands for the heads that this block lacks.
    row = attention[0, -1, :, 0].to("cpu", torch.float64).nanmean(dim=0)
    if not bool((row >= 0).all() and (row.sum() - 1).abs() < 1e-2):
        raise ModelError(
            "model.attention gave rows that are not shares (>= 0, sum 1): return the attention "
            "after the softmax, without dropout"
        )
    return tuple(row.tolist())


def _make_batch(model: Any, ids: Sequence[int]) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.tensor([list(ids)], device=device)


def _classify(logits: Tensor) -> int:
    if logits.numel() == 1:
        return int(logits.item() > 0)
    if logits.shape != (1, 2):
        raise ModelError(
            f"the model gave logits of shape {tuple(logits.shape)} for one text, expected (1,), "
            "(1, 1) or (1, 2): reviews have two classes"
        )
    return int(logits.argmax())


def _scale(row: AttendedReview) -> float:
    low, high = min(row.weights), max(row.weights)
    return (row.weights[row.position] - low) / (high - low) if high > low else 0.0


def _is_top_word(row: AttendedReview) -> bool:
    """Ties count against the word: attention that is equal everywhere selects nothing."""
    others = (
        weight
        for k, (token, weight) in enumerate(zip(row.tokens, row.weights, strict=True))
        if token not in SPECIAL and k != row.position
    )
    return row.weights[row.position] > max(others, default=-1.0)


def _round(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]
