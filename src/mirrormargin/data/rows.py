"""Rows of JSON, plain or compressed, and the texts of a split made of them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirrormargin.data.splitting import shuffle
from mirrormargin.errors import DataError

__all__ = ["Row", "Texts", "number_rows", "read_rows"]

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
