"""Texts of one width: cut, framed by special tokens, filled up with [PAD].

    one text     [CLS] a ... [SEP]
    two texts    [CLS] a ... [SEP] b ... [SEP]

``head`` keeps the first pieces of a text, ``ends`` the first half and the last half. Of two texts
the longer one is cut until both fit or are as long as each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.data.wordpiece import CLS, SEP, Pieces
from mirrormargin.errors import DataError

__all__ = ["KEEPS", "MOST", "check_framing", "choose_width", "frame"]

KEEPS = ("head", "ends")
MOST = 512  # tokens kept if nothing is said, as the models of that vocabulary do
BLOCK = 1_000  # texts at a time: memory that is used again is faster than new memory

Numbers = NDArray[np.int64]


def check_framing(length: int | None, keep: str) -> None:
    """Refuse what no text can be cut to."""
    if keep not in KEEPS:
        raise DataError(f"keep={keep!r}: there are 'head' and 'ends'")
    if length is not None and (not isinstance(length, int) or length < 5):
        raise DataError(f"length={length!r}: give a whole number of tokens, at least 5")


def choose_width(parts: list[tuple[Pieces, Pieces | None]]) -> int:
    """What the longest of all texts needs, but no more than ``MOST``."""
    longest = 0
    for first, second in parts:
        lengths = first.lengths + 2 if second is None else first.lengths + second.lengths + 3
        longest = max(longest, int(lengths.max(initial=0)))
    return max(5, min(longest, MOST))


def frame(first: Pieces, second: Pieces | None, width: int, keep: str) -> NDArray[np.int32]:
    """Texts, or pairs of texts, as rows of ``width`` numbers."""
    rows = np.zeros((len(first), width), np.int32)  # [PAD] is 0
    rows[:, 0] = CLS
    for start in range(0, len(rows), BLOCK):
        stop = min(start + BLOCK, len(rows))
        part = first.take(start, stop)
        columns = np.ones(len(part), np.int64)
        if second is None:
            _place(rows[start:stop], part, np.minimum(part.lengths, width - 2), columns, keep)
            continue
        other = second.take(start, stop)
        kept, kept_other = _share(part.lengths, other.lengths, width - 3)
        _place(rows[start:stop], part, kept, columns, keep)
        _place(rows[start:stop], other, kept_other, kept + 2, keep)
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


def _place(
    rows: NDArray[np.int32], pieces: Pieces, kept: Numbers, columns: Numbers, keep: str
) -> None:
    """Write the kept pieces of each text from its column on, and [SEP] behind them."""
    text = np.repeat(np.arange(len(pieces)), kept)
    # Of all kept pieces, in one go: the how manieth of its text, and where that is in the text.
    rank = np.arange(len(text)) - np.repeat(np.cumsum(kept) - kept, kept)
    place = rank
    if keep == "ends":
        head = kept - kept // 2
        dropped = pieces.lengths - kept
        place = rank + np.where(rank < head[text], 0, dropped[text])
    rows[text, columns[text] + rank] = pieces.ids[pieces.starts[text] + place]
    rows[np.arange(len(pieces)), columns + kept] = SEP
