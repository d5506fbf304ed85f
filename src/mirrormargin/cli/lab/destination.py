r"""Where a command writes its runs: checked before the work begins, and nothing lost by mistake.

FOLDER/run.json                  if there is one run
FOLDER/seed-1-p-1.75/run.json    if there are several
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mirrormargin.cli.options import check_writable
from mirrormargin.errors import RunError

__all__ = ["NOTES", "Destination", "name_run"]

DOCUMENT = "run.json"
NOTES = (
    "--out makes FOLDER a run if there is one result, and holds a folder such as seed-1-p-1.75 for"
    " each one if there are several."
)
NAME = re.compile(r"(seed-\d+-)?p-[\d.e+]+")  # what name_run makes


class Destination:
    """A folder for the runs of one command.

    Args:
        folder: Where.
        kind: The kind of its runs.
        names: One for each run.
        overwrite: Whether runs of this kind that are there already may be replaced.

    Raises:
        RunError: If the folder cannot be written, or holds something that must not be lost.
    """

    def __init__(self, folder: Path, kind: str, names: Sequence[str], overwrite: bool) -> None:
        self.folder, self.kind, self.names = folder, kind, list(names)
        check_writable(folder / DOCUMENT)
        self._old = self._find_old()
        if self._old and not overwrite:
            raise RunError(
                f"{folder} holds a run already: add --overwrite to replace it, or choose another"
                " folder"
            )

    def find_folder(self, name: str) -> Path:
        """That of one run."""
        return self.folder if len(self.names) == 1 else self.folder / name

    def finish(self) -> None:
        """Remove the runs that were there before and have not been replaced."""
        kept = {self.find_folder(name) for name in self.names}
        for old in self._old:
            if old in kept:
                continue
            for path in [old / DOCUMENT, *old.glob("arrays-*.npz")]:
                path.unlink(missing_ok=True)
            if old != self.folder:
                with suppress(OSError):  # somebody has put something else there
                    old.rmdir()

    def _find_old(self) -> list[Path]:
        """Folders of the runs that are there; whatever else is there is an error."""
        if not self.folder.is_dir():
            return []
        old = []
        for path in sorted(self.folder.iterdir()):
            if path.name == DOCUMENT:
                self._check_kind(path)
                old.append(self.folder)
            elif NAME.fullmatch(path.name) and (path / DOCUMENT).is_file():
                self._check_kind(path / DOCUMENT)
                old.append(path)
            # Arrays without a document, and hidden files, are what a killed process leaves.
            elif not path.name.startswith((".", "arrays-")):
                raise RunError(
                    f"{self.folder} holds other things, such as {path.name}: give a folder that is"
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
