"""Tasks of GLUE on small training sets: CoLA, MRPC and RTE, and SST-2 split by sentence.

Texts that pairs have in common tie them together: two rows are in one cluster if a chain of shared
texts leads from one to the other, and a cluster is on one side of every split. SST-2 is made of
phrases of sentences: there validation is whole sentences, and training has neither a phrase of one
of them nor a text around one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mirrormargin.data.dataset import compute_share, normalize
from mirrormargin.data.text_files import Row, Texts, read_cells, read_rows

__all__ = ["RTE_CLASSES", "read_cola", "read_mrpc", "read_rte", "read_sst2_sentences"]

Parts = dict[str, Texts]
Labelled = tuple[tuple[str, ...], int]  # a text or a pair of them, and the number of its class

RTE_CLASSES = ("entailment", "not_entailment")
HELD = 0.1  # share of the clusters, or sentences, of a training part that is for validation


def read_cola(paths: list[Path]) -> tuple[Parts, str]:
    """Sentences that linguists find acceptable or not."""
    whole, test = ([((row[3],), int(row[1])) for row in read_cells(path, 4)] for path in paths)
    own = _drop(whole, test)
    train, held = _hold_out(own)
    note = (
        "CoLA of GLUE (Warstadt et al. 2019). Test is the official development part"
        f" ({len(test):,}): labels of the official test part are not published. Validation is"
        f" {len(held):,} sentences of the training part, chosen by a hash of the text. Dropped from"
        f" training and validation: {len(whole) - len(own)} that are also in test."
    )
    return _make_parts(train, held, test), note


def read_mrpc(paths: list[Path]) -> tuple[Parts, str]:
    """Pairs of sentences that mean the same or not."""
    whole, whole_held, test = (
        [((row[3], row[4]), int(row[0])) for row in read_cells(path, 5)[1:]] for path in paths
    )
    held = _drop(whole_held, test)
    train = _drop(whole, [*held, *test])
    note = (
        f"MRPC of GLUE (Dolan and Brockett 2005). Test is the official test part ({len(test):,}),"
        f" validation the official development part. Dropped: {len(whole) - len(train)} of"
        f" {len(whole):,} training pairs and {len(whole_held) - len(held)} of {len(whole_held)}"
        " validation pairs with a sentence that is also in a later split."
    )
    return _make_parts(train, held, test), note


def read_rte(paths: list[Path]) -> tuple[Parts, str]:
    """Pairs of a text and a statement that follows from it or not."""
    whole, test = (
        [((row[1], row[2]), RTE_CLASSES.index(row[3])) for row in read_cells(path, 4)[1:]]
        for path in paths
    )
    own = _drop(whole, test)
    train, held = _hold_out(own)
    note = (
        "RTE of GLUE (Dagan et al. 2006 and its successors). Test is the official development part"
        f" ({len(test)}): labels of the official test part are not published. Validation is"
        f" {len(held)} pairs of the training part, chosen by a hash; no text or statement is in"
        f" both. Dropped from training and validation: {len(whole) - len(own)} pairs with a text or"
        " a statement that is also in test."
    )
    return _make_parts(train, held, test), note


def read_sst2_sentences(paths: list[Path]) -> tuple[Parts, str]:
    """Phrases of film reviews to learn from, whole sentences to validate and test."""
    whole, test = (read_rows(path) for path in paths)
    sentences = _find_sentences(whole)
    seen = {_split(row["text"]) for row in test}
    held = {
        words
        for words in sentences
        if compute_share("".join(words)) < HELD and words not in seen and not _contains(words, seen)
    }
    known = held | seen
    parts_of_known = known | {part for words in known for part in _list_parts(words)}
    train: list[Labelled] = []
    validation: dict[tuple[str, ...], Labelled] = {}
    for row in whole:
        words, example = _split(row["text"]), ((row["text"],), int(row["label"]))
        if words in held:
            validation.setdefault(words, example)
        elif words not in parts_of_known and not _contains(words, seen):
            train.append(example)
    num_dropped = len(whole) - len(train) - len(validation)
    note = (
        "SST-2 of GLUE (Socher et al. 2013), split by sentence. Test is the official development"
        f" part ({len(test)}): labels of the official test part are not published. Validation is"
        f" {len(validation)} whole sentences of the training part, chosen by a hash of the text."
        f" Training is {len(train):,} phrases and sentences. Dropped from training:"
        f" {num_dropped:,} that contain a sentence of validation or test, or are contained in one,"
        " single words among them."
    )
    tests: list[Labelled] = [((row["text"],), int(row["label"])) for row in test]
    return _make_parts(train, list(validation.values()), tests), note


def _make_parts(*rows: list[Labelled]) -> Parts:
    return {
        name: Texts(
            [texts[0] for texts, _ in part],
            [label for _, label in part],
            [texts[1] for texts, _ in part if len(texts) == 2],
        )
        for name, part in zip(("train", "validation", "test"), rows, strict=True)
    }


def _drop(rows: list[Labelled], others: list[Labelled]) -> list[Labelled]:
    """Those rows that have no text in common with the others, whatever the case of its letters."""
    seen = {normalize(text) for texts, _ in others for text in texts}
    return [row for row in rows if not any(normalize(text) in seen for text in row[0])]


def _hold_out(rows: list[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """Training and validation, each cluster on one side."""
    shares = [compute_share(key) for key in _name_clusters(rows)]
    train = [row for row, share in zip(rows, shares, strict=True) if share >= HELD]
    held = [row for row, share in zip(rows, shares, strict=True) if share < HELD]
    return train, held


def _name_clusters(rows: list[Labelled]) -> list[str]:
    """Of each row, the first text of its cluster in alphabetical order."""
    firsts: dict[str, str] = {}

    def find(text: str) -> str:
        while (first := firsts.setdefault(text, text)) != text:
            firsts[text] = firsts[first]
            text = first
        return text

    for texts, _ in rows:
        first, *others = sorted(find(normalize(text)) for text in texts)
        for other in others:
            firsts[other] = first
    return [find(normalize(texts[0])) for texts, _ in rows]


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.lower().split())


def _find_sentences(rows: list[Row]) -> list[tuple[str, ...]]:
    """The texts that are contained in no other one."""
    texts = dict.fromkeys(_split(row["text"]) for row in rows)
    inner: set[tuple[str, ...]] = set()
    for words in sorted(texts, key=len, reverse=True):
        if words not in inner:  # its parts are parts of the text around it
            inner.update(part for part in _list_parts(words) if part in texts)
    return [words for words in texts if words not in inner]


def _list_parts(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All runs of words that are shorter than the whole."""
    for length in range(1, len(words)):
        for start in range(len(words) - length + 1):
            yield words[start : start + length]


def _contains(words: tuple[str, ...], others: set[tuple[str, ...]]) -> bool:
    """Whether one of the others is a part of a text."""
    return any(part in others for part in _list_parts(words))
