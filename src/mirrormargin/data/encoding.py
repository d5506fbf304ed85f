"""Single texts in the numbers of a data set's vocabulary, as a model trained on it reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mirrormargin.data.files import find_vocabulary
from mirrormargin.data.wordpiece import tokenize
from mirrormargin.errors import DataError

__all__ = ["make_encoder"]


def make_encoder(
    vocabulary: Sequence[str], *, data_dir: str | Path | None = None, download: bool = False
) -> Callable[[str], tuple[list[int], list[str]]]:
    """A function from a text to its numbers and word pieces, ``[CLS]`` and ``[SEP]`` included.

    A text is taken apart by the whole vocabulary, and pieces that a shorter one does not have are
    ``[UNK]``. To take it apart by the shorter one would give other pieces than in training.

    Args:
        vocabulary: Of a :class:`DataSet`.
        data_dir: Where the whole vocabulary is looked for, as in :func:`load_data`.
        download: Whether to fetch it if it is absent.
    """
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    absent = [piece for piece in ("[UNK]", "[CLS]", "[SEP]") if piece not in numbers]
    if absent:
        raise DataError(f"the vocabulary has no {absent[0]}: give that of a data set of texts")
    whole = find_vocabulary(data_dir, download)[1]

    def encode(text: str) -> tuple[list[int], list[str]]:
        pieces = [whole[number] for number in tokenize([text], whole).ids]
        seen = [piece if piece in numbers else "[UNK]" for piece in pieces]
        seen = ["[CLS]", *seen, "[SEP]"]
        return [numbers[piece] for piece in seen], seen

    return encode
