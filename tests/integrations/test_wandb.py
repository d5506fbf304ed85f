"""Weights & Biases keeps a training, offline: what it would send lies in the folder."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter

import pytest
from tracked_training import CONFIG, interrupt_at, list_values

from mirrormargin.data import load_data
from mirrormargin.errors import TrainingError
from mirrormargin.training import TrainingFolder, train_model

WHY = "wandb is not installed: make test-integrations installs and tests it"
pytest.importorskip("wandb", reason=WHY)

from wandb.proto import wandb_internal_pb2  # noqa: E402

from mirrormargin.integrations.wandb import WandbTracker  # noqa: E402

BLOCK, HEADER = 32768, 7  # of LevelDB's log, after as many bytes of wandb's own


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


def read_records(path):
    """What the file of an offline run holds: records that may go over several blocks."""
    contents, position, part = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(contents):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        size, kind = struct.unpack("<HB", contents[position + 4 : position + HEADER])
        part += contents[position + HEADER : position + HEADER + size]
        position += HEADER + size
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


def read_run(path):
    """Name, step and value of all metrics, settings, and the exit code."""
    for _ in range(300):  # a process of wandb's own writes the last records
        rows, settings, codes = parse(path)
        if codes:
            return rows, settings, codes[-1]
        time.sleep(0.1)
    raise AssertionError(f"{path} has no end")


def parse(path):
    rows, settings, codes = Counter(), {}, []
    for record in read_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    rows[name, record.history.step.num, json.loads(item.value_json)] += 1
        elif kind == "config":
            settings |= {one.key: json.loads(one.value_json) for one in record.config.update}
        elif kind == "exit":
            codes.append(record.exit.exit_code)
    return rows, settings, codes


def find_runs(folder):
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def test_a_run_has_the_settings_and_every_row(data, tmp_path):
    home = tmp_path / "mine"
    train_model(CONFIG, data, home, trackers=[WandbTracker(mode="offline")])
    (path,) = find_runs(home)
    rows, settings, code = read_run(path)
    assert rows == Counter(list_values(home))
    assert settings["optimizer.lr"] == 0.05
    assert code == 0
    TrainingFolder(home).clear()
    assert not (home / "wandb").exists()


def test_a_training_that_is_resumed_has_the_same_name_for_its_run(data, tmp_path):
    """Offline nobody knows what the server has: all rows are in the second file again."""
    home = tmp_path / "mine"
    tracker = WandbTracker(mode="offline")
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, home, trackers=[tracker], on_step=interrupt_at(4))
    (first,) = find_runs(home)
    assert read_run(first)[0] == Counter(list_values(home))
    assert read_run(first)[2] == 1
    train_model(CONFIG, data, home, trackers=[tracker])
    second = max(find_runs(home), key=lambda path: path.stat().st_mtime_ns)
    assert first.name == second.name
    assert read_run(second)[0] == Counter(list_values(home))


def test_without_a_key_nothing_is_trained(data, tmp_path):
    with pytest.raises(TrainingError, match=r"wandb cannot keep this training: .*(?i:api.key)"):
        train_model(CONFIG, data, tmp_path, trackers=[WandbTracker()])
    assert TrainingFolder(tmp_path).status == "begun"
