"""Locks between processes: held by an open file, so that the system lets go when one ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirrormargin.errors import RunError

__all__ = ["hold_lock"]


@contextmanager
def hold_lock(path: Path, *, wait: bool) -> Iterator[None]:
    """Keep out other processes that hold the same file; where files cannot be locked, nothing.

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
