"""A training of the lab that can be stopped at any time: saved now and then, and on a signal.

An interrupt of the library's loop leaves a record that can be resumed to the same bits. Here the
callback for progress interrupts it whenever a save is due, or a signal has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.interrupts import NotedSignals
from mirrormargin.cli.terminal import Progress
from mirrormargin.errors import TrainingInterrupted

if TYPE_CHECKING:
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["train_safely"]

SAVE_EVERY = 60.0  # seconds
MOST_SAVING = 0.05  # share of the time that saving may take

Callback = Callable[[int, int], None]


def train_safely(
    start: Callable[[Callback], AttentionRecord],
    resume: Callable[[AttentionRecord, Callback], AttentionRecord],
    folder: Path | None,
    quiet: bool,
) -> AttentionRecord:
    """Train; with a folder the record is saved there, complete or not.

    Args:
        start: Begins the training.
        resume: Continues from a record.
        folder: Where to save; None for nowhere.
        quiet: Whether to show no progress.

    Raises:
        TrainingInterrupted: On SIGINT or SIGTERM; with a folder, the record is then saved.
    """
    with Progress(1.0, "train", quiet) as progress:
        if folder is None:
            return start(lambda done, total: progress.update(_share(done, total)))
        signals = NotedSignals()
        watch = _Watch(progress, signals)
        with signals.listen():
            step = start
            while True:
                try:
                    record = step(watch)
                    break
                except TrainingInterrupted as interrupt:
                    record = interrupt.record
                    watch.save(record, folder)
                    if not watch.is_pause or signals.have_come:
                        raise
                    watch.is_pause = False
                    step = _bind(resume, record)
            watch.save(record, folder)
            return record


def _bind(
    resume: Callable[[AttentionRecord, Callback], AttentionRecord], record: AttentionRecord
) -> Callable[[Callback], AttentionRecord]:
    return lambda callback: resume(record, callback)


def _share(done: int, total: int) -> float:
    return done / total if total else 1.0


class _Watch:
    """The callback: shows progress, and interrupts when it is time to save or to stop."""

    def __init__(self, progress: Progress, signals: NotedSignals) -> None:
        self.progress, self.signals = progress, signals
        self.is_pause = False
        self._begun = False
        self._due = 0.0
        self._saved = 0

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(_share(done, total), "stopping" if self.signals.have_come else "")
        if not self._begun:
            # Before the first record there is nothing to save; and compiling is no training.
            self._begun, self._saved = True, done
            self._due = time.monotonic() + SAVE_EVERY
            return
        # A piece of the work may be less than a step: stopping at every one would take forever.
        has_moved = self._saved < done < total
        must_end = self.signals.have_come
        self.is_pause = not must_end and has_moved and time.monotonic() >= self._due
        if self.is_pause:
            self._saved = done
        if must_end or self.is_pause:
            raise KeyboardInterrupt

    def save(self, record: Any, folder: Path) -> None:
        begin = time.monotonic()
        record.save(folder)
        end = time.monotonic()
        self._due = end + max(SAVE_EVERY, (end - begin) / MOST_SAVING)
