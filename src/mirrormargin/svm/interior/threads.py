"""How many cores the linear algebra may use."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["limit_threads"]


def limit_threads(threads: int | None) -> AbstractContextManager[Any]:
    """Hold BLAS to a number of threads inside a ``with``; None changes nothing."""
    if threads is None:
        return nullcontext()
    return _controller().limit(limits=int(threads), user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    # Looking through the loaded libraries takes milliseconds: once is enough.
    return ThreadpoolController()
