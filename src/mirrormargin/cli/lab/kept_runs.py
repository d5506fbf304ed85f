r"""The runs of one command, kept in its folder: checked before the work, nothing lost by mistake.

FOLDER/run.json                  if there is one run
FOLDER/seed-1-p-1.75/run.json    if there are several

A training may be stopped at any time: it is saved about once a minute, and when a signal comes. To
save it, the progress callback raises KeyboardInterrupt inside the library's loop. The loop answers
with a record of what is done, which is written; without a signal the training then resumes from it,
to the same bits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.interrupts import NotedSignals
from mirrormargin.cli.terminal import Progress, say
from mirrormargin.errors import RunError, TrainingInterrupted

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem
    from mirrormargin.dynamics import AttentionRecord

__all__ = ["NOTES", "Destination", "name_run", "train_safely"]

NOTES = (
    "--out makes FOLDER a run if there is one result, and holds a folder such as seed-1-p-1.75 for"
    " each one if there are several."
)
NAME = re.compile(r"(seed-\d+-)?p-[\d.e+]+")  # what name_run makes
SAVE_EVERY = 60.0  # seconds
MOST_SAVING = 0.05  # share of the time that saving may take

Callback = Callable[[int, int], None]


class Destination:
    """The folder for the runs of one command, if they are kept.

    Args:
        folder: Where to keep them; None to keep nothing.
        kind: The kind of the runs, as in run.json.
        problem: The problem as the user named it.
        overwrite: Whether existing runs of this kind may be replaced.
    """

    def __init__(self, folder: Path | None, kind: str, problem: str, overwrite: bool) -> None:
        self.folder, self.kind, self.problem = folder, kind, problem
        self.overwrite = overwrite
        self.is_written = False
        self._old: list[Path] = []
        self._unfinished: list[Path] = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes from writing there until all runs are kept.

        Raises:
            RunError: If one is writing, the folder cannot be written, or it holds something that
                must not be lost.
        """
        if self.folder is None:
            yield
            return
        from mirrormargin.runs import RUN_FILE, check_writable, hold_folder

        check_writable(self.folder / RUN_FILE, make_folders=True)
        with hold_folder(self.folder):
            self._old = self._find_old(self.folder)
            if self._old and not self.overwrite:
                raise RunError(
                    f"{self.folder} holds a run already: add --overwrite to replace it, or choose"
                    " another folder"
                )
            yield

    def follow_each(
        self,
        label: str,
        problems: Sequence[tuple[int | None, AttentionProblem]],
        exponents: Sequence[float],
        follow: Callable[[AttentionProblem, float, Any], tuple[Any, dict[str, Any]]],
        quiet: bool,
    ) -> list[dict[str, Any]]:
        """Follow a curve for each problem and exponent, and keep it.

        Args:
            label: Label of the progress bar.
            problems: Each with its seed or None.
            exponents: Followed for every problem.
            follow: Takes a problem, an exponent and a callback for progress; returns a record, or
                None if there is no curve, and the numbers to show.
            quiet: Whether to show no progress.

        Returns:
            The numbers of each curve, with its seed.

        Raises:
            RunError: As :meth:`hold`.
        """
        with self.hold():
            jobs = [(seed, problem, p) for seed, problem in problems for p in exponents]
            rows, kept = [], set()
            with Progress(len(jobs), label, quiet) as progress:
                for index, (seed, problem, p) in enumerate(jobs):

                    def report(done: int, total: int, index: int = index, p: float = p) -> None:
                        progress.update(index + done / total, f"p = {p:g}")

                    record, row = follow(problem, p, report)
                    rows.append({"seed": seed, **row})
                    if self.folder is not None:
                        folder = self.folder if len(jobs) == 1 else self.folder / name_run(p, seed)
                        kept.add(folder)
                        if record is not None:
                            record.save(folder, {"problem": self.problem, "seed": seed})
                            self.is_written = True
            self._remove_old(kept)
            return rows

    def say_written(self) -> None:
        """Print where the runs are, if any was kept."""
        if self.is_written:
            say(f"wrote {self.folder}")

    def _remove_old(self, kept: set[Path]) -> None:
        """Remove the runs that were there before and have not been replaced."""
        from mirrormargin.runs import remove_run

        for old in (*self._old, *self._unfinished):
            if old not in kept:
                remove_run(old)

    def _find_old(self, folder: Path) -> list[Path]:
        """Folders of the runs that are there; anything else is an error."""
        from mirrormargin.runs import RUN_FILE

        old, self._unfinished = [], []
        for path in sorted(folder.iterdir()):
            if path.name == RUN_FILE:
                self._check_kind(path)
                old.append(folder)
            elif NAME.fullmatch(path.name) and (path / RUN_FILE).is_file():
                self._check_kind(path / RUN_FILE)
                old.append(path)
            elif NAME.fullmatch(path.name) and _is_unfinished(path):
                self._unfinished.append(path)
            elif not _is_left(path):
                raise RunError(
                    f"{folder} holds other things, such as {path.name}: give a folder that is"
                    " empty or does not exist"
                )
        return old

    def _check_kind(self, document: Path) -> None:
        from mirrormargin.runs import read_json

        try:
            kind = read_json(document)["kind"]
        except (OSError, RunError, KeyError):
            kind = "unknown"
        if kind != self.kind:
            raise RunError(
                f"{document.parent} holds a run of kind {kind!r}, which a run of kind"
                f" {self.kind!r} does not replace: choose another folder"
            )


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder holds the beginning of a run whose process was killed."""
    return folder.is_dir() and all(_is_left(path) for path in folder.iterdir())


def _is_left(path: Path) -> bool:
    """Whether a killed process leaves such a file: arrays without a document, or a hidden one."""
    from mirrormargin.runs import is_arrays_name

    return path.name.startswith(".") or is_arrays_name(path.name)


def name_run(p: float, seed: int | None) -> str:
    """Such as ``seed-1-p-1.75``."""
    exponent = f"p-{p!r}".removesuffix(".0")
    return exponent if seed is None else f"seed-{seed}-{exponent}"


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
        folder: Where to save; None to save nothing.
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
            # Nothing is recorded yet, and the time until now went into compiling.
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
