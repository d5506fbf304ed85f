"""Texts whose words are shaded by a number, such as attention: a table of texts, a column a model.

A weight is from 0, no shade, to 1; [CLS] and [SEP] are shown but never the word of largest weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mirrormargin.errors import ReportError

__all__ = ["HighlightedText", "HighlightedTexts"]

SPECIAL = ("[CLS]", "[SEP]")


@dataclass(frozen=True)
class HighlightedText:
    """One text as one model reads it.

    Attributes:
        tokens: Its words, or pieces of words.
        weights: The shade of each, from 0 to 1.
        marked: Which token is underlined; None for none.
        right: Whether the model gives it its label: 1 if so, 0 if not, between them the share of
            models that do; None if it is not known.
    """

    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    marked: int | None = None
    right: float | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.weights):
            raise ReportError(
                f"a text has {len(self.tokens)} tokens and {len(self.weights)} weights: one for one"
            )
        if not all(np.isfinite(weight) and 0 <= weight <= 1 for weight in self.weights):
            raise ReportError(f"the weights of {' '.join(self.tokens)!r} are not all from 0 to 1")
        if self.marked is not None and not 0 <= self.marked < len(self.tokens):
            raise ReportError(
                f"token {self.marked} of {' '.join(self.tokens)!r} is to be marked: there are"
                f" {len(self.tokens)}"
            )

    def find_top(self) -> str:
        """The word of largest weight; the first of equals, "" if there is no word."""
        words = [k for k, token in enumerate(self.tokens) if token not in SPECIAL]
        return self.tokens[max(words, key=lambda k: self.weights[k])] if words else ""

    def join_words(self) -> str:
        """The text without its special tokens, pieces of words put together."""
        return " ".join(token for token in self.tokens if token not in SPECIAL).replace(" ##", "")


@dataclass(frozen=True)
class HighlightedTexts:
    """Rows of texts.

    Attributes:
        title: What the shades are.
        columns: Names of the models.
        rows: For each text, how each of the models reads it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[HighlightedText, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ReportError(f"a row of texts has not {len(self.columns)} columns")

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [
                [
                    {
                        "tokens": list(text.tokens),
                        "weights": [round(weight, 4) for weight in text.weights],
                        "marked": text.marked,
                        "right": text.right,
                    }
                    for text in row
                ]
                for row in self.rows
            ],
        }
