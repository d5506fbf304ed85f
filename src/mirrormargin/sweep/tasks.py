"""What goes to a worker and what comes back: a stretch of runs, and their rows.

A task is small, whatever the number of its runs: a product of settings and two numbers. A result is
bytes, so that every engine carries the same thing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.sweep.axes import Product
from mirrormargin.sweep.table import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["Place", "Result", "Task", "compute_task"]


@dataclass(frozen=True)
class Place:
    """Where runs are computed; it does not change what comes out.

    Attributes:
        folder: Of the sweep, for the folders of trainings.
        data_dir: Where the data of trainings is; None for the usual places.
        device: On what trainings compute.
    """

    folder: str
    data_dir: str | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Task:
    """Runs ``first <= number < stop`` of a sweep, all of one product.

    Attributes:
        kind: "lab" or "training".
        product: The product as a document.
        offset: Number of its first run.
        first: The first of these runs, numbered in the sweep.
        stop: The one behind the last.
        place: Where they are computed.
        cost: Of each run, in the units of the sweep's plan.
        lost: Why nothing can compute them; they are then failed runs.
    """

    kind: str
    product: dict[str, Any]
    offset: int
    first: int
    stop: int
    place: Place
    cost: float = 1.0
    lost: str = ""

    def __len__(self) -> int:
        return self.stop - self.first

    def cut(self) -> list[Task]:
        """Its two halves."""
        middle = (self.first + self.stop) // 2
        return [replace(self, stop=middle), replace(self, first=middle)]


@dataclass(frozen=True)
class Result:
    """The rows of a task, and the processor time that they took."""

    rows: bytes
    cpu_seconds: float

    def to_table(self) -> pa.Table:
        """The rows."""
        pa = import_pyarrow()
        return pa.ipc.open_stream(self.rows).read_all()


def compute_task(task: Task) -> Result:
    """Compute all runs of a task; what they raise is in their rows."""
    from mirrormargin.geometry.threads import limit_threads

    begin = time.process_time()
    with limit_threads(1), _limit_torch(task.kind):  # sums keep their order
        rows = _compute(task)
    return Result(_to_bytes(rows), time.process_time() - begin)


def _compute(task: Task) -> pa.Table:
    product = Product.from_document(task.product)
    first, stop = task.first - task.offset, task.stop - task.offset
    if task.kind == "lab":
        from mirrormargin.sweep.lab_runs import compute_lab_runs

        return compute_lab_runs(product, first, stop, task.offset, task.lost)
    from mirrormargin.sweep.training_runs import compute_trainings

    where = (Path(task.place.folder), task.place.data_dir, task.place.device)
    return compute_trainings(product, first, stop, task.offset, *where, lost=task.lost)


@contextmanager
def _limit_torch(kind: str) -> Iterator[None]:
    if kind != "training":
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _to_bytes(table: pa.Table) -> bytes:
    pa = import_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
