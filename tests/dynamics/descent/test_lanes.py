"""Runs in lanes are the runs of the loop for one, bit for bit, whoever is beside them."""

import dataclasses
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from autograd_training import distance

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.losses import LOSSES
from mirrormargin.dynamics.descent.record import AttentionRecord, End
from mirrormargin.dynamics.descent.reference import train_literally
from mirrormargin.errors import TrainingInterrupted
from mirrormargin.geometry.lanes import LANES

EXPONENTS = [1.1, 1.5, 5 / 3, 1.75, 2.0, 2.5, 3.0, 10.0]
RULES = {
    "constant": {"step_rule": "constant", "lr": 2.0},
    "normalized": {"lr": 0.2},
    "eps": {"lr": 0.2, "eps": 1e-3},
}
SIZES = [(6, 8, 10), (3, 5, 7), (1, 2, 1), (2, 3, 4), (5, 9, 13)]
MODULE = "mirrormargin.dynamics.descent.batch"
FAST = {"target": None, "threads": 1}


@pytest.fixture
def train(monkeypatch):
    """Training with all runs in lanes, or with none."""

    def start(in_lanes, problems, p, **options):
        with monkeypatch.context() as patch:
            count = 1 if in_lanes else LANES + 1
            patch.setattr(f"{MODULE}.find_least_group", lambda *settings: count)
            return mm.train_attention(problems, p, **{**FAST, **options})

    return start


def assert_same_bits(first, second):
    for field in dataclasses.fields(AttentionRecord):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "state":
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def spheres(count, size=(6, 8, 10), loss="logistic", first=1):
    found = (synthetic.unit_sphere(seed, *size) for seed in range(first, first + count))
    return [AttentionProblem(one.tokens, one.queries, one.labels, one.head, loss) for one in found]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_lanes_have_the_bits_of_the_loop_for_one_run_at_every_p(train, rule, loss):
    options = {"num_steps": 60, "record": 8, "init": mm.NormalInit(0.3, seeds=[1, 2, 3])}
    problems = spheres(4, loss=loss)
    lanes, alone = (
        train(there, problems, EXPONENTS, **RULES[rule], **options) for there in (True, False)
    )
    assert_same_bits(lanes, alone)
    assert len(np.unique(lanes.W)) > lanes.W.size / 2


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_lanes_have_the_bits_of_the_loop_for_one_run_at_every_size(train, rule, size):
    problems = spheres(11, size)
    for init in (0.0, mm.NormalInit(1.0, seeds=4)):
        options = {"num_steps": 40, "record": 5, "init": init, **RULES[rule]}
        records = [train(there, problems, [1.75, 2.0, 3.0], **options) for there in (True, False)]
        assert_same_bits(*records)


@pytest.mark.parametrize("count", range(1, 20))
def test_any_number_of_runs_may_be_in_lanes(train, count):
    options = {"num_steps": 25, "record": 4, "lr": 0.2}
    problems = spheres(19)
    alone = train(False, problems, [1.5, 2.0], **options)
    some = train(True, problems[:count], [1.5, 2.0], **options)
    for name in ("W", "steps", "norm", "log_loss_gap", "end"):
        np.testing.assert_array_equal(getattr(alone, name)[:count], getattr(some, name))


@pytest.mark.parametrize("shift", range(1, LANES))
def test_the_lane_of_a_run_changes_no_bit(train, shift):
    problems = spheres(LANES)
    options = {"num_steps": 50, "record": 3}
    here = train(True, problems, 1.75, **options)
    there = train(True, problems[-shift:] + problems[:-shift], 1.75, **options)
    np.testing.assert_array_equal(np.roll(here.W, shift, axis=0), there.W)


@pytest.mark.parametrize("p", [1.75, 2.0, 3.0])
def test_runs_that_end_leave_their_neighbours_alone(train, p):
    # All in one group: one without a gradient, one whose first step is infinite, one whose second
    # weights are (at p < 2), and others with gradients of 1e-300 that go on.
    rng = np.random.default_rng(0)
    tokens = [1e-100 * X for X in rng.normal(size=(LANES, 1, 2, 1))]
    queries, heads = [1e-100] * LANES, [1.0] * LANES
    for place, X, head in ((1, [[[1.0], [1.0]]], 1.0), (4, [[[1.0], [3.0]]], 1000.0)):
        tokens[place], queries[place], heads[place] = X, 1.0, head
    tokens[6], queries[6] = [[[1.0], [2.0]]], 1.0
    problems = [
        AttentionProblem(X, [[z]], [-1], [v], "exponential")
        for X, z, v in zip(tokens, queries, heads, strict=True)
    ]
    options = {"step_rule": "constant", "lr": 1e300, "num_steps": 30, "record": range(31)}
    with np.errstate(all="ignore"):
        lanes, alone = (train(there, problems, p, **options) for there in (True, False))
    assert_same_bits(lanes, alone)
    lasts, ends = lanes.steps[:, 0, 0, -1], lanes.end[:, 0, 0]
    assert (ends[1], lasts[1]) == (End.ZERO_GRADIENT, 0)
    assert (ends[4], lasts[4]) == (End.DIVERGED, 0)
    assert p >= 2 or (ends[6], lasts[6]) == (End.DIVERGED, 1)
    others = [0, 2, 3, 5, 7]
    assert (ends[others] == End.RUNNING).all()
    assert (lasts[others] == 30).all()
    assert lanes.W[others].all()


