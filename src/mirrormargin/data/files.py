"""Files on this machine: where data is looked for, what has been verified, what is kept.

data folder    the argument, else the variable MIRRORMARGIN_DATA; only ever read
cache folder   $XDG_CACHE_HOME/mirrormargin or ~/.cache/mirrormargin
    data/      downloaded files, searched after the data folder
    prepared/  arrays made of the files: <digest of the key>.npz

Every load reads the source files and compares their digests: prepared arrays belong to the contents
of the files that they were made of, not to a name or a time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import DataError, RunError
from mirrormargin.runs import read_arrays, write_atomically

__all__ = [
    "BLOCK",
    "VARIABLE",
    "Arrays",
    "Source",
    "VerifiedFile",
    "compute_sha256",
    "find_cache",
    "find_files",
    "list_folders",
    "prepare",
    "verify",
]

VARIABLE = "MIRRORMARGIN_DATA"
BLOCK = 1 << 20
FORMAT = 4  # of prepared arrays; to be raised with every change of what they are made by

Arrays = dict[str, NDArray[Any]]


def list_folders(data_dir: str | Path | None = None) -> list[Path]:
    """The folders to search, in order."""
    given = data_dir if data_dir is not None else os.environ.get(VARIABLE) or None
    folders = [] if given is None else [Path(given).expanduser().absolute()]
    downloads = find_cache() / "data"
    return folders if downloads in folders else [*folders, downloads]


def find_cache() -> Path:
    """The cache folder, which need not exist."""
    # The standard says that a relative path there is to be ignored.
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "mirrormargin"


@dataclass(frozen=True)
class Source:
    """A file of a data set as it should be.

    Attributes:
        name: Its path below a data folder.
        size: In bytes, None if it is not known.
        sha256: None if it is not known.
    """

    name: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class VerifiedFile:
    """A file on this machine that was found whole."""

    name: str
    path: Path
    sha256: str


def find_files(layout: tuple[Source, ...], folders: list[Path]) -> list[VerifiedFile] | None:
    """The files of a layout, each from the first folder that has it; None unless all are there.

    Raises:
        DataError: If a file is there but is not the one that it should be.
    """
    paths = [_find_path(source, folders) for source in layout]
    found = [path for path in paths if path is not None]
    if len(found) < len(layout):
        return None
    return [verify(source, path) for source, path in zip(layout, found, strict=True)]


def _find_path(source: Source, folders: list[Path]) -> Path | None:
    paths = [folder / source.name for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def verify(source: Source, path: Path) -> VerifiedFile:
    """Check a file by its size and digest.

    Raises:
        DataError: If it differs or cannot be read.
    """
    remedy = "replace it, or remove it and load with download=True (command line: --download)"
    try:
        size = path.stat().st_size
        if source.size is not None and size != source.size:
            raise DataError(
                f"{path} is damaged: it has {size:,} bytes, not {source.size:,}; {remedy}"
            )
        digest = compute_sha256(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if source.sha256 is not None and digest != source.sha256:
        raise DataError(f"{path} is damaged: its sha256 is {digest}, not {source.sha256}; {remedy}")
    return VerifiedFile(source.name, path, digest)


def compute_sha256(path: Path) -> str:
    """The digest of a file's bytes, which are read each time.

    Size and time of change say too little: a label may be edited and both kept. Reading costs
    about a second for each gigabyte and a half; the largest set takes an eighth of a second.
    """
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            sha256.update(block)
    return sha256.hexdigest()


def prepare(key: dict[str, Any], make: Callable[[], tuple[Arrays, str]]) -> tuple[Arrays, str]:
    """What ``make`` gives, from the cache if it was made before.

    Args:
        key: Whatever the arrays depend on, as JSON can hold it.
        make: Gives the arrays and a note in words.
    """
    text = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    path = find_cache() / "prepared" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    # A file that cannot be read, or is damaged in whatever way, is made again.
    with suppress(Exception):
        arrays = read_arrays(path)
        return arrays, arrays.pop("note").tobytes().decode()
    arrays, note = make()
    whole = {**arrays, "note": np.frombuffer(note.encode(), np.uint8)}
    with suppress(OSError, RunError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez(file, **whole))  # pyright: ignore[reportArgumentType]
    return arrays, note
