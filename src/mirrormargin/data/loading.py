"""``load_data``: a data set by its name, or from a file or folder of your own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mirrormargin.arguments import check_choice
from mirrormargin.data.dataset import DataSet, Split, check_num_train, describe_subset
from mirrormargin.data.encoder_tokens import parse_tokenizer
from mirrormargin.data.files import Arrays, Source, VerifiedFile, compute_sha256, prepare, verify
from mirrormargin.data.image_files import list_images, read_own_images
from mirrormargin.data.image_sets import DIGITS, IMAGE_SETS, make_image_set, read_digits
from mirrormargin.data.language_sets import LANGUAGE_SETS, load_language_set
from mirrormargin.data.published import find_data, find_vocabulary
from mirrormargin.data.text_files import FORMATS, Texts, find_format, read_own_texts
from mirrormargin.data.text_sets import TEXT_SETS
from mirrormargin.data.tokens import (
    WORDPIECE,
    Framing,
    Pieces,
    check_framing,
    check_vocab_size,
    choose_pieces,
    choose_width,
    count_tokens,
    frame,
    make_vocabulary,
    renumber,
    tokenize,
)
from mirrormargin.errors import DataError

__all__ = ["DATA_SETS", "load_data"]

DATA_SETS = (*TEXT_SETS, *IMAGE_SETS, "digits", *LANGUAGE_SETS)
SPLITS = ("train", "validation", "test")

Progress = Callable[[int, int], object]


def load_data(
    name: str | Path,
    *,
    data_dir: str | Path | None = None,
    length: int | None = None,
    keep: str = "head",
    vocab_size: int | None = None,
    num_train: int | None = None,
    text_column: str = "text",
    label_column: str = "label",
    test_data: str | Path | None = None,
    vocabulary: str = "wordpiece",
    encoder_tokenizer: str | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Load a data set, split and shuffled the same way each time.

    The first load of a set of texts takes up to a minute; what it made is kept in the cache folder.

    Args:
        name: One of ``DATA_SETS``; or the path of a file of texts (.jsonl, .csv, .tsv, or any of
            them with .gz or .xz) or of a folder that holds a folder of images for each class.
        data_dir: Where its files are; else the variable MIRRORMARGIN_DATA says. Only ever read.
        length: Tokens kept of a text, ``[CLS]`` and ``[SEP]`` included; None: all, at most 512. Of
            a text for language models, tokens of a window; None: 64.
        keep: ``head``, the first ones, or ``ends``, the first half and the last half.
        vocab_size: None: all word pieces; else the most frequent ones of the training split. Of
            wikitext2, how many pieces of words are learnt; None: 4,096.
        num_train: None: the whole training split; else a random subset, the same each time.
        text_column: Where the text is in a row of a file of your own.
        label_column: Where its class is.
        test_data: With a file of your own: a second file, all of which is for test.
        vocabulary: ``wordpiece``, that of bert-base-uncased; or, with a file of your own,
            ``words``: the words of its training texts, for which nothing has to be fetched.
        encoder_tokenizer: For texts, the tokenizer of a pretrained encoder as JSON (see
            :class:`mirrormargin.data.InputForm`), instead of the word pieces of bert-base-uncased.
        download: Whether to fetch what is absent into the cache folder.
        progress: Called as ``progress(done, total)``, with bytes of a download or numbers of texts.

    Raises:
        DataError: If there is no such data set, it is absent or damaged, or an argument is wrong.
    """
    check_framing(length, keep)
    check_vocab_size(vocab_size)
    check_choice("vocabulary", vocabulary, ("wordpiece", "words"), error=DataError)
    options = _TextOptions(length, keep, vocab_size, num_train)
    if encoder_tokenizer is not None and (vocab_size is not None or vocabulary == "words"):
        raise DataError(
            "a pretrained encoder reads texts by a vocabulary of its own: leave out vocab_size and"
            " the vocabulary of words"
        )

    def find_reader() -> _Reader:
        if encoder_tokenizer is not None:
            own = parse_tokenizer(encoder_tokenizer)
            return _Reader("tokenizer", own.sha256, encoder_tokenizer=encoder_tokenizer)
        file, pieces = find_vocabulary(data_dir, download, progress)
        return _Reader(file.name, file.sha256, pieces)

    path = Path(name).expanduser()
    is_own = str(name) not in DATA_SETS and find_format(path) is not None and path.is_file()
    is_missing = find_format(path) is not None and not path.exists()
    if (test_data is not None or vocabulary == "words") and not (is_own or is_missing):
        given = "test_data" if test_data is not None else "a vocabulary of words"
        raise DataError(f"{given} is for a file of texts of your own, and {name} is none")
    if str(name) in TEXT_SETS:
        text_set = TEXT_SETS[str(name)]
        files = find_data(str(name), data_dir, download, progress)
        return _load_text(
            str(name),
            text_set.classes,
            files,
            find_reader(),
            lambda: text_set.read([file.path for file in files]),
            options,
            progress=progress,
        )
    if str(name) in LANGUAGE_SETS:
        if keep != "head" or num_train is not None:
            raise DataError(
                f"keep and num_train are for examples with labels, and {name} is a text"
            )
        files = find_data(str(name), data_dir, download, progress)
        return load_language_set(str(name), files, length, vocab_size)
    if is_own:
        test_path = None if test_data is None else Path(test_data).expanduser()
        if test_path is not None and (find_format(test_path) is None or not test_path.is_file()):
            raise DataError(
                f"test_data is {test_data}: give a file that exists and ends in one of"
                f" {', '.join(FORMATS)}, or in one of them with .gz or .xz"
            )
        own = read_own_texts(path, text_column, label_column, test_path)
        files = [verify(Source(path.name), path)]
        if test_path is not None:
            files.append(verify(Source(f"test/{test_path.name}"), test_path))
        if vocabulary == "words":
            pieces = make_vocabulary(own.splits["train"].first)
            digest = hashlib.sha256("\n".join(pieces).encode()).hexdigest()
            reader = _Reader("words", digest, pieces)
        else:
            reader = find_reader()
        return _load_text(
            str(name),
            own.classes,
            files,
            reader,
            lambda: (own.splits, own.note),
            options,
            key={
                "text_column": text_column,
                "label_column": label_column,
                "vocabulary": vocabulary,
            },
            dropped=own.dropped,
            progress=progress,
        )
    if is_missing:
        raise DataError(f"the file {name} does not exist")
    if str(name) not in DATA_SETS and path.is_file():
        raise DataError(
            f"{name} is no file of texts: give one of {', '.join(FORMATS)}, plain or with .gz or"
            " .xz, or a folder of images by class"
        )
    if str(name) not in DATA_SETS and not path.is_dir():
        raise DataError(
            f"there is no data set {str(name)!r}: there are {', '.join(DATA_SETS)}, and paths of"
            f" files of texts ({', '.join(FORMATS)}) and of folders of images by class"
        )
    if options != _TextOptions(None, "head", None, num_train):
        raise DataError(
            f"length, keep and vocab_size are for texts, and {name} is of images: choose a"
            " configuration of a model for images, or leave them out"
        )
    if str(name) in IMAGE_SETS:
        image_set = IMAGE_SETS[str(name)]
        files = find_data(str(name), data_dir, download, progress)
        sha256 = {file.name: file.sha256 for file in files}
        arrays, note = prepare(
            {"name": str(name), "sha256": sha256},
            lambda: image_set.read([file.path for file in files]),
        )
        return make_image_set(str(name), image_set.classes, arrays, num_train, sha256, note)
    if str(name) == "digits":
        arrays, note, source = read_digits()
        sha256 = {source.name: compute_sha256(source)}
        return make_image_set("digits", DIGITS, arrays, num_train, sha256, note)
    paths = list_images(path)
    arrays, note, classes = read_own_images(path, paths)
    sha256 = {file.relative_to(path).as_posix(): compute_sha256(file) for file in paths}
    return make_image_set(str(name), classes, arrays, num_train, sha256, note)