@pytest.mark.parametrize("lr", [1e3, 1e100, 1.7e308])
@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 5.0])
@pytest.mark.parametrize("num_steps", [1, 20])
def test_learning_rates_far_too_large_have_the_bits_of_each_alone(train, num_steps, p, lr):
    options = {"step_rule": "constant", "lr": lr, "num_steps": num_steps, "record": 20}
    with np.errstate(all="ignore"):
        records = [train(there, spheres(9), p, **options) for there in (True, False)]
    assert_same_bits(*records)
    if p < 2 and lr > 1e299:
        assert (records[0].end == End.DIVERGED).all()


@pytest.mark.parametrize(("p", "lr"), [(1.75, 0.2), (2.0, 1.0), (3.0, 300.0)])
def test_lanes_train_literally_far_into_underflow(train, p, lr):
    problems = spheres(2, (3, 5, 7))  # with seed 3 long steps at p = 3 are chaotic
    options = {"num_steps": 2500, "record": 2, "lr": lr}
    record = train(True, problems, p, **options)
    assert record.logit_gap[0, 0, 0, -1] > 800
    for W, problem in zip(record.W[:, 0, 0], problems, strict=True):
        twin = train_literally(problem, p, [np.zeros((7, 7))], lrs=(lr, lr))
        expected, _ = next(itertools.islice(twin, 2500, None))
        assert distance(W, expected[0], p) <= 1e-8
    assert_same_bits(record, train(False, problems, p, **options))


def test_each_lane_leaves_floating_point_in_its_own_time(train):
    # Heads from small to huge: slopes underflow in some lanes and not in others.
    problems = [
        AttentionProblem(one.tokens, one.queries, one.labels, head * one.head)
        for one, head in zip(spheres(8), [1, 1e3, 1, 3e3, 1e5, 1, 1e-3, 500], strict=True)
    ]
    options = {"num_steps": 40, "record": 10, "init": mm.NormalInit(20.0, seeds=0)}
    records = [train(there, problems, [1.75, 2.0], **options) for there in (True, False)]
    assert_same_bits(*records)
    assert (records[0].steps[..., -1] == 40).all()


TRAIN = """
import hashlib
import mirrormargin as mm

problems = [mm.synthetic.unit_sphere(seed) for seed in range(9)]
record = mm.train_attention(problems, [1.1, 1.75, 2.0, 3.0], num_steps=300, record=3, target=None)
print(hashlib.sha256(record.W.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_vectors_of_the_cpu_change_no_bit(tmp_path):
    # Compiled for this CPU, and for the oldest of its kind, whose vectors hold two numbers.
    digests = set()
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for name, cpu in (("own", {}), ("generic", generic)):
        environment = {**os.environ, **cpu, "NUMBA_CACHE_DIR": str(tmp_path / name)}
        done = subprocess.run(
            [sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def test_threads_change_no_bit_of_the_lanes(train):
    problems = spheres(45)
    records = [
        train(True, problems, [1.75, 2.0], num_steps=20, record=3, threads=threads)
        for threads in (1, 2, 3)
    ]
    for other in records[1:]:
        assert_same_bits(records[0], other)


def test_many_runs_are_cut_into_pieces_run_by_run(train, monkeypatch):
    problems = spheres(100)
    options = {"num_steps": 50, "record": [10]}
    whole = train(True, problems, 2.0, **options)
    monkeypatch.setattr(f"{MODULE}.PIECE", 2e-3)
    calls = []
    pieces = train(
        True, problems, 2.0, progress=lambda done, total: calls.append((done, total)), **options
    )
    assert_same_bits(whole, pieces)
    done = np.diff([one for one, _ in calls])
    assert len(done) > 30
    assert (done > 0).all()
    assert calls[-1] == (5000, 5000)
    assert 8 * 40 > done.max() >= 8 * 20  # eight runs go most of their way before others begin


def test_an_interrupted_training_in_lanes_resumes_to_the_same_bits(train, monkeypatch):
    problems = spheres(30)
    options = {"num_steps": 40, "record": 5}
    whole = train(True, problems, [1.75, 2.0], **options)
    monkeypatch.setattr(f"{MODULE}.PIECE", 3e-4)
    apart = 0
    for stop in (3, 20, 31):
        calls = itertools.count()

        def progress(done, total, calls=calls, stop=stop):
            if next(calls) == stop:
                raise KeyboardInterrupt

        with pytest.raises(TrainingInterrupted) as caught:
            train(True, problems, [1.75, 2.0], progress=progress, **options)
        record = caught.value.record
        apart += len(np.unique(record.state["step"])) > 1
        assert_same_bits(mm.resume_training(record, threads=1), whole)
    assert apart  # some runs were ahead of others
