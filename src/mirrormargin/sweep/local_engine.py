"""Processes on this machine, one task and one thread each.

Each worker is a pool of one process: when it dies, it is known which task it had, and the others
are not disturbed. Workers are forked from a server that has loaded everything, so a new one takes
milliseconds (where there is no such server they are started from scratch).
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from mirrormargin.errors import MirrorMarginError, SweepError
from mirrormargin.sweep.engines import Engine, Outcome
from mirrormargin.sweep.tasks import Result, Task, compute_task
from mirrormargin.sweep.worker_processes import begin_worker

__all__ = ["LocalEngine"]

MODULES = {
    "lab": "mirrormargin.sweep.preloaded_lab",
    "training": "mirrormargin.sweep.training_runs",
}
SAVING = 10.0  # seconds that an interrupted training has for its checkpoint


class LocalEngine(Engine):
    """A number of processes.

    Args:
        workers: How many.
        kind: "lab" or "training", for what the server imports.
    """

    def __init__(self, workers: int, kind: str) -> None:
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        self._context.set_forkserver_preload([MODULES[kind]])
        self._grace = SAVING if kind == "training" else 0.0
        self._workers = workers
        self._watched, self._held = self._context.Pipe(duplex=False)
        self._free: list[ProcessPoolExecutor] = []
        self._begun: dict[Future[Result], tuple[Task, ProcessPoolExecutor]] = {}

    @property
    def capacity(self) -> int:
        return self._workers

    def submit(self, task: Task) -> None:
        while True:
            worker = self._free.pop() if self._free else self._start()
            try:
                self._begun[worker.submit(compute_task, task)] = task, worker
                return
            except BrokenProcessPool:  # it died while it had nothing to do
                worker.shutdown(wait=False)

    def _start(self) -> ProcessPoolExecutor:
        arguments = (self._watched, self._grace)
        return ProcessPoolExecutor(1, self._context, begin_worker, arguments)

    def collect(self, timeout: float) -> list[Outcome]:
        ended, _ = wait(self._begun, timeout, FIRST_COMPLETED)
        outcomes = []
        for future in ended:
            task, worker = self._begun.pop(future)
            try:
                outcomes.append(Outcome(task, future.result()))
                self._free.append(worker)
            except BrokenProcessPool:
                worker.shutdown(wait=False)
                outcomes.append(Outcome(task, None, "the process that computed it died"))
            except MirrorMarginError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise SweepError(f"a worker cannot compute: {what}") from error
        return outcomes

    def close(self) -> None:
        # Without this end of the pipe they end, in the middle of their work.
        self._held.close()
        for worker in (*self._free, *(worker for _, worker in self._begun.values())):
            worker.shutdown(cancel_futures=True)
        self._free, self._begun = [], {}
        self._watched.close()
