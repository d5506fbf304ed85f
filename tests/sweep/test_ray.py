"""A Ray cluster of two nodes on this machine: the same table, whichever node or worker is lost."""

import os
import random
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")
pytest.importorskip("ray", reason="ray is not installed: mirrormargin[ray]")

import ray
from ray.cluster_utils import Cluster
from sweep_tables import same_bits

from mirrormargin.errors import SweepError
from mirrormargin.sweep import LabGrid, SweepFolder, TrainingGrid, ray_engine, run_sweep

# Ray leaves sockets and files to be closed when the interpreter ends.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")

GRID = LabGrid(seed="1-400", p=[1.75, 2.0, 3.0], num_steps=400)


@pytest.fixture
def cluster():
    """Two nodes with a core for tasks each, and a head without one."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_sweep(GRID, tmp_path_factory.mktemp("whole"), workers=2).read_table()


def find_workers(cluster):
    """Processes that the nodes of this cluster have started for tasks, and not their agents."""
    raylets = {
        info.process.pid
        for node in cluster.worker_nodes
        for info in node.all_processes.get("raylet", ())
    }
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            name = (folder / "cmdline").read_text()
        except (OSError, ValueError):
            continue
        if parent in raylets and name.startswith(("ray::_compute", "ray::IDLE")):
            found.append(int(folder.name))
    return found


def note_rows(monkeypatch):
    """The stretches of runs whose rows are kept, as they come."""
    kept = []
    add = SweepFolder.add

    def note(self, first, stop, *rest):
        kept.append((first, stop))
        return add(self, first, stop, *rest)

    monkeypatch.setattr(SweepFolder, "add", note)
    return kept


def check_rows(kept, count):
    """Every run came exactly once."""
    firsts, stops = zip(*sorted(kept), strict=True)
    assert (*firsts, count) == (0, *stops)


def test_a_lost_node_and_lost_workers_change_nothing(cluster, tmp_path, whole, monkeypatch):
    kept = note_rows(monkeypatch)
    generator, killed, stop = random.Random(1), [], threading.Event()

    def kill_workers():
        while len(killed) < 6 and not stop.wait(generator.uniform(0.1, 0.6)):
            if kept and (pids := find_workers(cluster)):
                try:
                    os.kill(generator.choice(pids), signal.SIGKILL)
                    killed.append(len(kept))
                except ProcessLookupError:
                    pass

    lost = []

    def lose_node(progress):
        if progress.done >= 300 and not lost:
            lost.append(progress.done)
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)

    thread = threading.Thread(target=kill_workers)
    thread.start()
    try:
        swept = run_sweep(
            GRID, tmp_path, engine="ray", address=cluster.address, most=12, progress=lose_node
        )
    finally:
        stop.set()
        thread.join()
    assert lost
    assert killed
    assert swept.failed == 0
    check_rows(kept, 1200)
    assert same_bits(swept.read_table(), whole)


def test_runs_and_trainings_are_those_of_the_local_engine(cluster, tmp_path, whole, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it brings the digits")
    there = {"engine": "ray", "address": cluster.address}
    swept = run_sweep(GRID, tmp_path / "lab", **there)
    assert same_bits(swept.read_table(), whole)
    small = {"epochs": 2, "data.num_train": 200, "frontier_size": 50, "optimizer.lr": [1e-3, 1e30]}
    grid = TrainingGrid("digits/tiny", small)
    tables = [
        run_sweep(grid, tmp_path / name, **options).read_table()
        for name, options in (("ray", there), ("local", {"workers": 1}))
    ]
    assert tables[0]["status"].to_pylist() == ["done", "failed"]
    assert same_bits(*tables)
    monkeypatch.setattr(ray_engine, "_list_compared", lambda: {"mirrormargin": "0.0.1"})
    with pytest.raises(SweepError, match="install the same versions on all nodes"):
        run_sweep(GRID, tmp_path / "other", **there)


def test_no_cluster_is_an_error_that_says_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(SweepError, match=r"there is no Ray cluster at 'auto'.*ray start --head"):
        run_sweep(GRID, tmp_path / "sweep", engine="ray")
