"""Compiling functions with Numba on first use, keeping them on disk, and doing without Numba.

Numba's cache notices a change of the file that holds a function, not of the files it calls into.
The digest of all sources that take part is a closure variable of the function, so part of the key::

    def make(version):
        def work(x):
            _ = version
            ...
        return work

    work = CompiledFunction(make, signature, (*other_module.SOURCES, __file__))
    work.load()(x)

A module with compiled code lists itself and what it calls into as its ``SOURCES``.

Where Numba does not work, the optimizers, the potentials and the SVM take their plain paths after
one warning, and the lab, which trains in compiled code only, raises an error that says what is
missing. ``MIRRORMARGIN_WITHOUT_NUMBA=1`` in the environment switches Numba off without a warning.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import functools
import getpass
import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mirrormargin.errors import MirrorMarginWarning, MissingNumbaError
from mirrormargin.runs import hold_lock

__all__ = ["WITHOUT_NUMBA", "CompiledFunction", "find_numba_failure", "has_numba", "require_numba"]

WITHOUT_NUMBA = "MIRRORMARGIN_WITHOUT_NUMBA"  # the environment variable


class CompiledFunction:
    """A function that is compiled on first use, or read from the disk.

    Args:
        factory: Makes the function from the digest of the sources, which the function must
            mention.
        signature: Numba's, so that there is a single version to compile.
        sources: Files of all functions that take part.
        is_callback: Whether C code calls it, by its :attr:`address`; otherwise Python does.
    """

    def __init__(
        self,
        factory: Callable[[int], Callable[..., Any]],
        signature: Any,
        sources: Sequence[str],
        *,
        is_callback: bool = False,
    ) -> None:
        self._factory, self._signature, self._is_callback = factory, signature, is_callback
        self.sources = tuple(dict.fromkeys((__file__, *sources)))
        digest = hashlib.sha256()
        # Read now: a file edited later must not lend its digest to the code already in memory.
        for source in self.sources:
            digest.update(Path(source).read_bytes())
        self._version = int.from_bytes(digest.digest()[:7], "big")
        self._lock = threading.Lock()
        self._function: Any = None

    def load(self) -> Any:
        """The function. Compiling it takes seconds, reading it from the disk does not.

        Where another process compiles it already, this one waits and reads what that one made.
        """
        if self._function is None:
            with self._lock:
                if self._function is None:
                    name = f"mirrormargin-{getpass.getuser()}-{self._version:x}.lock"
                    with hold_lock(Path(tempfile.gettempdir()) / name, wait=True):
                        self._function = self._compile()
        return self._function

    @property
    def address(self) -> int:
        """Where the machine code of a callback is."""
        return self.load().address

    def _compile(self) -> Any:
        from numba import cfunc, njit

        options = {} if self._is_callback else {"nogil": True, "error_model": "numpy"}
        compile_with: Any = cfunc if self._is_callback else njit
        function = self._factory(self._version)
        try:
            return compile_with(self._signature, cache=True, **options)(function)
        except Exception:
            # No folder to write to, a full disk, a damaged cache file: compile, keep nothing.
            return compile_with(self._signature, **options)(function)


def has_numba() -> bool:
    """Whether compiled code can run here. Warns, once, if it should but cannot."""
    failure = find_numba_failure()
    if failure is not None and not _is_switched_off():
        _warn(failure)
    return failure is None


def require_numba(what: str) -> None:
    """Raise if compiled code cannot run here.

    Args:
        what: What needs it, for the message.

    Raises:
        MissingNumbaError: (an ImportError) Says why not, and what to do.
    """
    failure = find_numba_failure()
    if failure is not None:
        raise MissingNumbaError(f"{what} runs in compiled code only, but {failure}")


@functools.cache
def find_numba_failure() -> str | None:
    """Why compiled code cannot run; None if it can."""
    if _is_switched_off():
        return f"{WITHOUT_NUMBA} is set in the environment: unset it to use Numba"
    try:
        from numba import njit

        # A broken installation may show only when it compiles. This trial is nearly free: what
        # Numba sets up for its first function, it would have to set up anyway.
        compile_now: Any = njit("float64(float64)")
        compile_now(_identity)
    except Exception as error:
        return (
            f"Numba does not work here ({type(error).__name__}: {error}): install a version that"
            " fits this Python and NumPy with `pip install --upgrade numba`"
        )
    return None


def _is_switched_off() -> bool:
    return os.environ.get(WITHOUT_NUMBA, "0") not in ("", "0")


@functools.cache
def _warn(failure: str) -> None:
    warnings.warn(
        f"{failure}. Until then the optimizers and the SVM take their plain paths, which are"
        f" slower. {WITHOUT_NUMBA}=1 in the environment silences this warning",
        MirrorMarginWarning,
        stacklevel=3,
    )


def _identity(x: float) -> float:
    return x
