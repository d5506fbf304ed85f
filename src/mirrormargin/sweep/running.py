"""Running a sweep: tasks go to an engine, rows come back, what a killed worker had is tried again.

The driver holds the tasks that are under way, intervals of what is done, and the rows of a part of
the table while it is written: nothing that grows with the number of runs.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mirrormargin.arguments import check_choice, check_count, check_number
from mirrormargin.environment import list_versions
from mirrormargin.errors import MirrorMarginWarning, RunError, SweepError
from mirrormargin.geometry.compiler import require_numba
from mirrormargin.geometry.threads import count_cores
from mirrormargin.sweep.engines import Engine, SerialEngine
from mirrormargin.sweep.folder import SweepFolder
from mirrormargin.sweep.lab_grid import LabGrid
from mirrormargin.sweep.plan import estimate_cost, list_blocks, list_tasks
from mirrormargin.sweep.table import import_pyarrow
from mirrormargin.sweep.tasks import Place, Result, Task, compute_task
from mirrormargin.sweep.training_grid import TrainingGrid, find_training_default

__all__ = ["SweepPlan", "SweepProgress", "plan_sweep", "resume_sweep", "run_sweep"]

Grid = LabGrid | TrainingGrid
TRIES = 3  # of a task whose worker dies, before it is cut in two
MOST_DEATHS = 30  # of workers, without a single result in between
LOOK = 0.5  # seconds between two calls of the callback, about


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        done: Runs, failed ones included.
        failed: Runs that raised.
        total: Runs.
        share: Of the work that is done, which is not that of the runs if some are longer.
    """

    done: int
    failed: int
    total: int
    share: float


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep would be.

    Attributes:
        total: Runs.
        done: Runs that are done already.
        cpu_seconds: What the others take of one core, about; None for trainings.
    """

    total: int
    done: int
    cpu_seconds: float | None


def run_sweep(
    grid: Grid | Sequence[Grid],
    folder: str | Path,
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    address: str = "auto",
    gpus: float = 0.0,
    data_dir: str | Path | None = None,
    most: int | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], object] | None = None,
) -> SweepFolder:
    """Run everything that a grid asks for and the folder does not have yet.

    A script that calls this must do so below ``if __name__ == "__main__":``, for workers import it.

    Args:
        grid: One grid, or several of a kind.
        folder: Where the table is kept. A sweep that is there already gets the runs that are new.
        engine: "local" for processes on this machine, or "ray".
        workers: Processes, or most tasks at a time on a cluster; None for all cores. With 0 this
            process computes, which is good for finding mistakes.
        address: Of the Ray cluster.
        gpus: GPUs, or a share of one, that each training gets; with any it computes there.
        data_dir: Where the data of trainings is.
        most: Runs of a task in the lab; None for about ten seconds of a core.
        retry_failed: Run those again that failed before.
        progress: Called about twice a second. If it raises KeyboardInterrupt, the sweep ends with
            all that is done in its table.

    Raises:
        SweepError: (a ValueError) If the folder holds a sweep of another kind, or workers cannot
            compute.
        RunError: If the folder cannot be written, is damaged, or another process is writing there.
        MissingLibraryError: (an ImportError) If pyarrow or Ray is absent.
    """
    import_pyarrow()  # before anything is written
    sweep = SweepFolder(folder)
    with sweep.hold():
        before = sweep.size
        _extend(sweep, grid)
        if sweep.size > before:
            sweep.write_document()
        return resume_sweep(
            folder,
            engine=engine,
            workers=workers,
            address=address,
            gpus=gpus,
            data_dir=data_dir,
            most=most,
            retry_failed=retry_failed,
            progress=progress,
        )


def plan_sweep(grid: Grid | Sequence[Grid], folder: str | Path) -> SweepPlan:
    """What :func:`run_sweep` would do; nothing is written.

    Raises:
        SweepError: (a ValueError) If the folder holds a sweep of another kind.
        RunError: If it is damaged.
    """
    sweep = SweepFolder(folder)
    _extend(sweep, grid)
    _, left = estimate_cost(list_blocks(sweep.kind, sweep.products), sweep.done)
    return SweepPlan(sweep.size, len(sweep.done), left if sweep.kind == "lab" else None)


def _extend(sweep: SweepFolder, grid: Grid | Sequence[Grid]) -> None:
    grids = [grid] if isinstance(grid, (LabGrid, TrainingGrid)) else list(grid)
    kinds = {one.kind for one in grids}
    if len(kinds) != 1:
        raise SweepError(
            "a sweep has runs of one kind: give those of another a folder of their own"
        )
    (kind,) = kinds
    find_default = find_training_default if kind == "training" else _find_none
    sweep.extend(kind, [product for one in grids for product in one.products], find_default)


def _find_none(product: Any, name: str) -> None:
    """What a lab run has where its problem has no such setting."""


def resume_sweep(
    folder: str | Path,
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    address: str = "auto",
    gpus: float = 0.0,
    data_dir: str | Path | None = None,
    most: int | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], object] | None = None,
) -> SweepFolder:
    """Run what is left of a sweep; the arguments are those of :func:`run_sweep`.

    Raises:
        RunError: If there is no sweep, and what else :func:`run_sweep` raises.
    """
    check_choice("engine", engine, ("local", "ray"), error=SweepError)
    if workers is not None:
        check_count("workers", workers, least=int(engine == "ray"), error=SweepError)
    if most is not None:
        check_count("most", most, error=SweepError)
    check_number("gpus", gpus, least=0.0, error=SweepError)
    sweep = SweepFolder(folder)
    if not sweep.exists:
        raise RunError(
            f"{folder} holds no sweep: begin one with run_sweep or mirrormargin sweep run"
        )
    if sweep.kind == "lab":
        require_numba("a sweep of lab runs")
    _warn_of_versions(sweep)
    with sweep.hold():
        if retry_failed:
            sweep.forget_failed()
        sweep.merge()
        if len(sweep.done) == sweep.size:
            return sweep
        data = None if data_dir is None else str(Path(data_dir).absolute())
        place = Place(str(sweep.path.absolute()), data, "cuda" if gpus else "cpu")
        with _open_engine(engine, workers, sweep.kind, address, gpus) as chosen:
            try:
                _Run(sweep, chosen, place, most, progress).run()
            except BaseException:
                with suppress(RunError):  # what went wrong first is what is told
                    sweep.merge()
                raise
        sweep.merge()
    return sweep


def _warn_of_versions(sweep: SweepFolder) -> None:
    now = list_versions()
    changes = [
        f"{name} {before}, now {now.get(name)}"
        for name, before in sweep.versions.items()
        if now.get(name) != before
    ]
    if changes:
        warnings.warn(
            f"{sweep.path} was begun with {', '.join(changes)}: new rows may differ from what they"
            " would have been in their last bits",
            MirrorMarginWarning,
            stacklevel=3,
        )


def _open_engine(name: str, workers: int | None, kind: str, address: str, gpus: float) -> Engine:
    if name == "ray":
        from mirrormargin.sweep.ray_engine import RayEngine

        return RayEngine(address, workers, gpus)
    if workers == 0:
        return SerialEngine()
    from mirrormargin.sweep.local_engine import LocalEngine

    return LocalEngine(workers or count_cores(), kind)


class _Run:
    """One call: what is under way, and what has to be tried again."""

    def __init__(
        self,
        sweep: SweepFolder,
        engine: Engine,
        place: Place,
        most: int | None,
        progress: Callable[[SweepProgress], object] | None,
    ) -> None:
        self.sweep, self.engine, self.progress = sweep, engine, progress
        self.cost, self.left = estimate_cost(list_blocks(sweep.kind, sweep.products), sweep.done)
        self.new: Iterator[Task] = list_tasks(
            sweep.kind, sweep.products, sweep.done, place, self._choose_size(most)
        )
        self.again: deque[Task] = deque()
        self.tries: dict[tuple[int, int], int] = {}
        self.under_way = 0
        self.deaths = 0

    def _choose_size(self, most: int | None) -> int | None:
        """Small sweeps are cut finer, so that every worker gets something to do."""
        if most is not None:
            return most
        left = self.sweep.size - len(self.sweep.done)
        return max(1, left // (4 * self.engine.capacity))

    def run(self) -> None:
        while True:
            self.report()
            while self.under_way < self.engine.capacity and (task := self.take()) is not None:
                self.engine.submit(task)
                self.under_way += 1
            if not self.under_way:
                return
            for outcome in self.engine.collect(LOOK):
                self.under_way -= 1
                if outcome.result is None:
                    self.retry(outcome.task, outcome.why)
                else:
                    self.deaths = 0
                    self.keep(outcome.task, outcome.result)

    def take(self) -> Task | None:
        """The next task."""
        return self.again.popleft() if self.again else next(self.new, None)

    def keep(self, task: Task, result: Result) -> None:
        self.tries.pop((task.first, task.stop), None)
        self.sweep.add(task.first, task.stop, result.to_table(), result.cpu_seconds)
        self.left -= task.cost * len(task)

    def retry(self, task: Task, why: str) -> None:
        """Try again what a dead worker had; what kills every worker is cut down to single runs."""
        self.deaths += 1
        if self.deaths >= MOST_DEATHS:
            raise SweepError(
                f"{self.deaths} processes died one after the other ({why}): is there enough"
                " memory? A script must call run_sweep below if __name__ == '__main__'. What is"
                " done is kept"
            )
        stretch = task.first, task.stop
        tries = self.tries.pop(stretch, 0) + 1
        if tries < TRIES:
            self.tries[stretch] = tries
            self.again.append(task)
        elif len(task) > 1:
            self.again.extend(task.cut())
        else:
            self.keep(task, compute_task(replace(task, lost=f"{why}, {tries} times")))

    def report(self) -> None:
        if self.progress is not None:
            share = min(max(1.0 - self.left / self.cost, 0.0), 1.0) if self.cost else 1.0
            done = len(self.sweep.done)
            self.progress(SweepProgress(done, self.sweep.failed, self.sweep.size, share))
