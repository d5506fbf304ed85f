"""Where claims and runs lie below a folder, and what each place is called.

runs/flow/seed-1-p-2/run.json    given as runs:  "flow/seed-1-p-2"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mirrormargin.errors import ReportError
from mirrormargin.training.folder import SUMMARY

__all__ = ["CLAIMS", "EVIDENCE", "MAX_DEPTH", "RUN", "SUMMARY", "find_folders", "name_folders"]

CLAIMS, RUN = "claims.json", "run.json"
FILES = (CLAIMS, RUN, SUMMARY)
EVIDENCE = "evidence"
MAX_DEPTH = 4  # levels below the folder that was given

Place = tuple[Path, int]


def find_folders(path: Path) -> list[Place]:
    """Folders with claims or a run, each with how many levels it lies below the path.

    Hidden folders are passed over, and so is the evidence of claims, which the claims name.

    Raises:
        ReportError: If there is none.
    """
    if path.name in FILES and path.is_file():
        return [(path.parent, 0)]
    if not path.is_dir():
        raise ReportError(
            f"{path} is no folder: give one that mirrormargin reproduce, train or lab wrote"
        )
    found = list(_walk(path, 0))
    if not found:
        raise ReportError(
            f"{path} holds nothing to report on: there is no {', '.join(FILES)} in it or up to"
            f" {MAX_DEPTH} levels below; write one with mirrormargin reproduce, train or lab"
            " --out"
        )
    return found


def _walk(folder: Path, depth: int) -> Iterator[Place]:
    try:
        inside = sorted(folder.iterdir())
        below = [one for one in inside if one.is_dir() and not one.name.startswith(".")]
        files = {one.name for one in inside if one.name in FILES and one.is_file()}
    except OSError as error:
        raise ReportError(f"{folder} cannot be read: {error.strerror}") from error
    if files:
        yield folder, depth
    if depth < MAX_DEPTH:
        for one in below:
            if CLAIMS not in files or one.name != EVIDENCE:
                yield from _walk(one, depth + 1)


def name_folders(places: Sequence[Place]) -> list[tuple[str, Path]]:
    """Each folder once, with a name that no other has.

    Args:
        places: Folders, each with its level: at level 2 the last two parts of the path are the
            name, at level 0 the last one. Equal names get more parts.
    """
    folders: dict[Path, tuple[Path, int]] = {}
    for folder, depth in places:
        folders.setdefault(folder.resolve(), (folder, max(depth, 1)))
    sizes = {full: size for full, (_, size) in folders.items()}
    while True:
        names = {full: "/".join(full.parts[-size:]) for full, size in sizes.items()}
        taken = list(names.values())
        equal = [full for full, name in names.items() if taken.count(name) > 1]
        if not equal:
            return [(names[full], folder) for full, (folder, _) in folders.items()]
        for full in equal:
            sizes[full] += 1
