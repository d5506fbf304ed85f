"""Sweeps of trainings on real data: rows of their summaries, resumed and never trained twice."""

import json
import os
import signal
import threading
import time

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: it brings the digits")

from sweep_tables import same_bits

from mirrormargin.sweep import SweepFolder, TrainingGrid, read_table, resume_sweep, run_sweep
from mirrormargin.training import (
    TrainingFolder,
    find_configuration,
    load_training_data,
    train_model,
)
from mirrormargin.training.summary import summarize_training

SMALL = {"epochs": 2, "data.num_train": 200, "frontier_size": 50}
GRID = TrainingGrid("digits/tiny", {**SMALL, "optimizer.p": [1.1, 2], "seed": [0, 1]})


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return run_sweep(GRID, tmp_path_factory.mktemp("trainings"), workers=0)


def test_a_row_is_the_summary_of_the_training_alone(swept, tmp_path, monkeypatch):
    import torch

    seeds = dict.fromkeys(("seeds.init", "seeds.order", "seeds.dropout"), 1)
    config = find_configuration("digits/tiny", {**SMALL, "optimizer.p": 2, **seeds})
    data = load_training_data(config)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    summary = summarize_training(train_model(config, data, tmp_path), data, with_test=False)
    torch.set_num_threads(threads)
    row = swept.read_table().to_pylist()[3]
    assert row["digest"] == config.digest()
    assert json.loads(row["settings"])["optimizer.p"] == 2
    assert (row["p"], row["seed_order"], row["epochs"], row["status"]) == (2.0, 1, 2, "done")
    assert row["validation_selected"] == summary["validation"]["selected"]
    assert row["validation_pruned"] == summary["validation"]["frontier"]["blocks"]
    assert row["train_loss"] == summary["epochs"][-1]["train_loss"]
    assert row["measure"] == "accuracy"
    assert row["test_selected"] is None


def test_each_has_a_folder_that_other_commands_take(swept):
    for row in swept.read_table().to_pylist():
        folder = TrainingFolder(swept.path / row["folder"])
        assert folder.status == "finished"
        assert folder.read_whole_summary()["digest"] == row["digest"]


def test_more_runs_train_what_is_new_alone(swept, tmp_path, monkeypatch):
    from mirrormargin.sweep import training_runs

    trained = []
    real = training_runs.train_model
    monkeypatch.setattr(
        training_runs,
        "train_model",
        lambda config, *rest, **options: (
            trained.append((config.optimizer.p, config.optimizer.lr)),
            real(config, *rest, **options),
        )[1],
    )
    before = swept.read_table()
    more = TrainingGrid(
        "digits/tiny", {**SMALL, "optimizer.p": [2], "seed": 1, "optimizer.lr": [3e-3, 1e-2]}
    )
    grown = run_sweep(more, swept.path, workers=0)
    assert trained == [(2.0, 1e-2)]
    assert same_bits(grown.read_table().slice(0, 4), before)
    assert grown.read_table().num_rows == 5


def test_a_training_that_diverges_is_a_failed_run(tmp_path):
    grid = TrainingGrid("digits/tiny", {**SMALL, "optimizer.lr": [1e30, 3e-3]})
    rows = run_sweep(grid, tmp_path, workers=0).read_table().to_pylist()
    assert [row["status"] for row in rows] == ["failed", "done"]
    assert rows[0]["error"].startswith("DivergedError: the loss is")
    assert rows[0]["lr"] == 1e30
    assert "Traceback" in rows[0]["traceback"]


def test_test_data_is_looked_at_only_if_asked(tmp_path):
    grid = TrainingGrid("digits/tiny", SMALL, test=True)
    (row,) = run_sweep(grid, tmp_path, workers=0).read_table().to_pylist()
    assert 0 <= row["test_selected"] <= 100


def test_an_interrupted_training_is_resumed_from_its_checkpoint(tmp_path):
    """Ctrl-C in the middle of it; the processes have time for a checkpoint."""
    grid = TrainingGrid("digits/tiny", {**SMALL, "epochs": 30})
    whole = run_sweep(grid, tmp_path / "whole", workers=0).read_table()
    folder = tmp_path / "stopped"

    def stop(progress):
        if any(folder.glob("runs/*/metrics.jsonl")) and time.monotonic() > began + 0.3:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(grid, folder, workers=1, progress=stop)
    (home,) = (folder / "runs").iterdir()
    assert TrainingFolder(home).status == "resumable"
    assert TrainingFolder(home).read_step() > 0
    assert len(SweepFolder(folder).done) == 0
    assert same_bits(resume_sweep(folder, workers=1).read_table(), whole)


@pytest.mark.slow
def test_processes_make_the_table_that_one_makes(swept, tmp_path):
    parallel = run_sweep(GRID, tmp_path, workers=2)
    assert same_bits(parallel.read_table(), read_table(swept.path).slice(0, 4))


def test_a_kill_during_a_training_loses_nothing(tmp_path, swept):
    """Its worker is killed, and the next one resumes from what is there."""
    from mirrormargin.sweep import local_engine

    class Watched(local_engine.LocalEngine):
        def submit(self, task):
            super().submit(task)
            if not killed:
                workers = [worker for _, worker in self._begun.values()]
                threading.Timer(1.0, kill, [next(iter(workers[0]._processes))]).start()

    def kill(pid):
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    killed = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local_engine, "LocalEngine", Watched)
        found = run_sweep(GRID, tmp_path, workers=1)
    assert killed
    assert same_bits(found.read_table(), read_table(swept.path).slice(0, 4))
