"""Running the parts of stories, on several cores, each saved as soon as it is done.

When the parent dies, or closes its end of a pipe, every worker ends, even in the middle of a part.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrormargin.claims.registry import STORIES
from mirrormargin.errors import MirrorMarginError, RunError
from mirrormargin.runs import write_run
from mirrormargin.sweep.worker_processes import begin_worker

__all__ = ["PART", "Part", "run_parts"]

PART = "evidence part"


@dataclass(frozen=True)
class Part:
    """One part of a story and the folder that its arrays go to."""

    experiment: str
    settings: dict[str, Any]
    part: Any
    folder: Path

    def run(self) -> None:
        # One thread each: the processes share the cores, and sums keep their order.
        from threadpoolctl import threadpool_limits

        run = STORIES[self.experiment].run
        assert run is not None
        start = time.perf_counter()
        with threadpool_limits(1):
            arrays = run(self.settings, self.part)
        seconds = round(time.perf_counter() - start, 2)
        write_run(self.folder, PART, {"part": self.part, "seconds": seconds}, arrays)


def run_parts(parts: Sequence[Part], workers: int, report: Callable[[Part], object]) -> None:
    """Run all parts, and call ``report`` after each.

    Args:
        parts: In the order in which they begin.
        workers: Processes to use; 1 for this one.
        report: Called in this process.

    Raises:
        MirrorMarginError: What a part raised.
        RunError: If a worker died.
        RuntimeError: If a part raised anything else.
    """
    if workers <= 1 or not parts:
        for part in parts:
            part.run()
            report(part)
        return
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(parts)), context, begin_worker, (watched,))
    try:
        futures = {pool.submit(_run, part): part for part in parts}
        for future in as_completed(futures):
            future.result()
            report(futures[future])
    except BrokenProcessPool:
        raise RunError(
            "a process that ran some of the parts died: is there enough memory? What is done is"
            " kept; run the same command again"
        ) from None
    except BaseException:
        held.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        held.close()
        watched.close()


def _run(part: Part) -> None:
    """Run in a worker; errors return as text, because pickle may not know what they carry."""
    try:
        part.run()
    except MirrorMarginError as error:
        raise MirrorMarginError(f"{type(error).__name__}: {error}") from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"{part.experiment}, part {part.part}, failed: {what}") from None
