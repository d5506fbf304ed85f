"""Signals that ask for an end: noted, to be obeyed where nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Signals"]


class Signals:
    """Whether SIGINT or SIGTERM has come.

    Attributes:
        have_come: Once; a second signal interrupts whatever goes on.
    """

    def __init__(self) -> None:
        self.have_come = False

    @contextmanager
    def listen(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: Any) -> None:
            if self.have_come:
                raise KeyboardInterrupt
            self.have_come = True

        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
