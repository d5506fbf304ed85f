"""How many cores the linear algebra may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["limit_threads"]

# The number belongs to the process: of two callers with a wish, the second waits.
_lock = threading.RLock()


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Hold BLAS to a number of threads inside a ``with``; None changes nothing."""
    if threads is None:
        yield
        return
    with _lock, _controller().limit(limits=int(threads), user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    # Looking through the loaded libraries takes milliseconds: once is enough.
    return ThreadpoolController()
