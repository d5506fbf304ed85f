"""Who computes tasks: what every engine can do, and the one that is this process itself.

An engine is given tasks up to its capacity, and returns outcomes in whatever order they come. What
a run raises is in its row; an outcome without a result is a worker that died.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from mirrormargin.sweep.tasks import Result, Task, compute_task

__all__ = ["Engine", "Outcome", "SerialEngine"]


@dataclass(frozen=True)
class Outcome:
    """A task that has ended.

    Attributes:
        task: Which.
        result: Its rows; None if what computed it died.
        why: How it died.
    """

    task: Task
    result: Result | None
    why: str = ""


class Engine(ABC):
    """Computes tasks; used in a ``with``, at whose end everything that still works is stopped."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many tasks it should have at a time."""

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Begin a task."""

    @abstractmethod
    def collect(self, timeout: float) -> list[Outcome]:
        """Tasks that have ended; waits until there is one, or for so many seconds.

        Raises:
            SweepError: If workers cannot compute anything at all.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop everything."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SerialEngine(Engine):
    """This process; a run that kills it ends the sweep."""

    def __init__(self) -> None:
        self._waiting: deque[Task] = deque()

    @property
    def capacity(self) -> int:
        return 1

    def submit(self, task: Task) -> None:
        self._waiting.append(task)

    def collect(self, timeout: float) -> list[Outcome]:
        task = self._waiting.popleft()
        return [Outcome(task, compute_task(task))]

    def close(self) -> None:
        self._waiting.clear()
