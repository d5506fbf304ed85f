"""Running the parts of experiments, on several cores, each saved as soon as it is done.

A worker is a process that takes one part after the other from its pipe. It watches its parent, so
none is left behind when that is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mirrormargin.claims.registry import STORIES
from mirrormargin.errors import MirrorMarginError, RunError
from mirrormargin.runs import write_run

__all__ = ["PART", "Part", "run_parts"]

PART = "evidence part"


@dataclass(frozen=True)
class Part:
    """One part of an experiment and the folder that its arrays go to."""

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
        RuntimeError: If a part failed in a way that nobody foresaw.
    """
    if workers <= 1:
        for part in parts:
            part.run()
            report(part)
        return
    for part in _share(parts, min(workers, len(parts))):
        report(part)


def _share(parts: Sequence[Part], count: int) -> Iterator[Part]:
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(parts))
    busy: dict[Any, Part] = {}
    processes = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            busy[ours] = waiting.pop()
            ours.send(busy[ours])
        while busy:
            for ours in wait(list(busy)):
                assert isinstance(ours, Connection)
                done = busy.pop(ours)
                _receive(ours, done)
                yield done
                if waiting:
                    busy[ours] = waiting.pop()
                    ours.send(busy[ours])
                else:
                    ours.close()
    finally:
        for process in processes:
            process.terminate()
            process.join()
        for ours in busy:
            ours.close()


def _receive(ours: Connection, part: Part) -> None:
    try:
        error = ours.recv()
    except EOFError:
        raise RunError(
            f"the process that ran {part.experiment}, part {part.part}, died: is there enough"
            " memory? What is done is kept; run the same command again"
        ) from None
    if isinstance(error, MirrorMarginError):
        raise error
    if error is not None:
        raise RuntimeError(f"{part.experiment}, part {part.part}, failed: {error}")


def _work(theirs: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            part: Part = theirs.recv()
        except EOFError:
            return
        message: MirrorMarginError | str | None = None
        try:
            part.run()
        except MirrorMarginError as error:
            # Without what it carries, which pickle may not know.
            message = MirrorMarginError(f"{type(error).__name__}: {error}")
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        try:
            theirs.send(message)
        except OSError:  # the parent has gone
            return


def _end_with_parent() -> None:
    """In the middle of a part, too: nobody would use it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
