"""Word pieces: texts as numbers of pieces of words, by the vocabulary of bert-base-uncased.

A text is lower-cased and stripped of accents, parted at blanks and punctuation, and each word is
taken apart into the longest pieces of the vocabulary, from the left (``##`` marks what goes on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import DataError

__all__ = ["CLS", "PAD", "SEP", "SPECIAL", "UNK", "Pieces", "read_vocabulary", "tokenize"]

PAD, UNK, CLS, SEP = 0, 100, 101, 102
SPECIAL = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP}
CHUNK = 1000  # texts at a time: what the tokenizer gives takes far more memory than the numbers


@dataclass(frozen=True)
class Pieces:
    """Texts of different lengths in one array: text i is ``ids[starts[i]:starts[i + 1]]``.

    Attributes:
        ids: uint16, without special tokens.
        starts: int64, one more than there are texts.
    """

    ids: NDArray[np.uint16]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def take(self, first: int, last: int) -> Pieces:
        """The texts from ``first`` up to, not including, ``last``."""
        starts = self.starts[first : last + 1]
        return Pieces(self.ids[starts[0] : starts[-1]], starts - starts[0])


def read_vocabulary(path: Path) -> tuple[str, ...]:
    """One piece a line, the first has number 0."""
    vocabulary = tuple(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))
    for token, number in SPECIAL.items():
        if len(vocabulary) <= number or vocabulary[number] != token:
            raise DataError(
                f"{path} is not the vocabulary of bert-base-uncased: {token} is not in line"
                f" {number + 1}"
            )
    return vocabulary


def tokenize(
    texts: Sequence[str],
    vocabulary: tuple[str, ...],
    progress: Callable[[int, int], object] | None = None,
) -> Pieces:
    """Take texts apart.

    Args:
        texts: Any number.
        vocabulary: Pieces by number.
        progress: Called with how many texts are done, and how many there are.
    """
    tokenizer = _build_tokenizer(vocabulary)
    ids: list[NDArray[np.uint16]] = []
    starts = np.zeros(len(texts) + 1, np.int64)
    for first in range(0, len(texts), CHUNK):
        chunk = list(texts[first : first + CHUNK])
        encoded = [text.ids for text in tokenizer.encode_batch_fast(chunk)]
        starts[first + 1 : first + 1 + len(chunk)] = [len(text) for text in encoded]
        ids.append(np.fromiter(chain.from_iterable(encoded), np.uint16))
        if progress is not None:
            progress(first + len(chunk), len(texts))
    return Pieces(np.concatenate(ids) if ids else np.zeros(0, np.uint16), np.cumsum(starts))


@lru_cache(maxsize=2)
def _build_tokenizer(vocabulary: tuple[str, ...]) -> Any:
    try:
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer
    except ImportError as error:
        raise DataError(
            "text is taken apart by the package tokenizers: pip install tokenizers"
        ) from error
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer
