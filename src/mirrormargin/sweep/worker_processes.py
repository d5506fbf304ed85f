"""Processes that work for another one, and end with it.

The parent holds the only writing end of a pipe. When it closes that end, or dies, every worker
ends, even in the middle of its work: nobody is left to use its result.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

__all__ = ["STOPPING", "begin_worker"]

STOPPING = threading.Event()  # set as soon as the parent is gone


def begin_worker(watched: Any, grace: float = 0.0) -> None:
    """Make this process one that ends with its parent; called first of all.

    Args:
        watched: The reading end of the pipe.
        grace: Seconds between :data:`STOPPING` and the end, for work that can be saved.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    threading.Thread(target=_end_with_parent, args=(watched, grace), daemon=True).start()


def _end_with_parent(watched: Any, grace: float) -> None:
    watched.poll(None)  # nothing is ever sent: it returns when the other end is closed
    STOPPING.set()
    if grace:
        threading.Event().wait(grace)
    os._exit(1)
