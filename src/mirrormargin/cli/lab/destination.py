r"""The runs of one command and their folder: checked before the work, nothing lost by mistake.

FOLDER/run.json                  if there is one run
FOLDER/seed-1-p-1.75/run.json    if there are several
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.cli.terminal import Progress
from mirrormargin.errors import RunError

if TYPE_CHECKING:
    from mirrormargin.attention import AttentionProblem

__all__ = ["NOTES", "Destination", "name_run"]

DOCUMENT = "run.json"
NOTES = (
    "--out makes FOLDER a run if there is one result, and holds a folder such as seed-1-p-1.75 for"
    " each one if there are several."
)
NAME = re.compile(r"(seed-\d+-)?p-[\d.e+]+")  # what name_run makes


class Destination:
    """A folder for the runs of one command, or nowhere.

    Args:
        folder: Where; None for nowhere.
        kind: The kind of its runs.
        problem: What the user named.
        overwrite: Whether runs of this kind that are there already may be replaced.

    Raises:
        RunError: If the folder cannot be written, or holds something that must not be lost.
    """

    def __init__(self, folder: Path | None, kind: str, problem: str, overwrite: bool) -> None:
        self.folder, self.kind, self.problem = folder, kind, problem
        self._old: list[Path] = []
        if folder is None:
            return
        from mirrormargin.runs import check_writable

        check_writable(folder / DOCUMENT, make_folders=True)
        self._old = self._find_old(folder)
        if self._old and not overwrite:
            raise RunError(
                f"{folder} holds a run already: add --overwrite to replace it, or choose another"
                " folder"
            )

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
            label: Of the bar of progress.
            problems: Each with its seed or None.
            exponents: All for each problem.
            follow: From a problem, an exponent and a callback for progress to a record, None if
                there is none, and the numbers to show.
            quiet: Whether to show no progress.

        Returns:
            The numbers of each, with its seed.
        """
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
        self.finish(kept)
        return rows

    def finish(self, kept: set[Path]) -> None:
        """Remove the runs that were there before and have not been replaced."""
        for old in self._old:
            if old in kept:
                continue
            for path in [old / DOCUMENT, *old.glob("arrays-*.npz")]:
                path.unlink(missing_ok=True)
            if old != self.folder:
                with suppress(OSError):  # somebody has put something else there
                    old.rmdir()

    def _find_old(self, folder: Path) -> list[Path]:
        """Folders of the runs that are there; whatever else is there is an error."""
        if not folder.is_dir():
            return []
        old = []
        for path in sorted(folder.iterdir()):
            if path.name == DOCUMENT:
                self._check_kind(path)
                old.append(folder)
            elif NAME.fullmatch(path.name) and (path / DOCUMENT).is_file():
                self._check_kind(path / DOCUMENT)
                old.append(path)
            # Arrays without a document, and hidden files, are what a killed process leaves.
            elif not path.name.startswith((".", "arrays-")):
                raise RunError(
                    f"{folder} holds other things, such as {path.name}: give a folder that is"
                    " empty or does not exist"
                )
        return old

    def _check_kind(self, document: Path) -> None:
        try:
            kind = json.loads(document.read_bytes())["kind"]
        except (OSError, ValueError, KeyError, TypeError):
            kind = "unknown"
        if kind != self.kind:
            raise RunError(
                f"{document.parent} holds a run of kind {kind!r}, which a run of kind"
                f" {self.kind!r} does not replace: choose another folder"
            )


def name_run(p: float, seed: int | None) -> str:
    """Such as ``seed-1-p-1.75``."""
    exponent = f"p-{p!r}".removesuffix(".0")
    return exponent if seed is None else f"seed-{seed}-{exponent}"
