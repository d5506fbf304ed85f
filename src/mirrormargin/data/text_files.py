"""Files of texts: lines of JSON, tables, both plain or compressed, and splits of your own file.

    reviews.jsonl             {"text": "...", "label": "good"}, one object a line
    reviews.csv, reviews.tsv  a first line with the names of the columns
    reviews.csv.gz, .csv.xz   any of these, compressed

Your own file is split by a hash of the text within each class: about a tenth for test, a tenth for
validation, at least one of each. With a file of test texts beside it there is no tenth for test.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mirrormargin.arguments import show
from mirrormargin.data.dataset import (
    check_encodable,
    check_label,
    normalize,
    shuffle,
    split_classes,
)
from mirrormargin.data.files import BLOCK
from mirrormargin.errors import DataError, suggest
from mirrormargin.runs import check_unpacked, parse_json

__all__ = [
    "FORMATS",
    "OwnTexts",
    "Row",
    "Texts",
    "find_format",
    "number_labelled_texts",
    "number_rows",
    "number_unlabelled_texts",
    "read_cells",
    "read_own_texts",
    "read_rows",
]

FORMATS = (".jsonl", ".csv", ".tsv")
COMPRESSIONS = {".gz": gzip.open, ".xz": lzma.open}

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


@dataclass(frozen=True)
class OwnTexts:
    """What a file of your own holds, split.

    Attributes:
        splits: The texts of ``train``, ``validation`` and ``test``.
        classes: Their names, by number.
        dropped: Why rows were dropped, each reason with its number of rows; reasons without any
            are left out.
        note: In words: what it is, how it was split, what was dropped.
    """

    splits: dict[str, Texts]
    classes: tuple[str, ...]
    dropped: dict[str, int]
    note: str


def find_format(path: str | Path) -> str | None:
    """One of ``FORMATS`` by the end of a name, compressed or not; None for any other file."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in FORMATS else None


