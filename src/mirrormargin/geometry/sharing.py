"""Sharing out many small compiled jobs among threads, in a way that leaves results alone."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

__all__ = ["count_cores", "share_out"]

Memory = TypeVar("Memory")


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
