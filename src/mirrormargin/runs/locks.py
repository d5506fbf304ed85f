"""Who may write: one lock for every kind of run, held for as long as a command writes to a folder.

An open file holds a lock, so the system releases it when the process ends, however it ends. The
file is removed with the lock. One that is still there and not held was left by a process that was
killed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mirrormargin.errors import MirrorMarginError, RunError
from mirrormargin.runs.files import remove_leftovers

__all__ = ["LOCK", "hold_folder", "hold_lock"]

LOCK = ".lock"
PAUSE = 0.01  # seconds between two tries to get a lock
_held: dict[tuple[int, str], int] = {}  # process and folder -> the thread that holds it


@contextmanager
def hold_folder(
    folder: Path, *, wait: float = 0.0, error: type[MirrorMarginError] = RunError
) -> Iterator[None]:
    """Be the only one who writes to a folder; readers need no lock.

    The folder is made if it is not there, and removed again if nothing is written to it. What
    killed writers left half written is removed. A thread may hold a folder several times.

    Args:
        folder: Where.
        wait: How many seconds to wait for a process that holds it.
        error: What is raised if the folder cannot be made.

    Raises:
        RunError: If another process holds it, or the folder cannot be made.
    """
    key, thread = (os.getpid(), os.path.realpath(folder)), threading.get_ident()
    if _held.get(key) == thread:
        yield
        return
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    file = None
    try:
        while file is None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise error(f"{folder} cannot be made: {problem.strerror}") from problem
            file = _lock(folder / LOCK, wait)
            if folder.is_dir():  # else the last holder has just removed it
                break
        _held[key] = thread
        try:
            remove_leftovers(folder)
            yield
        finally:
            del _held[key]
    finally:
        _release(folder / LOCK, file)
        with suppress(OSError):  # something was written
            for one in made:
                one.rmdir()


@contextmanager
def hold_lock(path: Path, *, wait: bool | float) -> Iterator[None]:
    """Keep out other processes that hold the same file, where files can be locked.

    Args:
        path: The file; made if it is not there, never followed if it is a link, removed in the end.
        wait: Whether to wait for a process that holds it, or how many seconds.

    Raises:
        RunError: If another process holds it for longer than that.
    """
    file = _lock(path, float("inf") if wait is True else float(wait))
    try:
        yield
    finally:
        _release(path, file)


def _lock(path: Path, seconds: float) -> int | None:
    """The open file that holds the lock; None where files cannot be locked."""
    try:
        import fcntl
    except ImportError:
        return None
    end = time.monotonic() + seconds
    while True:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(path, flags, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, file):
                return file
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(file)
                raise RunError(
                    f"another command is writing to {path.parent}: wait for it, or choose another"
                    " folder"
                ) from None
            time.sleep(PAUSE)
        except OSError:  # a file system without locks
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _release(path: Path, file: int | None) -> None:
    if file is None:
        return
    # While it is held: whoever waits for it finds that its file is gone, and makes another.
    with suppress(OSError):
        if _is_still(path, file):
            path.unlink()
    os.close(file)


def _is_still(path: Path, file: int) -> bool:
    """Whether the path still names the open file, which its last holder may have removed."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False
