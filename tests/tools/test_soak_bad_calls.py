"""The trial of bad calls: a sample of it ends well, and it can fail."""

import math
import os
import signal
import time

import numpy as np
import pytest

from mirrormargin.errors import ProblemError
from tools.soak import bad_calls, judging
from tools.soak.__main__ import make_trial
from tools.soak.bad_calls import BAD_CALLS
from tools.soak.judging import judge_call, judge_words


@pytest.mark.slow
def test_a_sample_ends_well(capsys):
    counts = make_trial(BAD_CALLS, 0, list(range(150)))
    assert counts["wrong"] == 0, capsys.readouterr().out
    assert counts["held"] > 5
    assert counts["refused"] > 50


def test_a_hundred_calls_end_well(tmp_path, monkeypatch):
    """In this process: what takes long in the trial is to start another."""
    monkeypatch.chdir(tmp_path)
    outcomes = [bad_calls._try_call(np.random.default_rng(seed), tmp_path) for seed in range(100)]
    assert [what for kind, what in outcomes if kind == "wrong"] == []
    assert sum(kind == "refused" for kind, _ in outcomes) > 30


def _refuse():
    raise ProblemError("lr is -1: give a number above 0")


def _fail():
    raise AttributeError("'int' object has no attribute 'tokens'")


def _say_nothing():
    raise ProblemError("")


class Solution:
    W = np.array([1.0, math.nan])


@pytest.mark.parametrize(
    ("call", "is_bad", "kind", "why"),
    [
        (_refuse, True, "refused", "lr is -1"),
        (_refuse, False, "refused", "lr is -1"),
        (lambda: 3.0, False, "held", ""),
        (lambda: 3.0, True, "wrong", "accepted"),
        (_fail, True, "wrong", "AttributeError"),
        (_say_nothing, True, "wrong", "without a message"),
        (Solution, False, "wrong", "W of nan"),
    ],
)
def test_a_call_is_judged(call, is_bad, kind, why):
    found, what = judge_call("a call", call, is_bad)
    assert found == kind
    assert why in what


def test_a_call_that_hangs_is_wrong(monkeypatch):
    monkeypatch.setattr(judging, "SECONDS", 0.2)
    kind, what = judge_call("a call", lambda: time.sleep(30), False)
    assert (kind, "TimeoutError" in what) == ("wrong", True)


def _crash(pipe, name):
    pipe.send("ready")
    pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_is_wrong_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(bad_calls, "_serve", _crash)
    worker = bad_calls.Worker(tmp_path)
    worker._context = bad_calls.multiprocessing.get_context("fork")
    try:
        outcomes = [worker.make(0, tmp_path) for _ in range(2)]
    finally:
        worker.close()
    assert [outcome.kind for outcome in outcomes] == ["wrong", "wrong"]
    assert all("the process ended with -9" in outcome.what for outcome in outcomes)


def test_a_command_is_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert judge_words(("doctor", "--no-such-option"), True)[0] == "refused"
    assert judge_words(("completion", "bash"), False)[0] == "held"
    assert judge_words(("completion", "bash"), True)[0] == "wrong"

    def fail(words):
        raise KeyError("kind")

    monkeypatch.setattr("mirrormargin.cli.main", fail)
    kind, what = judge_words(("report", "x"), True)
    assert (kind, "KeyError" in what) == ("wrong", True)

    def print_escape(words):
        print("\x1b[31mred")
        return 0

    monkeypatch.setattr("mirrormargin.cli.main", print_escape)
    kind, what = judge_words(("report", "x"), False)
    assert (kind, "prints" in what) == ("wrong", True)


def test_a_script_in_a_page_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").write_text("<p><script>alert(1)</script></p>")
    kind, what = judge_words(("completion", "bash"), False)
    assert (kind, "a script" in what) == ("wrong", True)
