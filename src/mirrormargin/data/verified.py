"""Files that are what they should be: found, checked by size and sha256, and remembered.

A file that was found whole leaves a stamp (path, size, time of change, digest) in the cache folder,
and is not read again as long as these stay the same.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mirrormargin.data.places import find_cache
from mirrormargin.errors import DataError, RunError
from mirrormargin.runs import write_atomically

__all__ = ["Source", "VerifiedFile", "compute_sha256", "find_files", "verify"]

BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """A file of a data set as it is published.

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
        DataError: If a file is there but is not the published one.
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
    """Check a file against what was published.

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
    """The digest of a file, from its stamp if that is still true."""
    path = path.resolve()
    status = path.stat()
    facts = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()
    stamp = find_cache() / "verified" / f"{key[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(stamp.read_bytes())
        if {name: known[name] for name in facts} == facts:
            return str(known["sha256"])
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            sha256.update(block)
    digest = sha256.hexdigest()
    text = json.dumps({**facts, "sha256": digest})
    # Without a cache that can be written to, the file is read anew each time.
    with suppress(OSError, RunError):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(stamp, lambda file: file.write(text.encode()))
    return digest
