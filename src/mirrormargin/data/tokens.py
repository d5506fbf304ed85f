"""Texts as rows of numbers: word pieces, a vocabulary, and one width for all.

A text is lower-cased and stripped of accents, split at blanks and punctuation, and each word is
taken apart into the longest pieces of the vocabulary of bert-base-uncased, from the left (``##``
marks a continuation). Rows are cut to one width, framed by special tokens, and padded:

    one text     [CLS] a ... [SEP] [PAD] ...
    two texts    [CLS] a ... [SEP] b ... [SEP] [PAD] ...

(Pretrained encoders with a tokenizer of their own may frame texts in another way.)

``head`` keeps the first pieces of a text, ``ends`` the first half and the last half. Of two texts
the longer one is cut until both fit or have the same length. A shorter vocabulary has the special
tokens first, [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then the most frequent pieces of the training
texts by falling frequency; all others become [UNK].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_choice, check_count
from mirrormargin.errors import DataError

__all__ = [
    "CHUNK",
    "CLS",
    "PAD",
    "SEP",
    "SPECIAL",
    "UNK",
    "WORDPIECE",
    "Framing",
    "Pieces",
    "check_framing",
    "check_vocab_size",
    "choose_pieces",
    "choose_width",
    "count_tokens",
    "frame",
    "make_vocabulary",
    "read_vocabulary",
    "renumber",
    "tokenize",
]

PAD, UNK, CLS, SEP = 0, 100, 101, 102
SPECIAL = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP}
KEEPS = ("head", "ends")
MOST = 512  # tokens kept if nothing is said, as the models of that vocabulary do
CHUNK = 1_000  # texts at a time: what the tokenizer gives takes far more memory than the numbers
MOST_WORDS = 30_000  # in a vocabulary of one's own words, about as many as bert-base-uncased has
BLOCK = 1_000  # rows at a time: memory that is used again is faster than new memory

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Framing:
    """The special tokens around one text or two, by number, and the one that fills a row.

    Attributes:
        before: What begins a row.
        between: What separates two texts.
        after: What ends the text, or the second of two.
        padding: What follows up to the width of the row.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    padding: int

    def count(self, is_pair: bool) -> int:
        """How many special tokens a row has besides padding."""
        return len(self.before) + len(self.between) * is_pair + len(self.after)


WORDPIECE = Framing((CLS,), (SEP,), (SEP,), PAD)


@dataclass(frozen=True)
class Pieces:
    """Texts of different lengths in one array: text i is ``ids[starts[i]:starts[i + 1]]``.

    Attributes:
        ids: uint16 or, of a large vocabulary, uint32, without special tokens.
        starts: int64, one more than there are texts.
    """

    ids: NDArray[np.uint16 | np.uint32]
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


def make_vocabulary(texts: Sequence[str]) -> tuple[str, ...]:
    """The words of some texts by falling frequency, after the special tokens.

    It takes the place of the vocabulary of bert-base-uncased where that is not at hand: whole words
    instead of pieces, so a word that is in none of the texts is ``[UNK]``.

    Args:
        texts: Those to learn from.
    """
    tokenizer = _build_tokenizer(tuple(SPECIAL))
    counts: Counter[str] = Counter()
    for text in texts:
        clean = tokenizer.normalizer.normalize_str(text)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(clean))
    special = [f"[unused{number}]" for number in range(max(SPECIAL.values()) + 1)]
    for token, number in SPECIAL.items():
        special[number] = token
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return (*special, *words[: MOST_WORDS - len(special)])


def check_framing(length: int | None, keep: str) -> None:
    """Refuse what no text can be cut to."""
    check_choice("keep", keep, KEEPS, error=DataError)
    if length is not None:
        check_count("length", length, least=5, hint="in tokens", error=DataError)


def choose_width(
    parts: list[tuple[Pieces, Pieces | None]], most: int = MOST, framing: Framing = WORDPIECE
) -> int:
    """What the longest of all texts needs, but no more than ``most``."""
    longest = 0
    for first, second in parts:
        longest = max(longest, int(count_tokens(first, second, framing).max(initial=0)))
    return max(5, min(longest, most))


def count_tokens(first: Pieces, second: Pieces | None, framing: Framing = WORDPIECE) -> Numbers:
    """How many tokens each text, or pair of texts, needs to be kept whole."""
    lengths = first.lengths if second is None else first.lengths + second.lengths
    return lengths + framing.count(second is not None)


def frame(
    first: Pieces, second: Pieces | None, width: int, keep: str, framing: Framing = WORDPIECE
) -> NDArray[np.int32]:
    """Texts, or pairs of texts, as rows of ``width`` numbers."""
    rows = np.full((len(first), width), framing.padding, np.int32)
    rows[:, : len(framing.before)] = framing.before
    room = width - framing.count(second is not None)
    for start in range(0, len(rows), BLOCK):
        stop = min(start + BLOCK, len(rows))
        block, part = rows[start:stop], first.take(start, stop)
        columns = np.full(len(part), len(framing.before), np.int64)
        if second is None:
            kept = np.minimum(part.lengths, room)
            _write_pieces(block, part, kept, columns, keep, framing.after)
            continue
        other = second.take(start, stop)
        kept, kept_other = _share(part.lengths, other.lengths, room)
        _write_pieces(block, part, kept, columns, keep, framing.between)
        columns = columns + kept + len(framing.between)
        _write_pieces(block, other, kept_other, columns, keep, framing.after)
    return rows


def _share(first: Numbers, second: Numbers, room: int) -> tuple[Numbers, Numbers]:
    """How much is kept of each, longest cut first; an odd token goes to the longer one."""
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    shorter_kept = np.where(shorter + longer > room, np.minimum(shorter, room // 2), shorter)
    longer_kept = np.minimum(longer, room - shorter_kept)
    is_shorter = first <= second
    return (
        np.where(is_shorter, shorter_kept, longer_kept),
        np.where(is_shorter, longer_kept, shorter_kept),
    )


def _write_pieces(
    rows: NDArray[np.int32],
    pieces: Pieces,
    kept: Numbers,
    columns: Numbers,
    keep: str,
    after: tuple[int, ...],
) -> None:
    """Write the kept pieces of each text from its column on, and special tokens after them."""
    text = np.repeat(np.arange(len(pieces)), kept)
    # For all kept pieces at once: their index among those kept of their text, and in the text.
    rank = np.arange(len(text)) - np.repeat(np.cumsum(kept) - kept, kept)
    index = rank
    if keep == "ends":
        head = kept - kept // 2
        dropped = pieces.lengths - kept
        index = rank + np.where(rank < head[text], 0, dropped[text])
    rows[text, columns[text] + rank] = pieces.ids[pieces.starts[text] + index]
    for place, token in enumerate(after):
        rows[np.arange(len(pieces)), columns + kept + place] = token


def check_vocab_size(vocab_size: int | None) -> None:
    """Refuse a size that leaves no room for any word."""
    if vocab_size is not None:
        hint = "for four special tokens and a word, or None for the whole vocabulary"
        check_count("vocab_size", vocab_size, least=5, hint=hint, error=DataError)


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
