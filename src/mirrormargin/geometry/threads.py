"""How many threads are used: by jobs of our own and by the linear algebra below NumPy.

Neither changes a result that is promised to be the same: :func:`share_out` gives each job to one
thread, and :func:`limit_threads` holds BLAS to the number it is asked for.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = ["ONE_THREAD_BELOW", "count_cores", "limit_threads", "share_out"]

Memory = TypeVar("Memory")

ONE_THREAD_BELOW = 400  # rows or unknowns of a linear system: threads of BLAS wait for each other

# BLAS has one number of threads for the whole process: a second caller who sets it must wait.
_lock = threading.RLock()


def count_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_out(
    do: Callable[[int, Memory], None], count: int, threads: int, allocate: Callable[[], Memory]
) -> None:
    """Call ``do(job, memory)`` for each job below ``count``, each thread with its own memory.

    After an exception, or an interrupt, no thread begins another job.
    """
    waiting = deque(range(count))

    def take() -> None:
        memory = allocate()
        # The setting belongs to the thread.
        with np.errstate(all="ignore"):
            while True:
                try:
                    job = waiting.popleft()
                except IndexError:
                    return
                try:
                    do(job, memory)
                except BaseException:
                    waiting.clear()
                    raise

    threads = min(threads, count)
    if threads <= 1:
        take()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="mirrormargin") as pool:
        try:
            for worker in [pool.submit(take) for _ in range(threads)]:
                worker.result()
        finally:
            waiting.clear()


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
