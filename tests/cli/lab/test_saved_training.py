"""Trainings that are interrupted, terminated or killed, as real processes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli import main
from mirrormargin.cli.lab import kept_runs
from mirrormargin.dynamics.descent.batch import Batch

ARGV = ["lab", "train", "unit_sphere", "--p", "1.75", "3", "--steps", "300000", "--threads", "1"]
# Saves at every chance, so that the parent sees when the training has begun.
PROGRAM = """
import sys
from mirrormargin.cli import main
from mirrormargin.cli.lab import kept_runs
from mirrormargin.dynamics.descent.batch import Batch
kept_runs.SAVE_EVERY = float(sys.argv[1])
kept_runs.MOST_SAVING = 1e9
sys.exit(main(sys.argv[2:]))
"""
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The training that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    assert main([*ARGV, "--out", str(folder / "run"), "--quiet"]) == 0
    return mm.AttentionRecord.load(folder / "run")


def start(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "0", *ARGV, "--out", str(folder)],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 300
    while not (folder / "run.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def assert_resumes_to(whole, folder, capsys):
    assert not mm.AttentionRecord.load(folder).is_complete
    assert main(["lab", "train", "--resume", str(folder), "--quiet"]) == 0
    resumed = mm.AttentionRecord.load(folder)
    assert resumed.is_complete
    for name in ("W", "steps", "norm", "divergence", "target", "log_loss_gap", "selection"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(resumed, name), err_msg=name)
    assert "1 done" in capsys.readouterr().out


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_an_interrupted_training_is_kept_and_goes_on_to_the_same_bits(
    whole, tmp_path, capsys, number
):
    folder = tmp_path / "run"
    process = start(folder)
    process.send_signal(number)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, out) == (128 + number, "")
    first, second = errors.splitlines()
    word = "terminated" if number == signal.SIGTERM else "interrupted"
    assert first.startswith(f"mirrormargin: {word} after ")
    assert first.endswith(" of 600,000 steps")
    assert second == f"mirrormargin: to resume: mirrormargin lab train --resume {folder}"
    assert_resumes_to(whole, folder, capsys)


@pytest.mark.slow
@POSIX
def test_a_killed_training_goes_on_from_its_last_save(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    process = start(folder)
    process.kill()
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert_resumes_to(whole, folder, capsys)


def interrupt_at_once(monkeypatch, times):
    """Signals from the training itself, as early as its first steps."""
    advance = Batch.advance

    def signal_and_advance(self, *arguments):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self, *arguments)

    monkeypatch.setattr(Batch, "advance", signal_and_advance)


@POSIX
def test_the_earliest_signal_leaves_a_record(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt_at_once(patch, 1)
        argv = ["lab", "train", "unit_sphere", "--steps", "50", "--out", str(tmp_path / "run")]
        assert main(argv) == 130
    assert "interrupted after" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert main(["lab", "train", "--resume", str(tmp_path / "run")]) == 0
    expected = mm.train_attention(mm.synthetic.unit_sphere(1), num_steps=50)
    np.testing.assert_array_equal(mm.AttentionRecord.load(tmp_path / "run").W, expected.W)


@POSIX
def test_a_second_signal_does_not_wait(tmp_path, monkeypatch, capsys):
    interrupt_at_once(monkeypatch, 2)
    folder = tmp_path / "run"
    assert main(["lab", "train", "unit_sphere", "--steps", "50", "--out", str(folder)]) == 130
    assert capsys.readouterr().err == "mirrormargin: interrupted\n"
    assert not folder.exists()


@POSIX
def test_without_a_folder_an_interrupt_says_how_far_it_was(monkeypatch, capsys):
    calls = []

    def interrupt(self, done, text=""):
        calls.append(done)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(kept_runs.Progress, "update", interrupt)
    assert main(["lab", "train", "unit_sphere", "--steps", "50"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mirrormargin: interrupted after ")
    assert captured.err.count("\n") == 1
