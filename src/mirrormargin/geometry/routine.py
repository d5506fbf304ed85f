"""Compiled functions that are made on first use and kept on disk.

Numba's cache notices a change of the file that holds a function, not of the files it calls into.
The digest of all sources that take part is a closure variable of the function, so part of the key::

    def make(version):
        def work(x):
            _ = version
            ...
        return work

    work = Routine(make, signature, [__file__, other_module.__file__])
    work.load()(x)
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import getpass
import hashlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numba import njit

from mirrormargin.runs import hold_lock

__all__ = ["Routine"]


class Routine:
    """One compiled function.

    Args:
        factory: Makes the function from the digest, which the function must mention.
        signature: Numba's, so that it is compiled once and for all.
        sources: Files of all functions that take part.
    """

    def __init__(
        self, factory: Callable[[int], Callable[..., Any]], signature: Any, sources: Sequence[str]
    ) -> None:
        self._factory, self._signature = factory, signature
        digest = hashlib.sha256()
        # Read now: a file edited later must not lend its digest to the code already in memory.
        for source in (__file__, *sources):
            digest.update(Path(source).read_bytes())
        self._version = int.from_bytes(digest.digest()[:7], "big")
        self._lock = threading.Lock()
        self._function: Any = None

    def load(self) -> Callable[..., Any]:
        """The function: compiled on first use, which takes seconds, or read from the disk.

        Where another process compiles it already, this one waits and reads what that one made.
        """
        with self._lock:
            if self._function is None:
                name = f"mirrormargin-{getpass.getuser()}-{self._version:x}.lock"
                with hold_lock(Path(tempfile.gettempdir()) / name, wait=True):
                    self._function = self._compile()
        return self._function

    def _compile(self) -> Any:
        function = self._factory(self._version)
        options = {"nogil": True, "error_model": "numpy"}
        try:
            return njit(self._signature, cache=True, **options)(function)
        except Exception:
            # No folder to write to, a full disk, a damaged cache file: compile, keep nothing.
            return njit(self._signature, **options)(function)
