r"""Files that are written whole or not at all, and that survive a loss of power.

    .<name>.mirrormargin-<random>.tmp    while <name> is written

A writer holds a lock on its temporary file. So the next one can tell the files of killed writers,
which it removes, from those of others that are still writing.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from mirrormargin.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["check_writable", "remove_leftovers", "write_atomically"]

TEMPORARY = re.compile(r"\..+\.mirrormargin-[0-9a-f]{16}\.tmp")
LONGEST = 200  # bytes of a name that leave room for the rest of the temporary one


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a neighbour of the file, then rename it.

    Raises:
        RunError: If the file cannot be written; what was there before is then unchanged.
    """
    neighbour: Path | None = None
    try:
        descriptor, neighbour = _make_neighbour(path)
        with open(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows renames no open file
            os.replace(neighbour, path)
        neighbour = None
        _sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if neighbour is not None:
            # On a read-only disk, even to remove what is not there is an error.
            with suppress(OSError):
                neighbour.unlink(missing_ok=True)
    remove_leftovers(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; all others stay."""
    if fcntl is None:
        return
    with suppress(OSError):
        for name in os.listdir(folder):
            if TEMPORARY.fullmatch(name):
                _remove_unheld(folder / name)


def _make_neighbour(path: Path) -> tuple[int, Path]:
    """A new, locked file beside another one, under a name that nobody can guess."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    name = os.fsdecode(os.fsencode(path.name)[:LONGEST])
    while True:
        neighbour = path.with_name(f".{name}.mirrormargin-{secrets.token_hex(8)}.tmp")
        descriptor = os.open(neighbour, flags, 0o666)
        if fcntl is None:
            return descriptor, neighbour
        try:
            with suppress(OSError):  # a file system without locks: nobody removes it then
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if neighbour.exists():  # else another writer took it for a leftover: it had no lock yet
                return descriptor, neighbour
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                neighbour.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _remove_unheld(path: Path) -> None:
    assert fcntl is not None
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """A new name survives a loss of power once its folder is on disk."""
    with suppress(OSError):  # not every system can open a folder, nor every file system sync one
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_writable(path: Path, *, make_folders: bool = False) -> None:
    """Make sure, before the work and not after it, that a file can be written.

    Args:
        path: The file; it may exist.
        make_folders: Whether the writer makes the folders that are missing.

    Raises:
        RunError: If it cannot.
    """
    if path.is_dir():
        raise RunError(f"{path} cannot be written: it is a folder")
    folder = path.parent
    try:
        if make_folders:
            folder = next(parent for parent in path.absolute().parents if parent.exists())
        elif not folder.is_dir():
            raise RunError(f"{path} cannot be written: there is no folder {folder}, make it first")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror} ({folder})") from error
