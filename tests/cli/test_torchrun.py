"""mirrormargin train under the real torchrun: what one process trains, and what a failure costs."""

import os
import random
import signal
import time
from functools import cache
from pathlib import Path

import pytest
from rank_processes import find_started, start_torchrun

from mirrormargin.cli import main
from mirrormargin.training.folder import TrainingFolder

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

TIMEOUT = 120.0  # seconds, many times what each training takes
# 50 steps each.
TRAININGS = {
    "digits/tiny": ["--epochs", "2", "--num-train", "1250"],
    "shakespeare/char": ["--epochs", "2"]
    + [f"--set={name}" for name in ("epoch_steps=25", "validation_size=60", "frontier_size=60")],
}
QUIETLY = ["--no-test", "--quiet", "--threads", "1"]
FAILURES = {
    "TrainingError": "mirrormargin, rank 1: error: this rank fails\n",
    "ValueError": "ValueError: this rank fails\n",
}
# The second rank fails in the fifth step.
FAILING = """
import os, sys
from mirrormargin.cli import main
from mirrormargin.errors import TrainingError
from mirrormargin.training.loop import _Loop

step, done = _Loop.step, []

def fail(*arguments):
    done.append(1)
    if os.environ["RANK"] == "1" and len(done) == 5:
        raise {error}("this rank fails")
    return step(*arguments)

_Loop.step = fail
sys.exit(main(["train", "digits/tiny", *sys.argv[1:]]))
"""


def train(name, folder, *options, restarts=0):
    """A training by two ranks: the process of torchrun."""
    arguments = ["-m", "mirrormargin", "train", name, "--out", str(folder), *QUIETLY, *options]
    return start_torchrun(*arguments, options=[f"--max-restarts={restarts}"])


@pytest.fixture(scope="module")
def find_alone(tmp_path_factory):
    """A function to the folder of the training by one process."""

    @cache
    def find(name):
        folder = tmp_path_factory.mktemp("alone") / "run"
        assert main(["train", name, "--out", str(folder), *QUIETLY, *TRAININGS[name]]) == 0
        return folder

    return find


def list_losses(folder):
    rows = TrainingFolder(folder).read_metrics()
    return [row["train_loss"] for row in rows if row["kind"] == "steps"]


def measure_difference(folder, other):
    one, two = (TrainingFolder(place).read_weights("final")[0] for place in (folder, other))
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    "name", ["digits/tiny", pytest.param("shakespeare/char", marks=pytest.mark.data)]
)
def test_two_ranks_train_what_one_process_trains(name, parallel, find_alone, tmp_path, request):
    if name == "shakespeare/char":
        request.getfixturevalue("real_data")
    process = train(name, tmp_path / "run", *TRAININGS[name], "--parallel", parallel)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    losses = list_losses(find_alone(name))
    assert len(losses) == 50
    # To 1e-6 of the loss; the file has six decimals.
    assert list_losses(tmp_path / "run") == pytest.approx(losses, rel=1e-6, abs=1e-6)
    assert measure_difference(tmp_path / "run", find_alone(name)) < 1e-5


@pytest.mark.parametrize("error", FAILURES)
def test_a_rank_that_fails_in_a_training_ends_it_and_says_why(error, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FAILING.format(error=error))
    process = start_torchrun(str(script), "--out", str(tmp_path / "run"))
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert FAILURES[error] in errors
    assert "rank      : 1" in errors, errors


def await_ranks(process, known):
    """The processes of both ranks, once torchrun has started them, or started them again."""
    end = time.monotonic() + TIMEOUT
    while len(found := find_started(process)) < 2 or set(found.values()) & known:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    known.update(found.values())
    return found


def await_step(process, folder, step):
    """Until there is a checkpoint of so many steps."""
    end = time.monotonic() + TIMEOUT
    while (TrainingFolder(folder).read_step() or 0) < step:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of children")
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_may_be_killed_five_times(parallel, tmp_path):
    """At a step, or on their way to the first one: the same bits in the end."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = ("--epochs", "4", "--num-train", "1250", "--parallel", parallel)
    process = train("digits/tiny", whole, *options)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    generator = random.Random(parallel)
    moments = sorted(generator.randrange(1, 80) for _ in range(5))  # of 100 steps
    process = train("digits/tiny", killed, *options, "--checkpoint-every", "0", restarts=5)
    known: set[int] = set()
    for k, step in enumerate(moments):
        ranks = await_ranks(process, known)
        if k == 2:  # somewhere before the first step
            time.sleep(generator.uniform(0.0, 1.0))
        else:
            await_step(process, killed, step)
            time.sleep(generator.uniform(0.0, 0.05))
        os.kill(ranks[generator.randrange(2)], signal.SIGKILL)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert measure_difference(killed, whole) == 0
