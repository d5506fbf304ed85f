"""Files that exist whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from mirrormargin.errors import RunError

__all__ = ["write_atomically"]


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
