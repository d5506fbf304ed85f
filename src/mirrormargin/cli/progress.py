"""One line on the terminal that says how far a command is, and is gone in the end.

train   45%  0:12 left  p = 3
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

__all__ = ["Progress"]

PAUSE = 0.1  # seconds between two drawings: more would only flicker
ERASE = "\r\033[K"


class Progress:
    """Shown on stderr if that is a terminal; otherwise every method does nothing.

    Args:
        total: What ``done`` is counted up to.
        label: Stands at the beginning of the line.
        quiet: Whether to show nothing on a terminal either.
    """

    def __init__(self, total: float, label: str, quiet: bool = False) -> None:
        self.total, self.label = total, label
        self.is_shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._first: tuple[float, float] | None = None
        self._drawn = float("-inf")

    def update(self, done: float, text: str = "") -> None:
        """Show that ``done`` of the total is done; cheap enough to be called all the time."""
        if not self.is_shown:
            return
        now = time.monotonic()
        if self._first is None:  # work that goes on has something done already
            self._first = now, done
        if now - self._drawn < PAUSE:
            return
        self._drawn = now
        share = min(max(done / self.total, 0.0), 1.0) if self.total > 0 else 1.0
        parts = [self.label, f"{share:4.0%}", self._estimate(now, done), text]
        line = "  ".join(part for part in parts if part)
        width = shutil.get_terminal_size().columns - 1
        print(f"{ERASE}{line[:width]}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self.is_shown and self._drawn > float("-inf"):
            print(ERASE, end="", file=sys.stderr, flush=True)
            self._drawn = float("-inf")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _estimate(self, now: float, done: float) -> str:
        """Time left at the speed so far, nothing as long as that is unknown."""
        assert self._first is not None
        start, before = self._first
        if done <= before or now <= start or done >= self.total:
            return ""
        seconds = round((self.total - done) * (now - start) / (done - before))
        hours, minutes = seconds // 3600, seconds // 60 % 60
        clock = f"{hours}:{minutes:02}" if hours else str(minutes)
        return f"{clock}:{seconds % 60:02} left"
