"""Files that several processes may use: whether they can be written, whole or not, and locks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mirrormargin.errors import RunError

__all__ = ["check_writable", "hold_lock", "write_atomically"]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a neighbour of the file, then rename it.

    Raises:
        RunError: If the file cannot be written; what was there before is then unchanged.
    """
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(neighbour, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(neighbour, path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        # On a read-only disk, even to remove what is not there is an error.
        with suppress(OSError):
            neighbour.unlink(missing_ok=True)


@contextmanager
def hold_lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Keep out other processes that hold the same file, where files can be locked.

    An open file holds the lock, so the system releases it when the process ends.

    Args:
        path: The file; made if it is not there, never written, never followed if it is a link.
        wait: Whether to wait for a process that holds it.

    Raises:
        RunError: If another process holds it and ``wait`` is False.
    """
    try:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise RunError(
                f"another command is writing to {path.parent}: wait for it, or choose another"
                " folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(file)


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
