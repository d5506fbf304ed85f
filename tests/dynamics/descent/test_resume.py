"""Interrupts, and going on as if nothing had happened."""

import dataclasses
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention import synthetic
from mirrormargin.dynamics.descent.record import AttentionRecord
from mirrormargin.errors import MirrorMarginError, ProblemError, TrainingInterrupted

EXPONENTS = [1.5, 3.0]
INIT = mm.NormalInit(0.5, seeds=[1, 2])
WAYS = {
    "constant": {"step_rule": "constant", "lr": 2.0},
    "normalized": {"eps": 1e-12, "keep_path": True},
    "polyak": {"step_rule": "polyak", "lr": 1.0, "max_lr": 1e4},
    "KQ": {"parameterization": "KQ", "rank": 3},
    "given target": {"target": np.eye(6)},
    "no target": {"target": None},
    "joint": {"decay": 0.5, "head_decay": 0.25, "head_init": INIT},
    "joint path": {"keep_path": True, "head_init": 1.0},
}
WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def short_pieces(monkeypatch):
    """Many calls of ``progress`` between two recorded steps."""
    monkeypatch.setattr("mirrormargin.dynamics.descent.batch.PIECE", 1e-5)


SHORT_PIECES = pytest.mark.usefixtures("short_pieces")


def train(way, num_steps=(60, 40), **options):
    problems = [synthetic.unit_sphere(seed, 3, 5, 6) for seed in (1, 2)]
    start = mm.train_joint if way.startswith("joint") else mm.train_attention
    options = {"num_steps": num_steps, "init": INIT, "record": 7, "threads": 1} | options
    return start(problems, EXPONENTS, **WAYS[way], **options)


def interrupt_after(calls):
    """A callback that is interrupted from the keyboard."""
    count = 0

    def progress(done, total):
        nonlocal count
        count += 1
        if count > calls:
            raise KeyboardInterrupt

    return progress


def assert_same_bits(first, second, skip=()):
    for field in dataclasses.fields(AttentionRecord):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name in ("problems", *skip):
            continue
        if field.name == "settings":
            assert one == other
        elif field.name == "state":
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        elif one is None:
            assert other is None, field.name
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def count_calls(way):
    calls = []
    record = train(way, progress=lambda done, total: calls.append(done))
    return len(calls), record


