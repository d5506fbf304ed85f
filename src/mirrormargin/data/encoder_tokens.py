"""The tokenizer that a pretrained encoder came with, instead of our own word pieces.

It is kept as the JSON of the package ``tokenizers``, which says how a text is taken apart, what is
put around one text and two, and what fills a row:

    BERT, DistilBERT, ModernBERT    [CLS] a [SEP]    [CLS] a [SEP] b [SEP]
    RoBERTa                         <s> a </s>       <s> a </s></s> b </s>

A special token that is written out in a text, such as ``[SEP]``, is taken apart like a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mirrormargin.data.tokens import CHUNK, Framing, Pieces
from mirrormargin.errors import DataError

__all__ = ["EncoderTokenizer", "parse_tokenizer"]


class EncoderTokenizer:
    """Takes texts apart as a pretrained encoder reads them.

    Args:
        document: JSON of the package ``tokenizers``, with the padding that the encoder knows.

    Raises:
        DataError: If it is no such JSON, says nothing of padding, or puts nothing before a text or
            between two.

    Attributes:
        framing: Special tokens around texts.
        has_types: Whether it tells the two texts of a pair apart by token types.
        sha256: Of the document.
    """

    def __init__(self, document: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise DataError(
                "text is taken apart by the package tokenizers: pip install tokenizers"
            ) from error
        try:
            self._tokenizer: Any = Tokenizer.from_str(document)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise DataError(f"this is no tokenizer ({reason}): train again") from error
        if self._tokenizer.padding is None:
            raise DataError("the tokenizer has no padding: choose an encoder that has a [PAD]")
        padding = int(self._tokenizer.padding["pad_id"])
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self.framing, self.has_types = self._look_at_pair(padding)
        self.sha256 = hashlib.sha256(document.encode()).hexdigest()

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def unknown(self) -> int | None:
        """The number of what stands for an unknown word; None if every text has known tokens."""
        token = getattr(self._tokenizer.model, "unk_token", None)
        return None if token is None else self._tokenizer.token_to_id(token)

    def tokenize(
        self, texts: Sequence[str], progress: Callable[[int, int], object] | None = None
    ) -> Pieces:
        """Take texts apart; ``progress`` is called with how many are done, and how many of all."""
        kind = np.uint16 if len(self) <= 2**16 else np.uint32
        ids, starts = [np.zeros(0, kind)], np.zeros(len(texts) + 1, np.int64)
        for first in range(0, len(texts), CHUNK):
            chunk = list(texts[first : first + CHUNK])
            encoded = self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            starts[first + 1 : first + 1 + len(chunk)] = [len(text.ids) for text in encoded]
            ids += [np.array(text.ids, kind) for text in encoded]
            if progress is not None:
                progress(first + len(chunk), len(texts))
        return Pieces(np.concatenate(ids), np.cumsum(starts))

    def name(self, number: int) -> str:
        """A token as it is shown: without the marks that byte-level pieces have for blanks."""
        shown = self._tokenizer.decode([number], skip_special_tokens=False).strip()
        return shown or self._tokenizer.id_to_token(number)

    def _look_at_pair(self, padding: int) -> tuple[Framing, bool]:
        """What it puts around and between two texts, and whether token types tell them apart."""
        pair = self._tokenizer.encode("a", "a")
        sides = [-1 if side is None else side for side in pair.sequence_ids]
        if sides[:1] != [-1] or not {0, 1} <= set(sides):
            raise DataError(
                "the tokenizer puts nothing before a text, but the head reads the encoder there:"
                " choose an encoder that begins with [CLS] or <s>"
            )
        starts = [sides.index(side) for side in (0, 1)]
        stops = [len(sides) - sides[::-1].index(side) for side in (0, 1)]
        parts = (slice(0, starts[0]), slice(stops[0], starts[1]), slice(stops[1], None))
        before, between, after = (tuple(pair.ids[part]) for part in parts)
        if not between:
            raise DataError(
                "the tokenizer puts nothing between two texts: choose an encoder with a [SEP]"
            )
        return Framing(before, between, after, padding), len(set(pair.type_ids)) > 1


@lru_cache(maxsize=2)
def parse_tokenizer(document: str) -> EncoderTokenizer:
    """The tokenizer of a document, made once for all texts."""
    return EncoderTokenizer(document)
