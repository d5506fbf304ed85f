"""Rows of metrics: one JSON object a line, and TensorBoard events if they are asked for.

A training that is resumed cuts off the rows that are newer than its checkpoint, because it writes
them again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mirrormargin.errors import TrainingError

__all__ = ["MetricsFile", "read_rows"]


class MetricsFile:
    """A file of rows, open for writing.

    Args:
        path: The file; made if it does not exist.
        size: How many bytes of what is there belong to the checkpoint; the rest is cut off.
        step: The checkpoint's step; TensorBoard's later events are hidden.
        board: A folder for TensorBoard's events; None for no events.

    Raises:
        TrainingError: If the file is shorter than that, or TensorBoard is not installed.
    """

    def __init__(self, path: Path, size: int = 0, step: int = 0, board: Path | None = None) -> None:
        self._file = open(path, "ab")  # noqa: SIM115 (closed by __exit__)
        if os.fstat(self._file.fileno()).st_size < size:
            self._file.close()
            raise TrainingError(f"{path} is shorter than its checkpoint says: it was cut off")
        self._file.truncate(size)
        self._board: Any = None
        if board is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                self._file.close()
                raise TrainingError(
                    "TensorBoard is not installed: pip install tensorboard, or leave it out"
                ) from error
            self._board = SummaryWriter(str(board), purge_step=step + 1)

    def write(self, kind: str, step: int, row: dict[str, Any]) -> None:
        """Append one row."""
        line = json.dumps({"kind": kind, "step": step, **row}) + "\n"
        self._file.write(line.encode())
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, list):  # by layer
                    for layer, one in enumerate(value):
                        self._board.add_scalar(f"{kind}/{name}/{layer}", one, step)
                elif name != "epoch":
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> int:
        """Bring all rows to disk and return their size in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._board is not None:
            self._board.flush()
        return os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a file; a last line that was cut off is left out.

    Raises:
        TrainingError: If the file cannot be read, or another line is damaged.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise TrainingError(f"{path} is damaged in line {number}") from None
    return rows
