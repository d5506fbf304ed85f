r"""Rows of metrics: one JSON object a line, which trackers are told as well.

    {"kind": "steps", "step": 2, "train_loss": 0.7, "checksum": "..."}

A checksum is over the row and the checksum of the row before, so that rows which were changed,
removed or reordered are noticed. A training that is resumed cuts off the rows that are newer than
its checkpoint, because it writes them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

from mirrormargin.errors import TrainingError
from mirrormargin.training.trackers import Tracking

__all__ = ["MetricsFile", "NoMetrics", "read_rows"]

# A row as it is written: what it says, and its checksum.
SEALED = re.compile(rb'(\{.*), "checksum": "([0-9a-f]{16})"\}')


class MetricsFile:
    """A file of rows, open for writing.

    Args:
        path: The file; made if it does not exist.
        size: How many bytes of what is there belong to the checkpoint; the rest is cut off.
        tracking: Who is told the rows, too, beginning with those that are there.

    Raises:
        TrainingError: If the file is shorter than that or damaged, or a tracker cannot start.
    """

    def __init__(self, path: Path, size: int = 0, tracking: Tracking | None = None) -> None:
        rows, self._sum = _read(path, size, whole=size) if size else ([], "")
        self._tracking = tracking
        self._file = open(path, "ab")  # noqa: SIM115 (closed by __exit__)
        self._file.truncate(size)
        if tracking is not None:
            try:
                tracking.start(rows)
            except BaseException as error:
                self.__exit__(type(error))
                raise

    def write(self, kind: str, step: int, row: dict[str, Any]) -> None:
        """Append one row."""
        row = {"kind": kind, "step": step, **row}
        text = json.dumps(row).encode()[:-1]
        self._sum = _chain(self._sum, text)
        self._file.write(text + f', "checksum": "{self._sum}"}}\n'.encode())
        if self._tracking is not None:
            self._tracking.tell(row)

    def flush(self) -> int:
        """Bring all rows to disk and return their size in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *error: Any) -> None:
        self._file.close()
        if self._tracking is not None:
            is_stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
            outcome = "finished" if kind is None else "interrupted" if is_stopped else "failed"
            self._tracking.finish(outcome)


class NoMetrics(MetricsFile):
    """What a process has that writes nothing, because another one does."""

    def __init__(self) -> None:
        pass

    def write(self, kind: str, step: int, row: dict[str, Any]) -> None:
        pass

    def flush(self) -> int:
        return 0

    def __exit__(self, kind: type[BaseException] | None = None, *error: Any) -> None:
        pass


def read_rows(path: Path, whole: int = 0) -> list[dict[str, Any]]:
    """All rows of a file; a last line that was cut off is left out.

    Rows of an earlier version have no checksum: they are taken as they are, with a warning.

    Args:
        path: The file.
        whole: How many bytes of it are known to have been written.

    Raises:
        TrainingError: If the file cannot be read, is shorter than that, or a row is damaged.
    """
    return _read(path, None, whole)[0]


def _read(path: Path, size: int | None, whole: int) -> tuple[list[dict[str, Any]], str]:
    """The rows of the first ``size`` bytes, of all if that is None, and the last checksum."""
    try:
        with open(path, "rb") as file:
            contents = file.read(size)
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error
    if len(contents) < whole:
        raise TrainingError(
            f"{path} is shorter than its checkpoint says: it was cut off; restore a copy, or train"
            " again with --overwrite"
        )
    rows, last, position, num_plain = [], "", 0, 0
    for number, line in enumerate(contents.splitlines(keepends=True), 1):
        position += len(line)
        try:
            row, last, is_plain = _read_row(line, last)
        except ValueError:
            if position == len(contents) > whole and not line.endswith(b"\n"):
                break  # the writer was killed
            raise TrainingError(
                f"{path} is damaged in line {number}: it is not what was written; restore a copy,"
                " or train again with --overwrite"
            ) from None
        rows.append(row)
        num_plain += is_plain
    if num_plain:
        warnings.warn(
            f"{num_plain} rows of {path} have no checksum, as those of earlier versions: damage"
            " would go unnoticed",
            stacklevel=4,
        )
    return rows, last


def _read_row(line: bytes, last: str) -> tuple[dict[str, Any], str, bool]:
    """A row, its checksum, and whether it has none. Raises a ValueError if it is damaged."""
    found = SEALED.fullmatch(line.removesuffix(b"\n"))
    if not line.endswith(b"\n") or (found is None and last):
        raise ValueError("it is cut off, or lacks its checksum")
    if found is not None:
        line, checksum = found[1] + b"}", found[2].decode()
        if checksum != _chain(last, found[1]):
            raise ValueError("its checksum is another")
        last = checksum
    row = json.loads(line)
    if not isinstance(row, dict) or not {"kind", "step"} <= row.keys():
        raise ValueError("it is no row")
    return row, last, found is None


def _chain(last: str, text: bytes) -> str:
    return hashlib.blake2b(last.encode() + text, digest_size=8).hexdigest()
