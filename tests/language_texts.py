"""A small made-up language for tests: words follow each other by a rule that can be learnt."""

from __future__ import annotations

import numpy as np
import torch

from mirrormargin.data import DataSet
from mirrormargin.data.language_sets import cover_text, make_windows
from mirrormargin.data.language_tokens import Characters

WORDS = ("ann", "bob", "sees", "hears", "the", "cat", "dog", "and", "then")


def make_text(num_words: int, seed: int = 0) -> str:
    """Words in an order that mostly goes round; every ninth word ends a line."""
    rng = np.random.default_rng(seed)
    words, k = [], 0
    for index in range(num_words):
        k = (k + 1) % len(WORDS) if rng.random() < 0.9 else int(rng.integers(len(WORDS)))
        words.append(WORDS[k] + ("\n" if index % 9 == 8 else " "))
    return "".join(words)


def make_language_data(length: int = 16, num_words: int | None = None) -> DataSet:
    """A data set of characters with all three splits."""
    texts = {"train": make_text(1500), "validation": make_text(300, 1), "test": make_text(200, 2)}
    tokenizer = Characters(sorted(set(texts["train"])))
    tokens = {part: torch.from_numpy(tokenizer.encode(text)) for part, text in texts.items()}
    first = tokenizer.vocabulary.index("\n")
    return DataSet(
        name="made up",
        kind="language",
        classes=(),
        shape=(length,),
        vocabulary=tokenizer.vocabulary,
        tokenizer="characters",
        train=make_windows(tokens["train"], length),
        validation=cover_text(tokens["validation"], length, first, num_words),
        test=cover_text(tokens["test"], length, first),
        sha256={"made up": "0" * 64},
        note="",
    )
