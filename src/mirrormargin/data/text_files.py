"""Files of texts: lines of JSON, plain or compressed, tables, and splits of a file of your own.

    reviews.jsonl             {"text": "...", "label": "good"}, one object a line
    reviews.csv, reviews.tsv  a first line with the names of the columns

Your own file is split by a hash of the text within each class: about a tenth for test, a tenth for
validation, at least one of each.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirrormargin.data.dataset import normalize, shuffle, split_classes
from mirrormargin.errors import DataError

__all__ = [
    "SUFFIXES",
    "Row",
    "Texts",
    "number_labelled_texts",
    "number_rows",
    "read_own_texts",
    "read_rows",
]

SUFFIXES = (".jsonl", ".csv", ".tsv")

Row = dict[str, Any]


@dataclass(frozen=True)
class Texts:
    """The texts of one split.

    Attributes:
        first: The texts, or the first ones of pairs.
        second: The second ones of pairs, else empty.
        labels: Numbers of classes.
    """

    first: list[str]
    labels: list[int]
    second: list[str] = field(default_factory=list)

    def shuffled(self) -> Texts:
        """In an order drawn with seed 0."""
        order = shuffle(range(len(self.labels)))
        return Texts(
            [self.first[i] for i in order],
            [self.labels[i] for i in order],
            [self.second[i] for i in order] if self.second else [],
        )


def read_rows(path: Path) -> list[Row]:
    """One object a line, see :func:`number_rows`."""
    return [row for _, row in number_rows(path)]


def number_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """One object a line, with the number of the line.

    Raises:
        DataError: If the file cannot be read, or a line is no JSON object.
    """
    line = 0
    try:
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
            for line, text in enumerate(file, 1):
                if not text.strip():
                    continue
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {line}: not a JSON object but {text[:40]!r}")
                yield line, row
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {line}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {line}: not UTF-8: {error.reason}") from error
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def read_own_texts(
    path: Path, text_column: str, label_column: str
) -> tuple[dict[str, Texts], str, tuple[str, ...]]:
    """The splits of a file, a note, and the names of the classes.

    Raises:
        DataError: If a row lacks a column or its text, or there are too few rows or classes.
    """
    chosen: dict[str, tuple[str, str]] = {}  # duplicates count once
    num_rows = num_conflicts = 0
    for _, text, label in number_labelled_texts(path, text_column, label_column):
        num_rows += 1
        num_conflicts += chosen.setdefault(normalize(text), (text, label))[1] != label
    texts, labels = ([pair[side] for pair in chosen.values()] for side in (0, 1))
    classes, splits = split_classes(labels, list(chosen), path)
    parts = {
        name: Texts([texts[i] for i in rows], [classes.index(labels[i]) for i in rows])
        for name, rows in splits.items()
    }
    note = (
        f"{path.name}: {len(texts):,} texts of {len(classes)} classes. About a tenth of each class"
        " is test, a tenth validation, chosen by a hash of the text. Dropped:"
        f" {num_rows - len(texts)} rows whose text was there before, up to capital letters and"
        f" blanks, {num_conflicts} of them with another label."
    )
    return parts, note, classes


def number_labelled_texts(
    path: Path, text_column: str, label_column: str
) -> Iterator[tuple[int, str, str]]:
    """The number of the line, the text and the label of each row.

    Raises:
        DataError: If a row lacks a column or its text.
    """
    rows = number_rows(path) if path.suffix.lower() == ".jsonl" else _number_table(path)
    for line, row in rows:
        text = _get(row, text_column, path, line)
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{path}, line {line}: {text_column!r} is {text!r}, not a text")
        label = _get(row, label_column, path, line)
        if isinstance(label, float | list | dict) or label is None or not str(label).strip():
            raise DataError(
                f"{path}, line {line}: {label_column!r} is {label!r}; give the name or number of a"
                " class"
            )
        yield line, text, str(label).strip()


def _get(row: dict[str, Any], column: str, path: Path, line: int) -> Any:
    if column not in row:
        there = ", ".join(repr(name) for name in row if name is not None) or "nothing"
        raise DataError(
            f"{path}, line {line}: there is no {column!r}, only {there}; name the columns with"
            " text_column and label_column (--text-column, --label-column)"
        )
    return row[column]


def _number_table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with the numbers of their (last) lines."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    line = 1
    try:
        # Tables from spreadsheets begin with a mark that says they are UTF-8.
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            for row in reader:
                line = reader.line_num
                if None in row:
                    raise DataError(
                        f"{path}, line {line}: there are more fields than the"
                        f" {len(reader.fieldnames or ())} columns: put quotes around texts with"
                        f" {delimiter!r} in them"
                    )
                yield line, row
    except csv.Error as error:
        raise DataError(f"{path}, after line {line}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {line}: not UTF-8: {error.reason}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