@dataclass(frozen=True)
class _TextOptions:
    """How texts are cut, see :func:`mirrormargin.data.load_data`."""

    length: int | None
    keep: str
    vocab_size: int | None
    num_train: int | None


@dataclass(frozen=True)
class _Reader:
    """What texts are taken apart by: word pieces, or the tokenizer of a pretrained encoder.

    Attributes:
        name: Of its file, or ``words`` or ``tokenizer``.
        sha256: Of its contents.
        vocabulary: All word pieces by number.
        encoder_tokenizer: The tokenizer as JSON, and no word pieces.
    """

    name: str
    sha256: str
    vocabulary: tuple[str, ...] | None = None
    encoder_tokenizer: str | None = None

    @property
    def framing(self) -> Framing:
        if self.encoder_tokenizer is None:
            return WORDPIECE
        return parse_tokenizer(self.encoder_tokenizer).framing

    def tokenize(self, texts: list[str], progress: Progress | None) -> Pieces:
        if self.encoder_tokenizer is not None:
            return parse_tokenizer(self.encoder_tokenizer).tokenize(texts, progress)
        assert self.vocabulary is not None
        return tokenize(texts, self.vocabulary, progress)


def _load_text(
    name: str,
    classes: tuple[str, ...],
    files: list[VerifiedFile],
    reader: _Reader,
    read: Callable[[], tuple[dict[str, Texts], str]],
    options: _TextOptions,
    *,
    key: dict[str, Any] | None = None,
    dropped: dict[str, int] | None = None,
    progress: Progress | None = None,
) -> DataSet:
    """Make a data set of texts.

    Args:
        name: Of the data set.
        classes: Names by number.
        files: What ``read`` reads.
        reader: What texts are taken apart by.
        read: Gives the texts of each split, and a note; called unless it is all in the cache.
        options: Length, what is kept, size of the vocabulary and of the training split.
        key: What else the texts depend on.
        dropped: Why rows were dropped, and how many.
        progress: Called with how many texts are done, and how many there are.
    """
    sha256 = {file.name: file.sha256 for file in files} | {reader.name: reader.sha256}
    arrays, note = prepare(
        {"name": name, "sha256": sha256, **(key or {})},
        lambda: _tokenize_all(read, reader, progress),
    )
    parts, framing = [_get_pieces(arrays, split) for split in SPLITS], reader.framing
    width = choose_width(parts, framing=framing) if options.length is None else options.length
    if key is not None:  # texts of your own, which may all be shorter than those of a configuration
        width = choose_width(parts, width, framing)
    labels = [arrays[f"{split}/labels"] for split in SPLITS]
    check_num_train(options.num_train, len(labels[0]), name)
    if options.num_train is not None:
        labels[0] = labels[0][: options.num_train]
        first, second = parts[0]
        parts[0] = (
            first.take(0, options.num_train),
            None if second is None else second.take(0, options.num_train),
        )
    counts = count_tokens(*parts[0], framing)
    rows = [frame(first, second, width, options.keep, framing) for first, second in parts]
    vocabulary = wordpieces = reader.vocabulary
    if options.vocab_size is not None and vocabulary is not None:
        num_all = len(vocabulary)
        pieces = choose_pieces(rows[0], options.vocab_size, num_all)
        rows = [renumber(part, pieces, num_all) for part in rows]
        vocabulary = tuple(vocabulary[piece] for piece in pieces)
    train, validation, test = (
        Split(torch.from_numpy(part), torch.from_numpy(numbers))
        for part, numbers in zip(rows, labels, strict=True)
    )
    note += _describe(options, width, 0 if vocabulary is None else len(vocabulary))
    return DataSet(
        name=name,
        kind="text",
        classes=classes,
        shape=(width,),
        vocabulary=vocabulary,
        wordpieces=wordpieces,
        encoder_tokenizer=reader.encoder_tokenizer,
        num_texts=1 if parts[0][1] is None else 2,
        keep=options.keep,
        train=train,
        validation=validation,
        test=test,
        sha256=sha256,
        note=note,
        token_counts=torch.from_numpy(counts),
        dropped=dropped or {},
    )


def _describe(options: _TextOptions, width: int, num_pieces: int) -> str:
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
    reader: _Reader,
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
        pieces = reader.tokenize(texts, report)
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
