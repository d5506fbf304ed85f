"""Trackers are told what metrics.jsonl has, and cannot do a training any harm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tracked_training import CONFIG, interrupt_at, list_values, train_until_killed

import mirrormargin as mm
from mirrormargin.data import load_data
from mirrormargin.errors import DivergedError, TrainingError
from mirrormargin.training import TensorBoardTracker, TrainingFolder, train_model


class Recorder:
    """A tracker that remembers what it is told."""

    def __init__(self, fails_at=None):
        self.fails_at, self.settings, self.step = fails_at, {}, None
        self.rows, self.outcomes = [], []

    def start(self, folder, settings, step):
        if self.fails_at == "start":
            raise OSError("the server is down")
        self.settings, self.step = dict(settings), step

    def log_metrics(self, step, values):
        if step == self.fails_at:
            raise OSError("the server is down")
        self.rows += [(name, step, value) for name, value in values.items()]

    def finish(self, outcome):
        self.outcomes.append(outcome)
        if self.fails_at == "finish":
            raise OSError("the server is down")


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The folder of a training that nobody tracked."""
    folder = tmp_path_factory.mktemp("whole")
    train_model(CONFIG, data, folder)
    return folder


def read(folder):
    return [(folder / name).read_bytes() for name in ("metrics.jsonl", "final.safetensors")]


def test_a_tracker_is_told_settings_rows_and_the_end(data, whole, tmp_path):
    recorder = Recorder()
    train_model(CONFIG, data, tmp_path, trackers=[recorder])
    assert read(tmp_path) == read(whole)
    assert recorder.settings["optimizer.lr"] == 0.05
    assert recorder.settings["configuration"] == "digits/tiny"
    assert (recorder.step, recorder.outcomes) == (0, ["finished"])
    assert recorder.rows == list_values(tmp_path)
    assert {name for name, _, _ in recorder.rows} >= {
        "steps/train_loss", "epoch/validation_accuracy", "attention/entropy/0",
    }  # fmt: skip


def test_a_training_that_is_resumed_tells_all_rows_again(data, whole, tmp_path):
    recorders = [Recorder(), Recorder()]
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, tmp_path, trackers=recorders[:1], on_step=interrupt_at(4))
    train_model(CONFIG, data, tmp_path, trackers=recorders[1:])
    assert [one.outcomes for one in recorders] == [["interrupted"], ["finished"]]
    assert recorders[1].step == 4
    assert recorders[0].rows == [row for row in list_values(whole) if row[1] <= 4]
    assert recorders[1].rows == list_values(whole)


def test_a_training_that_has_ended_can_be_told_later(data, tmp_path):
    train_model(CONFIG, data, tmp_path)
    before, recorder = read(tmp_path), Recorder()
    train_model(CONFIG, data, tmp_path, trackers=[recorder])
    assert (recorder.rows, recorder.outcomes) == (list_values(tmp_path), ["finished"])
    assert read(tmp_path) == before


def test_a_tracker_that_fails_is_left_out_and_the_training_goes_on(data, whole, tmp_path):
    failing, other = Recorder(fails_at=2), Recorder()
    with pytest.warns(mm.MirrorMarginWarning, match=r"has failed at step 2.*server is down"):
        train_model(CONFIG, data, tmp_path, trackers=[failing, other])
    assert read(tmp_path) == read(whole)
    assert max(step for _, step, _ in failing.rows) == 1
    assert (failing.outcomes, other.outcomes) == ([], ["finished"])
    assert other.rows == list_values(whole)


def test_a_tracker_that_cannot_end_loses_nothing(data, whole, tmp_path):
    with pytest.warns(mm.MirrorMarginWarning, match="could not be ended: the server is down"):
        train_model(CONFIG, data, tmp_path, trackers=[Recorder(fails_at="finish")])
    assert read(tmp_path) == read(whole)


def test_a_tracker_that_cannot_start_stops_before_the_first_step(data, whole, tmp_path):
    other, steps = Recorder(), []
    trackers = [other, Recorder(fails_at="start")]
    with pytest.raises(OSError, match="the server is down"):
        train_model(CONFIG, data, tmp_path, trackers=trackers, on_step=lambda *_: steps.append(1))
    assert (steps, other.outcomes) == ([], ["failed"])
    train_model(CONFIG, data, tmp_path)
    assert read(tmp_path) == read(whole)


def test_a_training_that_diverges_has_failed(data, tmp_path):
    config = replace(CONFIG, optimizer=replace(CONFIG.optimizer, lr=1e30))
    recorder = Recorder()
    with pytest.raises(DivergedError):
        train_model(config, data, tmp_path, trackers=[recorder])
    assert recorder.outcomes == ["failed"]


@pytest.mark.parametrize("wrong", [None, "tensorboard", Recorder])
def test_what_is_no_tracker_is_refused(data, tmp_path, wrong):
    with pytest.raises(TrainingError, match="among the trackers is none: give objects with"):
        train_model(CONFIG, data, tmp_path, trackers=[wrong])


def read_events(folder):
    """What TensorBoard would show."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    events = accumulator.EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    events.Reload()
    return Counter(
        (name, one.step, one.value)
        for name in events.Tags()["scalars"]
        for one in events.Scalars(name)
    )


def round_values(rows):
    """Events hold float32."""
    import numpy as np

    return Counter((name, step, float(np.float32(value))) for name, step, value in rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard
def test_tensorboard_has_every_row_once(data, whole, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    train_model(CONFIG, data, tmp_path / "whole", trackers=[TensorBoardTracker()])
    assert read_events(tmp_path / "whole") == round_values(list_values(whole))
    later = tmp_path / "later"
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, later, on_step=interrupt_at(2))
    for step in (4, None):  # tracked from there on, and once more interrupted
        options = {} if step is None else {"on_step": interrupt_at(step)}
        try:
            train_model(CONFIG, data, later, trackers=[TensorBoardTracker()], **options)
        except KeyboardInterrupt:
            assert step
    assert read_events(later) == round_values(list_values(whole))
    TrainingFolder(later).clear()
    assert not (later / "tensorboard").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard
@pytest.mark.parametrize("last", [1, 5])
def test_tensorboard_has_every_row_once_after_a_kill(data, whole, tmp_path, last):
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    train_until_killed(tmp_path, "TensorBoardTracker()", last)
    train_model(CONFIG, data, tmp_path, trackers=[TensorBoardTracker()])
    assert read_events(tmp_path) == round_values(list_values(whole))
