"""A command that torchrun has started several times: who may say what, and when.

Rank 0 talks. Another rank speaks only of an error of its own, which the first cannot know of: so it
waits before it does. If all ranks have made the same mistake, torchrun ends it before that, because
rank 0 has ended.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mirrormargin.errors import MirrorMarginError, RankError
from mirrormargin.training.launch import Parallel, choose_parallel, find_launch

if TYPE_CHECKING:
    from mirrormargin.training.distributed import Ranks

__all__ = ["is_follower", "is_restarted", "join_command", "wait_for_first"]

PATIENCE = 3.0  # seconds


def is_follower() -> bool:
    """Whether this is one of several processes, and not the first."""
    launch = find_launch()
    return launch is not None and launch.rank > 0


def is_restarted() -> bool:
    """Whether torchrun has started this command before, and it failed."""
    launch = find_launch()
    return launch is not None and launch.restarts > 0


def wait_for_first(line: str, error: Exception) -> str:
    """A line about an error, as it is to be said; by another rank than the first, after a while.

    Torchrun ends the process meanwhile if the first rank has ended.
    """
    launch = find_launch()
    if launch is None or launch.rank == 0:
        return line
    if not isinstance(error, RankError):  # those have waited
        time.sleep(PATIENCE)
    return line.replace("mirrormargin", f"mirrormargin, rank {launch.rank}", 1)


@contextmanager
def join_command(parallel: Parallel | None, device: str) -> Iterator[Ranks | None]:
    """The ranks that run this command, until the end of the block; None without torchrun.

    Raises:
        TrainingError: If ``parallel`` is given to a process that was started alone.
        RankError: If another rank is gone, or if this one, not being the first, has failed.
    """
    parallel = choose_parallel(parallel)
    if parallel is None:  # and torch need not be imported
        yield None
        return
    from mirrormargin.cli.watched_training import choose_device
    from mirrormargin.training.distributed import join_ranks

    with ExitStack() as stack:
        device = choose_device(device)
        # Whoever waits for a rank that never comes is deaf to Python's handlers.
        handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            ranks = stack.enter_context(join_ranks(parallel, device))
        finally:
            signal.signal(signal.SIGTERM, handler)
        try:
            yield ranks
        except Exception as error:
            if ranks.is_first:
                raise
            # Here and now: once this rank leaves, the first ends and speaks of a lost rank.
            if not isinstance(error, MirrorMarginError):
                traceback.print_exc()
                os._exit(1)
            time.sleep(PATIENCE)
            raise RankError(str(error)) from error
