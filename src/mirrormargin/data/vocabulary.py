"""A shorter vocabulary: the special tokens, then the most frequent pieces of the training texts.

[PAD] 0   [UNK] 1   [CLS] 2   [SEP] 3   then by falling frequency; all others become [UNK]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.data.wordpiece import SPECIAL, UNK
from mirrormargin.errors import DataError

__all__ = ["check_vocab_size", "choose_pieces", "renumber"]


def check_vocab_size(vocab_size: int | None) -> None:
    """Refuse a size that leaves no place for any word."""
    if vocab_size is not None and (not isinstance(vocab_size, int) or vocab_size < 5):
        raise DataError(
            f"vocab_size={vocab_size!r}: give a whole number, at least 5 (four special tokens and"
            " one word), or None for the whole vocabulary"
        )


def choose_pieces(rows: NDArray[np.int32], vocab_size: int, num_all: int) -> NDArray[np.int64]:
    """The numbers of the pieces to keep, by their new number; equally frequent ones in order."""
    counts = np.bincount(rows.ravel(), minlength=num_all)
    special = list(SPECIAL.values())
    counts[special] = 0
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    return np.concatenate([special, order[: vocab_size - len(special)]])


def renumber(rows: NDArray[np.int32], pieces: NDArray[np.int64], num_all: int) -> NDArray[np.int32]:
    """Rows in the numbers of the shorter vocabulary."""
    new = np.full(num_all, list(pieces).index(UNK), np.int32)
    new[pieces] = np.arange(len(pieces))
    return new[rows]
