"""Whether Numba is there, and what is said where it is not.

The optimizers, the potentials and the SVM have plain paths and take them without Numba, after one
warning. The lab trains in compiled code only and raises an error that says what is missing. With
``MIRRORMARGIN_WITHOUT_NUMBA=1`` in the environment Numba is left alone, without a warning: for a
machine where it is broken.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

from mirrormargin.errors import MirrorMarginWarning, MissingNumbaError

__all__ = ["WITHOUT_NUMBA", "has_numba", "require_numba"]

WITHOUT_NUMBA = "MIRRORMARGIN_WITHOUT_NUMBA"  # the environment variable


def has_numba() -> bool:
    """Whether compiled code can run here. Warns, once, if it should but cannot."""
    failure = _find_failure()
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
    failure = _find_failure()
    if failure is not None:
        raise MissingNumbaError(f"{what} runs in compiled code only, but {failure}")


@functools.cache
def _find_failure() -> str | None:
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
