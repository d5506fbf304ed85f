"""Arrays that took long to make are kept in the cache folder, under a key of all they depend on.

prepared/<digest of the key>.npz     the arrays, not compressed, and their note as UTF-8 bytes
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.data.places import find_cache
from mirrormargin.errors import RunError
from mirrormargin.runs import write_atomically

__all__ = ["Arrays", "prepare"]

Arrays = dict[str, NDArray[Any]]

FORMAT = 4  # to be raised with every change of what the arrays are made by


def prepare(key: dict[str, Any], make: Callable[[], tuple[Arrays, str]]) -> tuple[Arrays, str]:
    """What ``make`` gives, from the cache if it was made before.

    Args:
        key: Whatever the arrays depend on, as JSON can hold it.
        make: Gives the arrays and a note in words.
    """
    text = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    path = find_cache() / "prepared" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    # A file that cannot be read, or is damaged, is made anew.
    with (
        suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile),
        open(path, "rb") as stream,
        np.load(stream, allow_pickle=False) as file,
    ):
        arrays = {name: file[name] for name in file.files}
        return arrays, arrays.pop("note").tobytes().decode()
    arrays, note = make()
    whole = {**arrays, "note": np.frombuffer(note.encode(), np.uint8)}
    with suppress(OSError, RunError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez(file, **whole))  # pyright: ignore[reportArgumentType]
    return arrays, note
