"""A Ray cluster: tasks with a core each, retried by Ray where a worker or a node is lost.

Ray schedules, restarts, and keeps results that nobody has fetched yet, on disk if there are many.
The nodes need the same version of this package and, for trainings, the data and a file system that
all of them see.
"""

from __future__ import annotations

import time
from typing import Any

from mirrormargin.environment import list_versions
from mirrormargin.errors import MissingLibraryError, SweepError
from mirrormargin.sweep.engines import Engine, Outcome
from mirrormargin.sweep.tasks import Result, Task, compute_task

__all__ = ["RayEngine"]

RETRIES = 3  # by Ray, before we hear of it
AHEAD = 2  # tasks for each core: the next one is there when one ends
LOOK = 10.0  # seconds between two looks at how large the cluster is
PATIENCE = 300.0  # seconds without any core, for nodes that come
COMPARED = ("mirrormargin", "python", "numpy", "numba")


class RayEngine(Engine):
    """A cluster, or a part of it.

    Args:
        address: As of ``ray.init``: "auto" for the cluster that this machine belongs to.
        workers: Most tasks at a time; None for twice as many as the cluster has cores.
        gpus: How many each task needs.

    Raises:
        MissingLibraryError: (an ImportError) If Ray is absent.
        SweepError: If there is no cluster.
    """

    def __init__(
        self, address: str = "auto", workers: int | None = None, gpus: float = 0.0
    ) -> None:
        self._ray = import_ray()
        self._workers, self._gpus = workers, gpus
        self._is_own = not self._ray.is_initialized()
        if self._is_own:
            try:
                self._ray.init(address, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:300]
                raise SweepError(
                    f"there is no Ray cluster at {address!r} ({reason}): start one with ray start"
                    " --head, or give --address HOST:PORT"
                ) from error
        options: dict[str, Any] = {
            "num_cpus": 1,
            "num_gpus": gpus,
            "max_retries": RETRIES,
            "scheduling_strategy": "SPREAD",
        }
        self._compute = self._ray.remote(**options)(_compute_checked)
        self._begun: dict[Any, Task] = {}
        self._looked, self._capacity = 0.0, 1
        self._able = time.monotonic()  # when the cluster was last seen to have what a task needs

    @property
    def capacity(self) -> int:
        """Nodes may come and go."""
        now = time.monotonic()
        if now - self._looked > LOOK or not self._looked:
            self._looked = now
            found = self._ray.cluster_resources()
            cores = found.get("CPU", 0.0)
            if self._gpus:
                cores = min(cores, found.get("GPU", 0.0) / self._gpus)
            self._able = now if cores else self._able
            self._capacity = max(1, int(AHEAD * cores) if self._workers is None else self._workers)
        return self._capacity

    def submit(self, task: Task) -> None:
        self._begun[self._compute.remote(task, _list_compared())] = task

    def collect(self, timeout: float) -> list[Outcome]:
        waiting = list(self._begun)
        ready, _ = self._ray.wait(waiting, num_returns=1, timeout=timeout, fetch_local=False)
        if not ready and time.monotonic() - self._able > PATIENCE:
            raise SweepError(
                f"the cluster has had nothing to compute with for {PATIENCE:g} seconds: add nodes,"
                " and resume"
            )
        if ready:  # and whatever else there is
            ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [self._fetch(reference) for reference in ready]

    def _fetch(self, reference: Any) -> Outcome:
        task = self._begun.pop(reference)
        exceptions = self._ray.exceptions
        try:
            return Outcome(task, self._ray.get(reference))
        except exceptions.RayTaskError as error:  # what is raised outside of the runs themselves
            what = " ".join(str(error.cause if error.cause is not None else error).split())
            raise SweepError(
                f"a worker cannot compute: {what[-300:]}; install the same versions on all nodes"
            ) from error
        except exceptions.RayError as error:
            name = type(error).__name__
            return Outcome(task, None, f"the process that computed it died ({name})")

    def close(self) -> None:
        for reference in self._begun:
            self._ray.cancel(reference, force=True)
        self._begun = {}
        if self._is_own:
            self._ray.shutdown()


def import_ray() -> Any:
    """The library.

    Raises:
        MissingLibraryError: (an ImportError) If it is absent.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.exceptions  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingLibraryError(
            "ray is not installed, and --engine ray needs it: pip install 'mirrormargin[ray]'"
        ) from None
    return ray


def _list_compared() -> dict[str, str]:
    versions = list_versions()
    return {name: versions[name] for name in COMPARED}


def _compute_checked(task: Task, versions: dict[str, str]) -> Result:
    """Compute on a node, once it is known to have the versions of the driver."""
    own = _list_compared()
    if own != versions:
        other = ", ".join(f"{name} {own[name]}" for name in own if own[name] != versions[name])
        raise SweepError(f"a node has {other}, and the driver has others")
    return compute_task(task)
