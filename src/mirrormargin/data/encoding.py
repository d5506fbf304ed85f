"""New texts and images, as a model that was trained on a data set reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mirrormargin.data.dataset import InputForm, Split
from mirrormargin.data.encoder_tokens import parse_tokenizer
from mirrormargin.data.image_files import colour, list_images, read_image
from mirrormargin.data.text_files import FORMATS, find_format, number_labelled_texts
from mirrormargin.data.text_sets import TEXT_SETS
from mirrormargin.data.tokens import (
    WORDPIECE,
    Framing,
    Pieces,
    count_tokens,
    frame,
    renumber,
    tokenize,
)
from mirrormargin.errors import DataError

__all__ = [
    "encode_images",
    "encode_labelled",
    "encode_texts",
    "find_cut",
    "find_framing",
    "find_unknown",
    "make_encoder",
    "name_tokens",
]


def make_encoder(form: InputForm) -> Callable[[str], tuple[list[int], list[str]]]:
    """A function from a text to its numbers and word pieces, ``[CLS]`` and ``[SEP]`` included.

    A text is taken apart by the whole vocabulary, and pieces that a shorter one does not have are
    ``[UNK]``. To take it apart by the shorter one would give other pieces than in training.

    Raises:
        DataError: If a model of this form reads no texts.
    """
    if form.encoder_tokenizer is not None:
        return _make_own_encoder(form)
    vocabulary, whole = _get_vocabularies(form)
    numbers = {piece: number for number, piece in enumerate(vocabulary)}

    def encode(text: str) -> tuple[list[int], list[str]]:
        pieces = [whole[number] for number in tokenize([text], whole).ids]
        seen = [piece if piece in numbers else "[UNK]" for piece in pieces]
        seen = ["[CLS]", *seen, "[SEP]"]
        return [numbers[piece] for piece in seen], seen

    return encode


def _make_own_encoder(form: InputForm) -> Callable[[str], tuple[list[int], list[str]]]:
    framing = find_framing(form)

    def encode(text: str) -> tuple[list[int], list[str]]:
        (pieces,) = _tokenize([text], replace(form, num_texts=1))
        ids = [*framing.before, *pieces.ids.tolist(), *framing.after]
        return ids, name_tokens(ids, form)

    return encode


def find_framing(form: InputForm) -> Framing:
    """The special tokens that are put around a text, and the padding after it.

    Of a shorter vocabulary the numbers are others, except for the padding.
    """
    if form.encoder_tokenizer is None:
        return WORDPIECE
    return parse_tokenizer(form.encoder_tokenizer).framing


def find_unknown(form: InputForm) -> int | None:
    """The number of what a model reads instead of a word that it does not know, if there is one."""
    if form.encoder_tokenizer is not None:
        return parse_tokenizer(form.encoder_tokenizer).unknown
    return _get_vocabularies(form)[0].index("[UNK]")


def name_tokens(ids: Sequence[int], form: InputForm) -> list[str]:
    """Tokens by their numbers, as they are shown."""
    if form.encoder_tokenizer is not None:
        return list(map(parse_tokenizer(form.encoder_tokenizer).name, ids))
    vocabulary = _get_vocabularies(form)[0]
    return [vocabulary[number] for number in ids]


def encode_texts(texts: Sequence[str], form: InputForm) -> Tensor:
    """Texts as the rows of a data set, cut to its length.

    Args:
        texts: One or more; where the model compares pairs, each with a tab between its two.
        form: The data set that the model was trained on, or what is kept of it with the weights.

    Returns:
        int32, (N, T).

    Raises:
        DataError: If a text has no word in it, or is none of a pair where there should be two.
    """
    first, *others = parts = _tokenize(texts, form)
    for text, *lengths in zip(texts, *(part.lengths for part in parts), strict=True):
        if 0 in lengths:
            raise DataError(f"{text!r} has no words: give a text")
    second, framing = others[0] if others else None, find_framing(form)
    rows = frame(first, second, form.shape[0], form.keep, framing)
    if form.encoder_tokenizer is not None:
        return torch.from_numpy(rows)
    vocabulary, whole = _get_vocabularies(form)
    numbers = {piece: number for number, piece in enumerate(whole)}
    pieces = np.array([numbers[piece] for piece in vocabulary])
    return torch.from_numpy(renumber(rows, pieces, len(whole)))


def find_cut(texts: Sequence[str], form: InputForm) -> list[bool]:
    """Whether :func:`encode_texts` cuts each of the texts."""
    first, *others = _tokenize(texts, form)
    counts = count_tokens(first, others[0] if others else None, find_framing(form))
    return (counts > form.shape[0]).tolist()


def _tokenize(texts: Sequence[str], form: InputForm) -> list[Pieces]:
    """The texts, or the first ones and the second ones of pairs, as numbers of word pieces."""
    if form.encoder_tokenizer is not None:
        take_apart = parse_tokenizer(form.encoder_tokenizer).tokenize
    else:
        take_apart = partial(tokenize, vocabulary=_get_vocabularies(form)[1])
    clean = TEXT_SETS[form.name].clean if form.name in TEXT_SETS else str
    columns = [_part(clean(text), form.num_texts) for text in texts]
    return [take_apart([column[index] for column in columns]) for index in range(form.num_texts)]


def _get_vocabularies(form: InputForm) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if form.vocabulary is None or form.wordpieces is None:
        raise DataError(f"a model of {form.name} reads {form.kind}s, not texts")
    return form.vocabulary, form.wordpieces


def _part(text: str, num_texts: int) -> list[str]:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of a command line that are no text
        raise DataError(f"{text!r} is no text in UTF-8: {error.reason}") from error
    parts = text.split("\t") if num_texts == 2 else [text]
    if len(parts) != num_texts:
        raise DataError(f"{text!r}: the model compares two texts, give both with a tab between")
    return parts


def encode_images(paths: Sequence[Path], form: InputForm) -> Tensor:
    """Image files of the size and colours of a data set, uint8, (N, C, H, W).

    Raises:
        DataError: If a file is no image, or one of another size, or coloured where the model was
            trained on grey ones.
    """
    channels, height, width = form.shape
    images = []
    for path in paths:
        image = read_image(path)
        if image.shape[:2] != (height, width):
            raise DataError(
                f"{path} has {image.shape[1]} x {image.shape[0]} pixels, but the model was trained"
                f" on {width} x {height}: resize it"
            )
        if channels == 1 and image.ndim == 3:
            raise DataError(
                f"{path} is stored in colours, but the model was trained on grey images: save it as"
                " grey"
            )
        images.append(image[None] if channels == 1 else colour(image).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(images))


def encode_labelled(
    path: Path, form: InputForm, text_column: str = "text", label_column: str = "label"
) -> Split:
    """Labelled examples of your own, to score a model on: all but rows without a text.

    Args:
        path: A file of texts with labels, or a folder with a folder of images for each class.
        form: What is kept of the data with the weights of the model.
        text_column: Of a file.
        label_column: Of a file.

    Raises:
        DataError: If there is no such file or folder, it holds no examples, an example cannot be
            read, or its label is no class of the model.
    """
    if form.kind == "image":
        if not path.is_dir():
            raise DataError(f"{path} is no folder: give one with a folder of images for each class")
        paths = list_images(path)
        labels = [_find_class(one.parent.name, form, str(one)) for one in paths]
        return Split(encode_images(paths, form), torch.tensor(labels))
    if not path.is_file():
        raise DataError(f"the file {path} does not exist")
    if find_format(path) is None:
        raise DataError(f"{path} ends in none of {', '.join(FORMATS)}: save it as one of them")
    rows = [row for row in number_labelled_texts(path, text_column, label_column) if row[1]]
    if not rows:
        raise DataError(f"{path} holds no rows: there is nothing to evaluate")
    labels = [_find_class(label, form, f"{path}, line {line}") for line, _, label in rows]
    return Split(encode_texts([text for _, text, _ in rows], form), torch.tensor(labels))


def _find_class(label: str, form: InputForm, where: str) -> int:
    if label not in form.classes:
        raise DataError(
            f"{where}: {label!r} is no class of the model: give one of {', '.join(form.classes)}"
        )
    return form.classes.index(label)
