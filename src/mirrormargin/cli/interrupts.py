"""SIGINT and SIGTERM: raised at once, or noted until a loop can stop without losing anything.

A signal that comes while a module is imported ends the process there and then: an exception would
have to pass through the C code of a library that is half set up, and some abort on it. One that
comes while an object is deleted, where Python drops exceptions, is raised again after that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType

__all__ = [
    "NotedSignals",
    "describe",
    "exit_code",
    "is_received",
    "raise_on_signals",
]

IMPORTS = "<frozen importlib._bootstrap>"  # the file of the code that imports modules
AGAIN = 0.01  # seconds until a signal comes again whose exception was dropped
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: signal.Signals | None = None  # the last one, since main() began


class _Interrupt(KeyboardInterrupt):
    """What a signal raises.

    It has its own class because of what Python does when a bare KeyboardInterrupt leaves code that
    a C library called: it ends the process by SIGINT, and our exit code is lost.
    """


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Both signals raise a KeyboardInterrupt."""
    global _received
    _received = None

    def interrupt() -> None:
        raise _Interrupt

    with _handle(interrupt):
        yield


def is_received() -> bool:
    """Whether a signal has come since :func:`raise_on_signals`."""
    return _received is not None


def exit_code() -> int:
    """What a shell reports for the signal that came: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (_received or signal.SIGINT)


def describe() -> str:
    """How the command ended, in one word."""
    return "terminated" if _received == signal.SIGTERM else "interrupted"


class NotedSignals:
    """Whether SIGINT or SIGTERM has come, for loops that choose where to stop.

    Attributes:
        have_come: Whether one has; a second signal interrupts at once.

    Args:
        is_patient: A second signal is ignored: a terminal and torchrun may send one each, and
            torchrun ends processes that take too long.
    """

    def __init__(self, is_patient: bool = False) -> None:
        self.have_come, self.is_patient = False, is_patient

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Note signals instead of raising."""

        def note() -> None:
            if self.have_come and not self.is_patient:
                raise _Interrupt
            self.have_come = True

        with _handle(note):
            yield


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where a signal has come."""
    return any(code.co_filename == IMPORTS for code in _list_calls(frame))


def _list_calls(frame: FrameType | None) -> Iterator[CodeType]:
    """The code of a frame and of all that wait for it."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _end_at_once() -> None:
    """End the process as main() would, without raising anything."""
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, f"mirrormargin: {describe()}\n".encode())
    os._exit(exit_code())


@contextmanager
def _handle(act: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return

    def handle(number: int, frame: FrameType | None) -> None:
        global _received
        _received = signal.Signals(number)
        if _is_importing(frame):
            _end_at_once()
        act()

    def raise_again(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, _Interrupt) and _received is not None:
            threading.Thread(target=send_again, args=(_received,), daemon=True).start()
        else:
            hook(dropped)

    def send_again(number: signal.Signals) -> None:
        while not is_over.wait(AGAIN):
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
            if raise_again.__code__ not in _list_calls(frame):  # what that raises is dropped too
                os.kill(os.getpid(), number)
                return

    is_over = threading.Event()
    hook, sys.unraisablehook = sys.unraisablehook, raise_again
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, handle)
    try:
        yield
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