@SHORT_PIECES
@WAY
def test_a_resumed_training_is_the_uninterrupted_one(tmp_path, way):
    total, whole = count_calls(way)
    assert total > 30
    middle = 0
    for calls in (1, 2, total // 4, total // 2, total - 2):
        with pytest.raises(TrainingInterrupted) as caught:
            train(way, progress=interrupt_after(calls))
        record = caught.value.record
        assert not record.is_complete
        middle += (record.state["step"].reshape(2, 2, 2) != record.steps[..., -1]).any()
        if calls in (2, total // 2):
            record.save(tmp_path / str(calls))
            record = AttentionRecord.load(tmp_path / str(calls))
        resumed = mm.resume_training(record, threads=2)
        assert resumed.is_complete
        assert_same_bits(whole, resumed)
    assert middle  # one of them stood between two recorded steps


class Interrupted:
    """A loop that is interrupted as it returns, when its run has moved and nobody knows."""

    def __init__(self, loop, calls):
        self.loop, self.left = loop, calls

    def load(self):
        def call(*args):
            found = self.loop.load()(*args)
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return found

        return call


@SHORT_PIECES
@pytest.mark.parametrize(
    ("way", "name"), [("normalized", "advance"), ("normalized", "advance_lanes"), ("KQ", "advance")]
)
def test_a_piece_that_is_interrupted_counts_as_not_begun(way, name, monkeypatch):
    from mirrormargin.dynamics.descent import batch

    count = 1 if name == "advance_lanes" else 9
    monkeypatch.setattr(batch, "find_least_group", lambda *settings: count)
    whole = train(way)
    with monkeypatch.context() as patch:
        patch.setattr(batch, name, Interrupted(getattr(batch, name), 20))
        with pytest.raises(TrainingInterrupted) as caught:
            train(way)
    assert caught.value.record.state["step"].any()
    assert_same_bits(whole, mm.resume_training(caught.value.record, threads=1))


@SHORT_PIECES
@WAY
def test_a_training_may_be_interrupted_again_and_again(way):
    _, whole = count_calls(way)
    with pytest.raises(TrainingInterrupted) as caught:
        train(way, progress=interrupt_after(3))
    times = 0
    while True:
        try:
            resumed = mm.resume_training(caught.value.record, progress=interrupt_after(9))
            break
        except TrainingInterrupted as error:
            caught.value.record = error.record
            times += 1
    assert times > 2
    assert_same_bits(whole, resumed)


@WAY
def test_a_longer_training_is_the_same_as_one_that_was_long_from_the_start(way):
    steps = [5, 20, 40, 50, 60, 90]
    longer = train(way, num_steps=[100, 70], record=steps)
    short = train(way, record=steps)
    extended = mm.resume_training(short, num_steps=[100, 70], record_steps=steps)
    for name in ("W", "head", "factors", "capped", "end", "target", "head_target"):
        one, other = getattr(longer, name), getattr(extended, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=name)
    np.testing.assert_array_equal(longer.state["u"], extended.state["u"])
    assert extended.settings == longer.settings
    # Rows that ended in the short training have repeated their end in between.
    for name in ("steps", "norm", "log_loss_gap", "logit_gap"):
        for j in range(2):
            both = [
                dict(zip(r.steps[0, j, 0], getattr(r, name)[:, j].T, strict=True))
                for r in (longer, extended)
            ]
            assert both[0].keys() <= both[1].keys()
            for step, value in both[0].items():
                np.testing.assert_array_equal(value, both[1][step])


def test_extending_to_where_it_is_changes_nothing():
    record = train("normalized")
    same = mm.resume_training(record, num_steps=[60, 40])
    assert_same_bits(record, same)
    assert_same_bits(record, mm.resume_training(record))


@pytest.mark.parametrize("way", ["normalized", "constant"])
def test_extending_by_given_steps_records_them(way):
    record = mm.resume_training(train(way), num_steps=100, record_steps=[70, 90])
    known = train(way).steps.shape[-1]
    assert record.steps[0, 0, 0, known:].tolist() == [70, 90, 100]
    assert record.steps[0, 1, 0, known:].tolist() == [70, 90, 100]
    assert record.settings.num_steps == (100, 100)
    assert np.isfinite(record.norm).all()
    # Divergences of the first steps are known without their matrices, if the target is the same.
    same = (train(way).target == record.target).all(axis=(-1, -2))
    assert same.any()
    assert np.isfinite(record.divergence[same]).all()


def test_earlier_divergences_are_nan_where_the_target_has_changed():
    options = {"num_steps": 200, "record": 3, "init": mm.NormalInit(1.0, range(10))}
    problem = synthetic.unit_sphere(1)
    record = mm.train_attention(problem, 1.75, **options)
    longer = mm.resume_training(record, num_steps=1000)
    changed = (record.final_selection != longer.final_selection).any(axis=-1)
    assert changed.any()
    assert not changed.all()
    known = record.steps.shape[-1]
    assert np.isnan(longer.divergence[changed][:, :known]).all()
    assert np.isfinite(longer.divergence[changed][:, known:]).all()
    np.testing.assert_array_equal(
        longer.divergence[~changed][:, :known], record.divergence[~changed]
    )
    kept = mm.train_attention(problem, 1.75, keep_path=True, **options)
    assert np.isfinite(mm.resume_training(kept, num_steps=1000).divergence).all()


def test_a_training_cannot_be_made_shorter():
    record = train("normalized")
    with pytest.raises(ProblemError, match=r"num_steps is 50, but the record plans \[60, 40\]"):
        mm.resume_training(record, num_steps=50)
    with pytest.raises(ProblemError, match="threads is 0"):
        mm.resume_training(record, threads=0)
    with pytest.raises(ProblemError, match="record is 0"):
        mm.resume_training(record, num_steps=100, record_steps=0)


@SHORT_PIECES
def test_an_interrupt_before_anything_was_recorded_is_a_plain_one():
    with pytest.raises(KeyboardInterrupt) as caught:
        train("normalized", progress=interrupt_after(0))
    assert not isinstance(caught.value, TrainingInterrupted)


@SHORT_PIECES
def test_the_message_of_an_interrupt_says_how_to_go_on():
    with pytest.raises(TrainingInterrupted, match="resume_training") as caught:
        train("normalized", progress=interrupt_after(5))
    assert "interrupted after" in str(caught.value)
    assert "of 400 steps" in str(caught.value)
    assert not isinstance(caught.value, MirrorMarginError)
    assert "interrupted" in repr(caught.value.record)


def test_other_errors_of_the_callback_pass():
    def progress(done, total):
        raise RuntimeError("full disk")

    with pytest.raises(RuntimeError, match="full disk"):
        train("normalized", progress=progress)


def test_an_interrupt_while_looking_leaves_whole_rows(monkeypatch):
    whole = train("joint")
    looks = 0
    heads = mm.dynamics.descent.batch.Batch.heads

    def interrupted(batch):
        nonlocal looks
        looks += 1
        if looks == 4:
            raise KeyboardInterrupt
        return heads(batch)

    monkeypatch.setattr("mirrormargin.dynamics.descent.batch.Batch.heads", interrupted)
    with pytest.raises(TrainingInterrupted) as caught:
        train("joint")
    record = caught.value.record
    assert record.steps.shape[-1] == record.norm.shape[-1] == record.head_path.shape[-2] == 3
    assert_same_bits(whole, mm.resume_training(record))


SCRIPT = """
    import os, signal, sys, threading, time
    import mirrormargin as mm
    from mirrormargin.attention import synthetic

    problems = [synthetic.unit_sphere(seed) for seed in (1, 2)]
    options = dict(p=[1.75, 2.0], record=[0, 1000], target=None, threads=int(sys.argv[2]))
    mm.train_attention(problems[0], num_steps=10)  # compile
    kill = lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT))
    started = []

    def progress(done, total):  # in the middle of the piece after the one that passes step 1000
        if done > 4 * 1000 and not started:
            started.append(threading.Thread(target=kill, daemon=True))
            started[0].start()

    try:
        mm.train_attention(problems, num_steps=10**7, progress=progress, **options)
    except mm.TrainingInterrupted as error:
        error.record.save(sys.argv[1])
        print("interrupted", error.record.state["step"].max())
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_leaves_a_record_that_goes_on(tmp_path, threads):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "run"), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("interrupted"), done.stderr
    record = AttentionRecord.load(tmp_path / "run")
    assert record.steps.shape[-1] == 2
    # All runs are where the last whole piece of work left them, as a training of that many steps.
    (reached,) = set(record.state["step"].tolist())
    assert 1000 < reached < 10**7
    alone = mm.train_attention(
        record.problems, [1.75, 2.0], num_steps=reached, record=[0, 1000], target=None
    )
    np.testing.assert_array_equal(record.state["u"], alone.state["u"])
    np.testing.assert_array_equal(record.W, alone.W)


def test_an_interrupt_while_targets_are_solved_loses_nothing(monkeypatch):
    problem = mm.synthetic.unit_sphere(1)
    whole = mm.train_attention(problem, num_steps=300)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mirrormargin.dynamics.descent.recording.solve_targets", interrupted)
        with pytest.raises(mm.TrainingInterrupted) as caught:
            mm.train_attention(problem, num_steps=300)
    stopped = caught.value.record
    assert stopped.divergence is None
    assert stopped.is_complete
    np.testing.assert_array_equal(stopped.W, whole.W)
    resumed = mm.resume_training(stopped)
    np.testing.assert_array_equal(resumed.divergence, whole.divergence)
    assert resumed.path is None


def test_interrupting_an_extension_leaves_earlier_divergences_unknown(monkeypatch):
    problem = mm.synthetic.unit_sphere(1)
    complete = mm.train_attention(problem, num_steps=300, record=5)

    def stop(done, total):
        if done > 400:
            raise KeyboardInterrupt

    with pytest.raises(mm.TrainingInterrupted) as caught:
        mm.resume_training(complete, 1000, progress=stop)
    resumed = mm.resume_training(caught.value.record)
    longer = mm.train_attention(problem, num_steps=1000, record=resumed.steps[0, 0, 0])
    known = resumed.steps[0, 0, 0] > 300
    assert np.isnan(resumed.divergence[0, 0, 0, ~known]).all()
    np.testing.assert_array_equal(resumed.divergence[..., known], longer.divergence[..., known])
