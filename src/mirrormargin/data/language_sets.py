r"""Data for language models: a text in windows of T tokens, each with the token that follows.

    training     every window of the text, one for each token that it can begin at
    evaluation   windows side by side, so that each token of the text is predicted exactly once,
                 from those before it in its window; the first one from an end of line

The label of token t is token t + 1. Where a label is IGNORED, nothing is predicted: in the last
window, which overlaps the one before it.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormargin.arguments import check_count
from mirrormargin.data.dataset import DataSet, InputForm, Split
from mirrormargin.data.files import Arrays, VerifiedFile, prepare
from mirrormargin.data.language_tokens import (
    END_OF_LINE,
    count_words,
    learn_pieces,
    make_tokenizer,
)
from mirrormargin.errors import DataError

__all__ = [
    "IGNORED",
    "LANGUAGE_SETS",
    "LanguageSet",
    "cover_text",
    "load_language_set",
    "make_windows",
    "read_text",
    "thin_windows",
]

IGNORED = -100  # the label that torch's cross-entropy leaves out
LENGTH = 64
VOCAB_SIZE = 4096
PARTS: tuple[str, ...] = ("train", "validation", "test")
SEPARATOR = "\0"  # between pieces of a vocabulary in the cache; in no text

Texts = dict[str, str]


@dataclass(frozen=True)
class LanguageSet:
    """A named text.

    Attributes:
        tokenizer: ``characters`` or ``pairs``.
        read: From the paths of its files to the text of each split and a note. The test split may
            be empty.
    """

    tokenizer: str
    read: Callable[[list[Path]], tuple[Texts, str]]


def load_language_set(
    name: str, files: list[VerifiedFile], length: int | None, vocab_size: int | None
) -> DataSet:
    """Make a data set of windows.

    Args:
        name: One of LANGUAGE_SETS.
        files: What it is read from.
        length: Tokens of a window; None for 64.
        vocab_size: Pieces of words; None for 4,096. Characters need no number.

    Raises:
        DataError: If a file cannot be read, or an option makes no sense.
    """
    chosen = LANGUAGE_SETS[name]
    if vocab_size is not None and chosen.tokenizer == "characters":
        raise DataError(f"vocab_size is for pieces of words, and {name} is read by characters")
    length = LENGTH if length is None else length
    size = VOCAB_SIZE if vocab_size is None else vocab_size
    sha256 = {file.name: file.sha256 for file in files}
    key: dict[str, Any] = {"name": name, "sha256": sha256}
    if chosen.tokenizer == "pairs":
        key["vocab_size"] = size
    arrays, note = prepare(key, lambda: _prepare(chosen, [file.path for file in files], size))
    vocabulary = tuple(arrays["vocabulary"].tobytes().decode().split(SEPARATOR))
    tokens = {part: torch.from_numpy(arrays[part].astype(np.int64)) for part in PARTS}
    first = vocabulary.index(END_OF_LINE)
    num_words = arrays["num_words"].tolist() if chosen.tokenizer == "pairs" else [None] * len(PARTS)
    validation, test = (
        cover_text(tokens[part], length, first, num_words[PARTS.index(part)])
        for part in ("validation", "test")
    )
    return DataSet(
        name=name,
        kind="language",
        classes=(),
        shape=(length,),
        vocabulary=vocabulary,
        tokenizer=chosen.tokenizer,
        train=make_windows(tokens["train"], length),
        validation=validation,
        test=test,
        sha256=sha256,
        note=f"{note} Windows of {length} tokens.",
    )


def _prepare(chosen: LanguageSet, paths: list[Path], vocab_size: int) -> tuple[Arrays, str]:
    texts, note = chosen.read(paths)
    if chosen.tokenizer == "characters":
        vocabulary = tuple(sorted(set("".join(texts.values())) | {END_OF_LINE}))
    else:
        vocabulary = learn_pieces(texts["train"], vocab_size)
    tokenizer = make_tokenizer(chosen.tokenizer, vocabulary)
    arrays: Arrays = {part: tokenizer.encode(texts[part]).astype(np.int32) for part in PARTS}
    arrays["vocabulary"] = np.frombuffer(SEPARATOR.join(vocabulary).encode(), np.uint8)
    arrays["num_words"] = np.array([count_words(texts[part]) for part in PARTS])
    counts = ", ".join(f"{len(arrays[part]):,} {part}" for part in PARTS if texts[part])
    return arrays, f"{note} Tokens: {counts}; {len(vocabulary):,} different ones."


def make_windows(tokens: Tensor, length: int) -> Split:
    """All windows of a text, to learn from; they share the memory of the text.

    Raises:
        DataError: If the text is no longer than a window.
    """
    check_count("length", length, hint="in tokens", error=DataError)
    if len(tokens) <= length:
        raise DataError(
            f"a text of {len(tokens):,} tokens has no window of {length} with a token after it:"
            " give a longer text, or a smaller length"
        )
    return Split(tokens[:-1].unfold(0, length, 1), tokens[1:].unfold(0, length, 1))


def thin_windows(windows: Split) -> Split:
    """Of all windows those side by side, so that each token but the last few is there once."""
    length = windows.inputs.shape[1]
    return Split(windows.inputs[::length], windows.labels[::length])


def cover_text(tokens: Tensor, length: int, first: int, num_words: int | None = None) -> Split:
    """Windows that predict each token of a text once, to evaluate on.

    Args:
        tokens: Of the text; none at all gives no windows.
        length: Tokens of a window.
        first: The token that comes before the text.
        num_words: Words of the text, for perplexity per word.
    """
    check_count("length", length, hint="in tokens", error=DataError)
    count = len(tokens)
    padding = max(length - count, 0) if count else 0
    inputs = torch.cat(
        [tokens.new_tensor([first]), tokens[:-1], tokens.new_full((padding,), first)]
    )
    labels = torch.cat([tokens, tokens.new_full((padding,), IGNORED)])
    starts = torch.arange(0, count, length).clamp(max=max(count - length, 0))
    rows = starts[:, None] + torch.arange(length)
    covered = labels[rows] if count else tokens.new_empty((0, length))
    if len(starts) > 1:
        overlap = int(starts[-2] + length - starts[-1])
        covered[-1, :overlap] = IGNORED
    return Split(inputs[rows], covered, num_words if count else None)


def read_text(path: Path, form: InputForm) -> Split:
    """A text file of your own, to evaluate a language model on.

    Raises:
        DataError: If it cannot be read, is empty, or has a character that the model does not know.
    """
    tokenizer = make_tokenizer(form.tokenizer, form.vocabulary)
    text = _read(path)
    ids = tokenizer.encode(text)
    if not len(ids):
        raise DataError(f"{path} is empty: there is nothing to evaluate")
    num_words = count_words(text) if form.tokenizer == "pairs" else None
    first = tokenizer.vocabulary.index(END_OF_LINE)
    return cover_text(torch.from_numpy(ids), form.shape[0], first, num_words)


def _read(path: Path) -> str:
    """A text in UTF-8, plain or with .xz; ends of lines stay as they are."""
    try:
        contents = path.read_bytes()
        return (lzma.decompress(contents) if path.suffix == ".xz" else contents).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8: {error.reason}") from error
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _read_shakespeare(paths: list[Path]) -> tuple[Texts, str]:
    """The last tenth is for validation, as in nanoGPT; there is no test part."""
    text = _read(paths[0])
    split = int(0.9 * len(text))
    texts = {"train": text[:split], "validation": text[split:], "test": ""}
    note = (
        "Tiny Shakespeare (Karpathy's char-rnn), by characters. Training is the first nine tenths,"
        " validation the last tenth, as in nanoGPT; there is no test part."
    )
    return texts, note


def _read_shakespeare_tested(paths: list[Path]) -> tuple[Texts, str]:
    """The last tenth is for tests, and the twentieth before it for validation."""
    texts, _ = _read_shakespeare(paths)
    first = texts["train"]
    split = len(first) - len(first) // 18
    parts = {"train": first[:split], "validation": first[split:], "test": texts["validation"]}
    note = (
        "Tiny Shakespeare (Karpathy's char-rnn), by characters. Test is the last tenth, which is"
        " nanoGPT's validation part; validation is the twentieth of the text before it."
    )
    return parts, note


def _read_wikitext2(paths: list[Path]) -> tuple[Texts, str]:
    texts = dict(zip(PARTS, map(_read, paths), strict=True))
    is_compact = paths[0].suffix == ".xz"
    order = (
        " Its training articles stand in another order than in the official file."
        if is_compact
        else ""
    )
    note = (
        "WikiText-2 (Merity et al. 2016), words of Wikipedia articles with <unk> for rare ones, in"
        f" the official splits.{order} Words are taken apart into pieces that were learnt from the"
        " training part, by which none is lost."
    )
    return texts, note


LANGUAGE_SETS: dict[str, LanguageSet] = {
    "shakespeare": LanguageSet("characters", _read_shakespeare),
    "shakespeare-tested": LanguageSet("characters", _read_shakespeare_tested),
    "wikitext2": LanguageSet("pairs", _read_wikitext2),
}
