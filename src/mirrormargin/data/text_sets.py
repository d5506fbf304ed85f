"""The named data sets of texts: what is read, how it is split, what is dropped.

Nothing that would let a model know its test is left in training: a text, film or premise that is in
one split is in no split before it (test, then validation, then training).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mirrormargin.data.dataset import compute_share, normalize
from mirrormargin.data.glue_sets import (
    RTE_CLASSES,
    read_cola,
    read_mrpc,
    read_rte,
    read_sst2_sentences,
)
from mirrormargin.data.text_files import Row, Texts, read_rows

__all__ = ["TEXT_SETS", "TextSet"]

Parts = dict[str, Texts]

NLI_CLASSES = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class TextSet:
    """A named data set of texts.

    Attributes:
        classes: Names by number.
        read: From the paths of its files to its splits and a note.
        clean: What is done to a text as it stands in those files.
    """

    classes: tuple[str, ...]
    read: Callable[[list[Path]], tuple[Parts, str]]
    clean: Callable[[str], str] = str


def clean_imdb(text: str) -> str:
    """Line breaks as blanks."""
    return text.replace("<br />", " ")


def read_imdb(paths: list[Path]) -> tuple[Parts, str]:
    """Film reviews; validation is about a tenth of the films of the official training part."""
    whole, test = (read_rows(path) for path in paths)
    own = _drop(whole, "text", test)
    held = [row for row in own if compute_share(row["movie"]) < 0.1]
    kept = [row for row in own if compute_share(row["movie"]) >= 0.1]
    train = _drop(kept, "text", held)
    parts = {
        name: Texts([clean_imdb(row["text"]) for row in rows], _get_labels(rows))
        for name, rows in (("train", train), ("validation", held), ("test", test))
    }
    note = (
        "IMDB film reviews (Maas et al. 2011), the labelled part. Test is the official test part"
        f" ({len(test):,}). Validation is {len(held):,} reviews of a tenth of the films of the"
        " official training part, chosen by a hash of the film; no film is in both. Dropped from"
        f" training and validation: {len(whole) - len(own)} reviews whose text is also in the test"
        f" part; from training {len(kept) - len(train)} whose text is also in validation. Line"
        " breaks (<br />) are read as blanks."
    )
    return parts, note


def read_sst2(paths: list[Path]) -> tuple[Parts, str]:
    """Phrases of film reviews; validation is a twentieth of the training texts."""
    whole, test = (read_rows(path) for path in paths)
    own = _drop(whole, "text", test)
    held = [row for row in own if compute_share(normalize(row["text"])) < 0.05]
    train = [row for row in own if compute_share(normalize(row["text"])) >= 0.05]
    parts = {
        name: Texts([row["text"] for row in rows], _get_labels(rows))
        for name, rows in (("train", train), ("validation", held), ("test", test))
    }
    note = (
        "SST-2 of GLUE (Socher et al. 2013), phrases and sentences of film reviews. Test is the"
        f" official development part ({len(test)}): labels of the official test part are not"
        f" published. Validation is {len(held):,} texts of the training part, chosen by a hash of"
        " the text; phrases of the same sentence may be in training, so that it is easier than"
        f" test. Dropped from training: {len(whole) - len(own)} texts that are also in test."
    )
    return parts, note


def read_mnli(paths: list[Path]) -> tuple[Parts, str]:
    """Pairs of sentences, all of them; validation is a twentieth of the training premises."""
    whole, test = (read_rows(path) for path in paths)
    return _split_mnli(whole, test, f"all {len(whole):,} training pairs")


def read_mnli_subset(paths: list[Path]) -> tuple[Parts, str]:
    """Those training pairs of the subset whose label cannot be told from where they came from."""
    whole, test = (read_rows(path) for path in paths)
    balanced = [row for row in whole if row["balanced"]]
    return _split_mnli(
        balanced,
        test,
        f"a subset of {len(balanced):,} training pairs with equally many of each class, not a"
        " uniform sample of the official 392,702",
    )


def _split_mnli(whole: list[Row], test: list[Row], what: str) -> tuple[Parts, str]:
    own = _drop(whole, "premise", test)
    held = [row for row in own if compute_share(normalize(row["premise"])) < 0.05]
    train = [row for row in own if compute_share(normalize(row["premise"])) >= 0.05]
    parts = {
        name: Texts(
            [row["premise"] for row in rows],
            [NLI_CLASSES.index(row["label"]) for row in rows],
            [row["hypothesis"] for row in rows],
        )
        for name, rows in (("train", train), ("validation", held), ("test", test))
    }
    note = (
        f"MultiNLI (Williams et al. 2018), {what}. Test is the official matched development part"
        f" ({len(test):,}). Validation is {len(held):,} pairs, chosen by a hash of the premise; no"
        f" premise is in both. Dropped from training: {len(whole) - len(own)} pairs whose premise"
        " is also in test."
    )
    return parts, note


def read_civil(paths: list[Path]) -> tuple[Parts, str]:
    """Comments on news in the official splits; toxic if half of the annotators said so."""
    train, held, test = (read_rows(path) for path in paths)
    own_held = _drop(held, "text", test)
    own = _drop(train, "text", [*held, *test])
    note = (
        "Civil Comments (Borkan et al. 2019), official splits; toxic if at least half of the"
        f" annotators said so. Dropped: {len(train) - len(own):,} training and"
        f" {len(held) - len(own_held):,} validation comments whose text is also in a later split."
    )
    return _make_civil(own, own_held, test), note


def read_civil_subset(paths: list[Path]) -> tuple[Parts, str]:
    """Comments on news; a tenth each for validation and test."""
    whole = read_rows(paths[0])
    rows = list({normalize(row["text"]): row for row in reversed(whole)}.values())[::-1]
    shares = [compute_share(normalize(row["text"])) for row in rows]
    train, held, test = (
        [row for row, share in zip(rows, shares, strict=True) if low <= share < high]
        for low, high in ((0.2, 1.0), (0.1, 0.2), (0.0, 0.1))
    )
    note = (
        f"Civil Comments (Borkan et al. 2019), a subset of {len(whole):,} comments, about half of"
        " them toxic (of all comments, 8% are): easier than the original, and without the official"
        " splits. Training, validation and test are about 80%, 10% and 10%, chosen by a hash of the"
        f" text. Dropped: {len(whole) - len(rows)} texts that were there twice, up to capital"
        " letters and blanks."
    )
    return _make_civil(train, held, test), note


def _make_civil(*rows: list[Row]) -> Parts:
    return {
        name: Texts([row["text"] for row in part], [int(row["toxic"]) for row in part])
        for name, part in zip(("train", "validation", "test"), rows, strict=True)
    }


def _drop(rows: list[Row], field: str, others: list[Row]) -> list[Row]:
    """Those rows whose field is in none of the others, whatever the case of its letters."""
    seen = {normalize(row[field]) for row in others}
    return [row for row in rows if normalize(row[field]) not in seen]


def _get_labels(rows: list[Row]) -> list[int]:
    return [int(row["label"]) for row in rows]


TEXT_SETS: dict[str, TextSet] = {
    "imdb": TextSet(("negative", "positive"), read_imdb, clean_imdb),
    "sst2": TextSet(("negative", "positive"), read_sst2),
    "sst2-sentences": TextSet(("negative", "positive"), read_sst2_sentences),
    "cola": TextSet(("unacceptable", "acceptable"), read_cola),
    "mrpc": TextSet(("different", "equivalent"), read_mrpc),
    "rte": TextSet(RTE_CLASSES, read_rte),
    "mnli-subset": TextSet(NLI_CLASSES, read_mnli_subset),
    "mnli": TextSet(NLI_CLASSES, read_mnli),
    "civil-subset": TextSet(("not toxic", "toxic"), read_civil_subset),
    "civil": TextSet(("not toxic", "toxic"), read_civil),
}
