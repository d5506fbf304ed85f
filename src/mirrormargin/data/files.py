"""The files of a data set on this machine: found, verified, fetched if that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mirrormargin.data.official import RECIPES, fetch
from mirrormargin.data.places import VARIABLE, list_folders
from mirrormargin.data.sources import LAYOUTS, VOCABULARY, Layout
from mirrormargin.data.verified import VerifiedFile, find_files
from mirrormargin.data.wordpiece import read_vocabulary
from mirrormargin.errors import DataError

__all__ = ["find_data", "find_vocabulary"]

Progress = Callable[[int, int], object]


def find_data(
    name: str,
    data_dir: str | Path | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> list[VerifiedFile]:
    """The files of a named data set, in the order of their layout.

    Raises:
        DataError: If they are absent or damaged.
    """
    return _find(name, LAYOUTS[name], data_dir, download, progress)


def find_vocabulary(
    data_dir: str | Path | None = None, download: bool = False, progress: Progress | None = None
) -> tuple[VerifiedFile, tuple[str, ...]]:
    """The file of the whole vocabulary, and its word pieces by number."""
    file = _find("vocabulary", ((VOCABULARY,),), data_dir, download, progress)[0]
    return file, read_vocabulary(file.path)


def _find(
    name: str,
    layouts: tuple[Layout, ...],
    data_dir: str | Path | None,
    download: bool,
    progress: Progress | None,
) -> list[VerifiedFile]:
    folders = list_folders(data_dir)
    for is_last in (False, True):
        for layout in layouts:
            files = find_files(layout, folders)
            if files is not None:
                return files
        if is_last or not download:
            break
        fetch(name, progress)
    looked = " nor in ".join(str(folder) for folder in folders)
    absent = next(
        source.name
        for source in layouts[0]
        if not any((folder / source.name).is_file() for folder in folders)
    )
    remedy = f"say where it is with data_dir (--data-dir) or the variable {VARIABLE}"
    if name in RECIPES:
        remedy += ", or fetch it with download=True (on the command line: --download)"
    what = "text needs the vocabulary" if name == "vocabulary" else f"{name} needs"
    raise DataError(f"{what} {absent}, which is not in {looked}: {remedy}")
