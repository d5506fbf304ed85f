"""Trackers: where the metrics of a training go beside its folder, such as TensorBoard or MLflow.

    start(folder, settings, step)     {"optimizer.lr": 0.001, ...}, before the first row
    log_metrics(step, values)         {"epoch/validation_accuracy": 91.2, ...}, row by row
    finish(outcome)                   "finished", "interrupted" or "failed"

Anything with these methods is a tracker. The folder's own metrics.jsonl has every row whatever
becomes of a tracker: one that fails on the way is left out from there on, with a warning, and the
training continues. A training that is resumed tells its rows again from the first one, so that a
tracker can add those it lacks.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from mirrormargin.arguments import show
from mirrormargin.errors import MirrorMarginWarning, TrainingError
from mirrormargin.training.folder_files import BOARD

__all__ = ["Outcome", "TensorBoardTracker", "Tracker", "Tracking"]

Outcome = Literal["finished", "interrupted", "failed"]


@runtime_checkable
class Tracker(Protocol):
    """What a tracker does; its methods may raise whatever they like."""

    def start(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        """Begin, or continue what was begun for this folder. An error ends the training.

        Args:
            folder: Of the training, where the tracker may keep what it has to remember.
            settings: The configuration, by the names that ``--set`` takes.
            step: The checkpoint that a training resumes from, 0 for a new one.
        """
        ...

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Take a row; after a resumption rows come again, with the same values."""
        ...

    def finish(self, outcome: Outcome) -> None:
        """End, until the training is resumed."""
        ...


class TensorBoardTracker:
    """Writes events of TensorBoard to the folder: ``tensorboard --logdir runs`` shows them."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise TrainingError(
                "TensorBoard is not installed: pip install tensorboard, or leave it out"
            ) from error
        self._make, self._writer, self._step = SummaryWriter, None, -1

    def start(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        """Hide the events after the checkpoint, which come again."""
        board = folder / BOARD
        self._step = step if step and board.is_dir() else -1
        # Files are read in the order of their names, which begin with the second of their making.
        while list(board.glob(f"*.{int(time.time()):010d}.*")):
            time.sleep(0.01)
        self._writer = self._make(str(board), purge_step=self._step + 1)
        if self._step < 0:
            rows = "\n".join(f"    {name}: {json.dumps(one)}" for name, one in settings.items())
            self._writer.add_text("settings", rows, 0)

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write a row at once, so that none before a checkpoint is lost by a kill."""
        if self._writer is not None and step > self._step:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def finish(self, outcome: Outcome) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


class Tracking:
    """The trackers of one training.

    Args:
        trackers: Of which each is told everything until it fails.
        folder: Of the training.
        settings: Of the training.
        step: Of the checkpoint.

    Raises:
        TrainingError: If one of them is no tracker.
    """

    def __init__(
        self, trackers: Sequence[Tracker], folder: Path, settings: Mapping[str, Any], step: int
    ) -> None:
        for tracker in trackers:
            if isinstance(tracker, type) or not isinstance(tracker, Tracker):
                raise TrainingError(
                    f"{show(tracker)} among the trackers is none: give objects with the methods"
                    " start, log_metrics and finish, such as TensorBoardTracker()"
                )
        self._waiting, self._active = trackers, list[Tracker]()
        self._beginning = folder, settings, step

    def start(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Start all of them, and tell the rows that there are."""
        for tracker in self._waiting:
            tracker.start(*self._beginning)
            self._active.append(tracker)
        for row in rows if self._active else ():
            self.tell(row)

    def tell(self, row: Mapping[str, Any]) -> None:
        """Pass on a row as the metrics file has it."""
        values = _name_values(row)
        for tracker in list(self._active):
            try:
                tracker.log_metrics(row["step"], values)
            except Exception as error:
                self._active.remove(tracker)
                warnings.warn(
                    f"{type(tracker).__name__} has failed at step {row['step']} and is left out:"
                    f" {error}. metrics.jsonl has all rows, and a resumed training sends them"
                    " again",
                    MirrorMarginWarning,
                    stacklevel=2,
                )

    def finish(self, outcome: Outcome) -> None:
        """End those that have not failed."""
        for tracker in self._active:
            try:
                tracker.finish(outcome)
            except Exception as error:
                warnings.warn(
                    f"{type(tracker).__name__} could not be ended: {error}",
                    MirrorMarginWarning,
                    stacklevel=2,
                )
        self._active = []


def _name_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by kind and name; those of a list, one for each layer, by its index."""
    values: dict[str, float] = {}
    for name, value in row.items():
        if name in ("kind", "step", "epoch"):
            continue
        for label, one in enumerate(value) if isinstance(value, list) else [("", value)]:
            values[f"{row['kind']}/{name}" + (f"/{label}" if label != "" else "")] = float(one)
    return values