@contextmanager
def _open_text(path: Path, **options: Any) -> Iterator[TextIO]:
    """Open a text file, compressed or not.

    Raises:
        DataError: If it cannot be read, or is damaged.
    """
    unpack = COMPRESSIONS.get(path.suffix.lower())
    try:
        with open(path, "rb") as file:
            if unpack is not None:
                file = io.BufferedReader(_Unpacking(path, unpack(file)), BLOCK)
            with io.TextIOWrapper(file, **options) as text:
                yield text
    except (lzma.LZMAError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


class _Unpacking(io.RawIOBase):
    """What a compressed file holds, as long as it is not out of proportion."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        self._packed, self._unpacked = path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)
        self._unpacked += size
        check_unpacked(self._path, self._unpacked, self._packed, error=DataError)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


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
        with _open_text(path, encoding="utf-8") as file:
            for line, text in enumerate(file, 1):
                if not text.strip():
                    continue
                row = _parse(path, line, text)
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {line}: not a JSON object but {text[:40]!r}")
                yield line, row
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {line}: not UTF-8: {error.reason}") from error


def read_cells(path: Path, num_columns: int) -> list[list[str]]:
    """The rows of a table as GLUE has them: tabs between cells, and quotes that mean nothing.

    Raises:
        DataError: If the file cannot be read, or a row has another number of cells.
    """
    rows: list[list[str]] = []
    try:
        # Some of them begin with a mark that says they are UTF-8.
        with _open_text(path, encoding="utf-8-sig", newline="\n") as file:
            for line, text in enumerate(file, 1):
                cells = text.rstrip("\r\n").split("\t")
                if len(cells) != num_columns:
                    raise DataError(
                        f"{path}, line {line}: it has {len(cells)} cells, not {num_columns}"
                    )
                rows.append(cells)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {len(rows)}: not UTF-8: {error.reason}") from error
    return rows


def _parse(path: Path, line: int, text: str) -> Any:
    try:
        return parse_json(text, encodable=False)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {line}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise DataError(f"{path}, line {line}: not JSON that can be read: {error}") from error


def read_own_texts(
    path: Path, text_column: str, label_column: str, test_path: Path | None = None
) -> OwnTexts:
    """Read and split a file of your own.

    Args:
        path: The file.
        text_column: Where the text is in a row.
        label_column: Where its class is.
        test_path: A second file, all of which is for test; what both hold is dropped from the
            first. None: a tenth of the first is for test.

    Raises:
        DataError: If a row lacks a column, or there are too few rows or classes.
    """
    rows, dropped = _read_distinct(path, text_column, label_column)
    held: dict[str, tuple[str, str]] = {}
    if test_path is not None:
        held, dropped_there = _read_distinct(test_path, text_column, label_column)
        if not held:
            raise DataError(f"{test_path} holds no texts: give some to test on")
        for reason, number in dropped_there.items():
            dropped[f"{reason} in {test_path.name}"] = number
        num_shared = len(rows.keys() & held.keys())
        rows = {key: pair for key, pair in rows.items() if key not in held}
        if num_shared and not rows:
            raise DataError(
                f"every text of {path} is also in {test_path}, given as --test-data (test_data"
                " in Python): give another file, or leave it out and a tenth is for test"
            )
        if num_shared:
            dropped[f"in {test_path.name} too"] = num_shared
    texts, labels = ([pair[side] for pair in rows.values()] for side in (0, 1))
    classes, splits = split_classes(labels, list(rows), path, with_test=test_path is None)
    parts = {
        name: Texts([texts[i] for i in chosen], [classes.index(labels[i]) for i in chosen])
        for name, chosen in splits.items()
    }
    if test_path is not None:
        for _, label in held.values():
            if label not in classes:
                raise DataError(
                    f"{test_path} has the class {label!r}, which {path} does not have: give one of"
                    f" {', '.join(classes)}"
                )
        parts["test"] = Texts(
            [text for text, _ in held.values()],
            [classes.index(label) for _, label in held.values()],
        )
    where = "About a tenth of each class is test, a tenth validation,"
    if test_path is not None:
        where = f"Test is {test_path.name}. About a tenth of each class is validation,"
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
    note = (
        f"{path.name}: {len(texts):,} texts of {len(classes)} classes. {where} chosen by a hash of"
        f" the text. Dropped: {reasons or 'nothing'}."
    )
    return OwnTexts(parts, classes, dropped, note)


def _read_distinct(
    path: Path, text_column: str, label_column: str
) -> tuple[dict[str, tuple[str, str]], dict[str, int]]:
    """Text and label by normalised text, and how many rows were dropped for which reason."""
    chosen: dict[str, tuple[str, str]] = {}
    num_empty = num_equal = num_conflicts = 0
    for _, text, label in number_labelled_texts(path, text_column, label_column):
        if not text:
            num_empty += 1
            continue
        key = normalize(text)
        num_equal += key in chosen
        num_conflicts += chosen.setdefault(key, (text, label))[1] != label
    conflicts = f" ({num_conflicts:,} of them with another label)" if num_conflicts else ""
    reasons = {"empty": num_empty, f"repeated{conflicts}": num_equal}
    return chosen, {reason: number for reason, number in reasons.items() if number}


def number_labelled_texts(
    path: Path, text_column: str, label_column: str
) -> Iterator[tuple[int, str, str]]:
    """The number of the line, the text and the label of each row.

    A row without a text has ``""``, and its label is not looked at.

    Raises:
        DataError: If a row lacks a column, or has a label that names no class.
    """
    for line, row in _number_any(path):
        text = _get_text(row, text_column, path, line)
        label = _get(row, label_column, "label_column", path, line)
        if not text and label is not None:
            yield line, "", ""
            continue
        if isinstance(label, float | list | dict) or label is None or not str(label).strip():
            raise DataError(
                f"{path}, line {line}: {label_column!r} is {show(label)}; give the name or number"
                " of a class"
            )
        yield line, text, check_label(str(label).strip(), f"{path}, line {line}: {label_column!r}")


def number_unlabelled_texts(path: Path, text_column: str) -> Iterator[tuple[int, str]]:
    """The number of each row, from 1 below the names of columns, and its text, "" if it has none.

    No labels are needed.

    Raises:
        DataError: If a row lacks the column.
    """
    for number, (line, row) in enumerate(_number_any(path), 1):
        yield number, _get_text(row, text_column, path, line)


def _number_any(path: Path) -> Iterator[tuple[int, Row]]:
    return number_rows(path) if find_format(path) == ".jsonl" else _number_table(path)


def _get_text(row: Row, column: str, path: Path, line: int) -> str:
    """The text of a row, "" if it has none."""
    text = _get(row, column, "text_column", path, line)
    if text is None or (isinstance(text, str) and not text.strip()):
        return ""
    if not isinstance(text, str):
        raise DataError(f"{path}, line {line}: {column!r} is {show(text)}, not a text")
    check_encodable(text, f"{path}, line {line}: {column!r}")
    return text


def _get(row: Row, column: str, option: str, path: Path, line: int) -> Any:
    if column not in row:
        raise DataError(f"{path}, line {line}: {_explain_absence(row, column, option, path)}")
    return row[column]


def _explain_absence(row: Row, column: str, option: str, path: Path) -> str:
    """That a column is absent, and why that may be."""
    names = [str(name) for name in row if name is not None]
    what = f"there is no {column!r}, only {', '.join(map(repr, names)) or 'nothing'}"
    if len(names) == 1 and find_format(path) != ".jsonl":
        is_tabbed = find_format(path) == ".tsv"
        for separator, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
            if separator in names[0]:
                own = "a tab" if is_tabbed else "a comma"
                better = "" if is_tabbed else " (a tab in a file .tsv)"
                return f"{what}; its columns are separated by {name}, but must be by {own}{better}"
    near = suggest(column, names, most=1, otherwise="")
    advice = f"name the column with --{option.replace('_', '-')} ({option} in Python)"
    return " ".join(part for part in (f"{what};", near, advice) if part)


def _number_table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with the numbers of their (last) lines."""
    delimiter = "\t" if find_format(path) == ".tsv" else ","
    line = 1
    try:
        # Tables from spreadsheets begin with a mark that says they are UTF-8.
        with _open_text(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            names = list(reader.fieldnames or ())
            if twice := [name for name in names if names.count(name) > 1]:
                raise DataError(
                    f"{path} has the column {twice[0]!r} more than once: rename or remove one"
                )
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
