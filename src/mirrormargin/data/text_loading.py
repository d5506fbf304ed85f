"""From texts to a data set: word pieces once, then the width and vocabulary that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mirrormargin.data.dataset import DataSet, Split
from mirrormargin.data.framing import choose_width, frame
from mirrormargin.data.prepared import Arrays, prepare
from mirrormargin.data.rows import Texts
from mirrormargin.data.subset import check_num_train, describe_subset
from mirrormargin.data.verified import VerifiedFile
from mirrormargin.data.vocabulary import choose_pieces, renumber
from mirrormargin.data.wordpiece import Pieces, tokenize

__all__ = ["TextOptions", "load_text"]

SPLITS = ("train", "validation", "test")

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class TextOptions:
    """How texts are cut, see :func:`mirrormargin.data.load_data`."""

    length: int | None
    keep: str
    vocab_size: int | None
    num_train: int | None


def load_text(
    name: str,
    classes: tuple[str, ...],
    files: list[VerifiedFile],
    vocabulary_file: VerifiedFile,
    vocabulary: tuple[str, ...],
    read: Callable[[], tuple[dict[str, Texts], str]],
    options: TextOptions,
    *,
    key: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> DataSet:
    """Make a data set of texts.

    Args:
        name: Of the data set.
        classes: Names by number.
        files: What ``read`` reads.
        vocabulary_file: Where the vocabulary is from.
        vocabulary: All word pieces by number.
        read: Gives the texts of each split, and a note; called unless it is all in the cache.
        options: Length, what is kept, size of the vocabulary and of the training split.
        key: What else the texts depend on.
        progress: Called with how many texts are done, and how many there are.
    """
    sha256 = {file.name: file.sha256 for file in [*files, vocabulary_file]}
    arrays, note = prepare(
        {"name": name, "sha256": sha256, **(key or {})},
        lambda: _tokenize_all(read, vocabulary, progress),
    )
    parts = [_get_pieces(arrays, split) for split in SPLITS]
    width = choose_width(parts) if options.length is None else options.length
    labels = [arrays[f"{split}/labels"] for split in SPLITS]
    check_num_train(options.num_train, len(labels[0]), name)
    if options.num_train is not None:
        labels[0] = labels[0][: options.num_train]
        first, second = parts[0]
        parts[0] = (
            first.take(0, options.num_train),
            None if second is None else second.take(0, options.num_train),
        )
    rows = [frame(first, second, width, options.keep) for first, second in parts]
    wordpieces, num_all = vocabulary, len(vocabulary)
    if options.vocab_size is not None:
        pieces = choose_pieces(rows[0], options.vocab_size, num_all)
        rows = [renumber(part, pieces, num_all) for part in rows]
        vocabulary = tuple(vocabulary[piece] for piece in pieces)
    train, validation, test = (
        Split(torch.from_numpy(part), torch.from_numpy(numbers))
        for part, numbers in zip(rows, labels, strict=True)
    )
    note += _describe(options, width, len(vocabulary))
    return DataSet(
        name=name,
        kind="text",
        classes=classes,
        shape=(width,),
        vocabulary=vocabulary,
        wordpieces=wordpieces,
        num_texts=1 if parts[0][1] is None else 2,
        keep=options.keep,
        train=train,
        validation=validation,
        test=test,
        sha256=sha256,
        note=note,
    )


def _describe(options: TextOptions, width: int, num_pieces: int) -> str:
    kept = "the first ones" if options.keep == "head" else "first and last half of those that fit"
    text = f" At most {width} word pieces a text with [CLS] and [SEP], {kept}."
    text += describe_subset(options.num_train)
    if options.vocab_size is not None:
        text += (
            f" The vocabulary is cut to {num_pieces:,}: the most frequent pieces of the training"
            " split, others are [UNK]."
        )
    return text


def _tokenize_all(
    read: Callable[[], tuple[dict[str, Texts], str]],
    vocabulary: tuple[str, ...],
    progress: Progress | None,
) -> tuple[Arrays, str]:
    parts, note = read()
    parts = {name: texts.shuffled() for name, texts in parts.items()}
    jobs = [
        (f"{name}/{order}", texts)
        for name, part in parts.items()
        for order, texts in (("first", part.first), ("second", part.second))
        if texts or order == "first"
    ]
    total, before = sum(len(texts) for _, texts in jobs), 0
    arrays: Arrays = {
        f"{name}/labels": np.array(part.labels, np.int64) for name, part in parts.items()
    }
    for job, texts in jobs:
        report = None
        if progress is not None:
            report = _offset(progress, before, total)
        pieces = tokenize(texts, vocabulary, report)
        arrays[f"{job}/ids"], arrays[f"{job}/starts"] = pieces.ids, pieces.starts
        before += len(texts)
    return arrays, note


def _offset(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


def _get_pieces(arrays: Arrays, split: str) -> tuple[Pieces, Pieces | None]:
    pieces = [
        Pieces(arrays[f"{split}/{order}/ids"], arrays[f"{split}/{order}/starts"])
        for order in ("first", "second")
        if f"{split}/{order}/ids" in arrays
    ]
    return pieces[0], pieces[1] if len(pieces) == 2 else None
