"""Processes on this machine: the same table as in one process, whoever of them dies."""

import os
import random
import signal
import threading
import time
from typing import ClassVar

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from sweep_tables import same_bits

from mirrormargin.errors import SweepError
from mirrormargin.sweep import LabGrid, SweepFolder, run_sweep, running
from mirrormargin.sweep.local_engine import LocalEngine

GRID = LabGrid(seed="1-200", p=[1.75, 2.0, 3.0], num_steps=200)
FATAL = 13  # the seed of a problem that no process survives


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_sweep(GRID, tmp_path_factory.mktemp("whole"), workers=0).read_table()


class Watched(LocalEngine):
    """An engine whose workers can be killed from outside."""

    made: ClassVar[list["Watched"]] = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(self)
        self.pids: set[int] = set()

    def submit(self, task):
        super().submit(task)
        workers = [worker for _, worker in self._begun.values()] + self._free
        self.pids = {pid for worker in workers for pid in worker._processes}


def kill_workers(times, seconds, seed, stop):
    """Kill one of the workers of the newest engine now and then; returns how many there were."""
    generator, killed = random.Random(seed), []

    def kill():
        while len(killed) < times and not stop.wait(generator.uniform(0, 2 * seconds)):
            pids = sorted(Watched.made[-1].pids) if Watched.made else []
            try:
                os.kill(generator.choice(pids), signal.SIGKILL)
                killed.append(time.monotonic())
            except (IndexError, ProcessLookupError):
                pass

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


def sweep_with_kills(folder, monkeypatch, times, seconds, seed):
    """Run the grid while workers are killed; returns the sweep, whose rows came back, and kills."""
    monkeypatch.setattr("mirrormargin.sweep.local_engine.LocalEngine", Watched)
    kept = []
    add = SweepFolder.add
    monkeypatch.setattr(
        SweepFolder, "add", lambda self, *row: (kept.append(row[:2]), add(self, *row))
    )
    stop = threading.Event()
    thread, killed = kill_workers(times, seconds, seed, stop)
    try:
        swept = run_sweep(GRID, folder, workers=2, most=10)
    finally:
        stop.set()
        thread.join()
    return swept, kept, killed


def test_processes_make_the_table_that_one_makes(tmp_path, whole):
    swept = run_sweep(GRID, tmp_path, workers=2)
    assert same_bits(swept.read_table(), whole)
    assert 0 < swept.cpu_seconds < 60


def test_killed_workers_are_replaced_and_nothing_is_counted_twice(tmp_path, whole, monkeypatch):
    swept, kept, killed = sweep_with_kills(tmp_path, monkeypatch, times=4, seconds=0.15, seed=1)
    assert killed
    assert same_bits(swept.read_table(), whole)
    firsts, stops = zip(*sorted(kept), strict=True)
    assert (*firsts, 600) == (0, *stops)  # every run once


@pytest.mark.slow
def test_workers_killed_at_25_random_moments(tmp_path, whole, monkeypatch):
    killed = 0
    for seed in range(2, 100):
        swept, _, kills = sweep_with_kills(
            tmp_path / str(seed), monkeypatch, times=25 - killed, seconds=0.1, seed=seed
        )
        killed += len(kills)
        assert same_bits(swept.read_table(), whole)
        if killed == 25:
            return
    pytest.fail(f"only {killed} workers were killed")


def test_a_run_that_kills_its_process_is_found_and_the_others_are_done(
    tmp_path, whole, monkeypatch
):
    # Every problem of that seed ends the process.
    (tmp_path / "fatal_problems.py").write_text(
        "import os\n"
        "from mirrormargin.attention import synthetic\n"
        "from mirrormargin.sweep import lab_runs\n"
        "def make(seed, **sizes):\n"
        f"    return os._exit(3) if seed == {FATAL} else synthetic.unit_sphere(seed, **sizes)\n"
        "lab_runs.synthetic.GENERATORS = {'unit_sphere': make}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("mirrormargin.sweep.local_engine.compute_task", _import_and_compute)
    swept = run_sweep(GRID, tmp_path / "sweep", workers=2, most=6)
    rows = swept.read_table().to_pylist()
    failed = [row for row in rows if row["status"] == "failed"]
    assert [(row["seed"], row["p"]) for row in failed] == [(FATAL, p) for p in (1.75, 2.0, 3.0)]
    assert {row["error"] for row in failed} == {"the process that computed it died, 3 times"}
    first = (FATAL - 1) * 3
    assert same_bits(swept.read_table().slice(0, first), whole.slice(0, first))
    assert len(rows) == 600


def _import_and_compute(task):
    import fatal_problems  # noqa: F401

    from mirrormargin.sweep.tasks import compute_task

    return compute_task(task)


def test_workers_that_all_die_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormargin.sweep.local_engine.compute_task", _die)
    monkeypatch.setattr(running, "MOST_DEATHS", 5)
    with pytest.raises(SweepError, match="5 processes died one after the other"):
        run_sweep(GRID, tmp_path, workers=2)


def _die(task):
    os._exit(3)


def test_a_worker_that_cannot_compute_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormargin.sweep.local_engine.compute_task", _fail)
    with pytest.raises(SweepError, match="a worker cannot compute: OSError: no such thing"):
        run_sweep(GRID, tmp_path, workers=2)
    assert run_sweep(GRID, tmp_path, workers=0, most=600).failed == 0


def _fail(task):
    raise OSError("no such thing")
