"""Sweeps in processes of their own, to be killed at any moment."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.soak.processes import Ended, ForkingServer, report

TASK = 10  # runs
MARK = "MIRRORMARGIN_KILLED_SWEEP"  # what processes of a server have in their environment


def make_grid():
    """A grid of 600 runs, which take about half a second."""
    from mirrormargin.sweep import LabGrid

    return LabGrid(seed="1-200", p=[1.75, 2.0, 3.0], num_steps=200)


class SweepServer(ForkingServer):
    """Runs one sweep at a time, at most."""

    def __init__(self) -> None:
        super().__init__(path=(Path(__file__).parent,), env={MARK: str(os.getpid())})
        self.warm("killed_sweep:prepare")

    def sweep(self, folder: Path, workers: int, kill_after: float | None = None) -> Ended:
        """Run the sweep, or resume it; it reports the first and the last run of each task.

        Args:
            folder: Where.
            workers: Of the local engine; 0 for none.
            kill_after: Seconds after its first task has begun.
        """
        pid = self.start("killed_sweep:sweep", str(folder), workers)
        if kill_after is not None:
            self.wait_until_begun(pid)
            time.sleep(kill_after)
            self.interrupt(pid, signal.SIGKILL)
        return self.wait(pid)

    def count_processes(self) -> int:
        """How many processes there are: the server, drivers and all that they have started."""
        mark = f"{MARK}={os.getpid()}".encode()
        count = 0
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                count += mark in path.read_bytes().split(b"\0")
        return count


def prepare() -> None:
    """One run, so that no process has to import or compile anything."""
    import pyarrow.parquet  # noqa: F401

    from mirrormargin.sweep import preloaded_lab, running  # noqa: F401


def sweep(folder: str, workers: int) -> int:
    """A sweep that reports each task as it begins."""
    from mirrormargin.sweep import run_sweep
    from mirrormargin.sweep.engines import SerialEngine
    from mirrormargin.sweep.local_engine import LocalEngine

    kind = LocalEngine if workers else SerialEngine
    submit = kind.submit

    def note(self, task) -> None:
        report(f"{task.first} {task.stop}")
        submit(self, task)

    kind.submit = note
    return run_sweep(make_grid(), folder, workers=workers, most=TASK).failed
