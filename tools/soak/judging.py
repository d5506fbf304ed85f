"""How a call or a command ended: held, refused or wrong."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["judge_call", "judge_words"]

SECONDS = 10  # that a case may take
MOST_LINE = 2000  # characters of a message
SCRIPTS = ("<script>alert", "<svg onload")


def judge_call(
    what: str,
    call: Callable[[], Any],
    is_bad: bool,
    allowed: tuple[type[Exception], ...] = (),
) -> tuple[str, str]:
    """Make a call, and say how it ended.

    Args:
        what: In words.
        call: Without arguments.
        is_bad: Whether it must be refused.
        allowed: Errors of others that are documented.
    """
    from mirrormargin.errors import MirrorMarginError

    try:
        with _limit_time():
            result = call()
    except (MirrorMarginError, *allowed) as error:
        fault = _find_fault(str(error))
        return ("wrong", f"{what}: {fault}") if fault else ("refused", f"{what}: {error}")
    except Exception as error:
        return "wrong", f"{what}: {type(error).__name__}: {str(error)[:200]} {_find_place(error)}"
    if is_bad:
        return "wrong", f"{what}: accepted"
    fault = _find_nan(result)
    return ("wrong", f"{what}: accepted, and gave {fault}") if fault else ("held", what)


def _find_nan(result: Any) -> str:
    """What is no sensible result."""
    for name in ("W", "margin", "gap", "exponent"):
        value = getattr(result, name, None)
        if isinstance(value, float | np.ndarray) and np.isnan(value).any():
            if getattr(result, "end", None) is not None and name == "W":
                continue  # a training that diverged says so
            return f"{name} of nan"
    return ""


def _find_fault(message: str) -> str:
    if not message.strip():
        return "an error without a message"
    if len(message) > MOST_LINE:
        return f"a message of {len(message):,} characters: {message[:80]!r}"
    return ""


def judge_words(words: tuple[str, ...], is_bad: bool, what: str = "") -> tuple[str, str]:
    """Run a command, and say how it ended."""
    from mirrormargin.cli import main

    line = " ".join(word if len(word) < 60 else f"{word[:40]}..." for word in words)
    what = ascii(f"{what + ': ' if what else ''}mirrormargin {line}")
    out, err = io.StringIO(), io.StringIO()
    before = sys.stdin
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
        with (
            _limit_time(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(words)
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        return "wrong", f"{what}: {type(error).__name__}: {str(error)[:200]} {_find_place(error)}"
    finally:
        sys.stdin = before
    for text in (out.getvalue(), err.getvalue()):
        strange = [one for one in text if not (one.isprintable() or one in "\n\t")]
        if strange and words[:1] != ("completion",):
            return "wrong", f"{what}: prints {strange[0]!r}"
    fault = _find_script()
    if fault:
        return "wrong", f"{what}: {fault}"
    if code == 2:
        lines = [line for line in err.getvalue().splitlines() if line.strip()]
        if not lines or not lines[-1].startswith("mirrormargin"):
            return "wrong", f"{what}: exit code 2, and says {err.getvalue()[-300:]!r}"
        if len(lines[-1]) > MOST_LINE + 4000:
            return "wrong", f"{what}: a message of {len(lines[-1]):,} characters"
        return "refused", f"{what}: {lines[-1]}"
    if code not in (0, 1):
        return "wrong", f"{what}: exit code {code}"
    return ("wrong", f"{what}: accepted") if is_bad else ("held", what)


def _find_script() -> str:
    page = Path("page.html")
    if page.is_file():
        text = page.read_text(encoding="utf-8", errors="replace")
        if any(script in text for script in SCRIPTS):
            return "the page holds a script of the file"
    return ""


def _find_place(error: BaseException) -> str:
    """Where in the product it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}mirrormargin{os.sep}" in frame.filename]
    return f"({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


class _TooLongError(BaseException):
    """Not an Exception: no part of the product may swallow it."""


@contextmanager
def _limit_time() -> Iterator[None]:
    def end(*_: Any) -> None:
        raise _TooLongError(f"it took {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except _TooLongError as error:
        raise TimeoutError(str(error)) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
