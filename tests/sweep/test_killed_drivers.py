"""A driver that is killed leaves a valid table, and loses no more than what was under way."""

import random
import signal
import time

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

import pyarrow.parquet as pq
from killed_sweep import SweepServer, make_grid
from sweep_tables import same_bits

from mirrormargin.sweep import SweepFolder, run_sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_sweep(make_grid(), tmp_path_factory.mktemp("whole"), workers=0).read_table()


@pytest.fixture(scope="module")
def server():
    with SweepServer() as running:
        yield running


def kill_often(server, folder, whole, workers, kills, seconds, seed):
    """Kill a sweep so many times, look at what each kill leaves, and run it to its end."""
    generator = random.Random(seed)
    before, killed = 0, 0
    for _ in range(kills):
        ended = server.sweep(folder, workers, generator.uniform(0, seconds))
        killed += ended.code == -signal.SIGKILL
        kept = SweepFolder(folder)
        tasks = [tuple(map(int, said.split())) for said in ended.said]
        lost = [task for task in tasks if any(kept.done.gaps(*task))]
        assert len(lost) <= (workers or 1)
        assert len(kept.done) == before + sum(stop - first for first, stop in tasks) - sum(
            stop - first for first, stop in lost
        )
        before = len(kept.done)
        found = kept.read_table()
        assert same_bits(found, whole.take(found["run"]))
        if any((folder / "table").glob("*")):
            runs = pq.read_table(folder / "table", columns=["run"])["run"].to_pylist()
            assert len(set(runs)) == len(runs)
    assert server.sweep(folder, workers).code == 0
    assert same_bits(SweepFolder(folder).read_table(), whole)
    assert not (folder / "fresh").exists()
    return killed


def test_a_killed_driver_loses_what_was_under_way(server, tmp_path, whole):
    assert kill_often(server, tmp_path, whole, workers=0, kills=4, seconds=0.2, seed=1) > 1


def test_a_killed_driver_takes_its_workers_with_it(server, tmp_path, whole):
    assert kill_often(server, tmp_path, whole, workers=2, kills=1, seconds=0.1, seed=1) == 1
    end = time.monotonic() + 30
    while server.count_processes() > 1 and time.monotonic() < end:
        time.sleep(0.05)
    assert server.count_processes() == 1


@pytest.mark.slow
def test_drivers_killed_at_25_random_moments(server, tmp_path, whole):
    killed = 0
    for seed in range(2, 9):
        killed += kill_often(server, tmp_path / str(seed), whole, 0, 3, 0.25, seed)
    for seed in range(2, 4):
        killed += kill_often(server, tmp_path / f"local{seed}", whole, 2, 3, 0.15, seed)
    assert killed >= 20  # some had ended before
