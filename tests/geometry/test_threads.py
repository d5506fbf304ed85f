"""Sharing out jobs among threads."""

import threading
import time

import numpy as np
import pytest

from mirrormargin.geometry.threads import count_cores, share_out


@pytest.mark.parametrize("threads", [1, 2, 5, 40])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_every_job_is_done_once(count, threads):
    done = []
    share_out(lambda job, memory: done.append(job), count, threads, lambda: None)
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_results_do_not_depend_on_the_threads(threads):
    out = np.empty(50)

    def work(job, memory):
        memory[:] = np.random.default_rng(job).normal(size=20)
        time.sleep(1e-4)  # let another thread in
        out[job] = memory.sum()

    share_out(work, 50, threads, lambda: np.empty(20))
    expected = [np.random.default_rng(job).normal(size=20).sum() for job in range(50)]
    np.testing.assert_array_equal(out, expected)


def test_each_thread_has_its_own_memory():
    memories, users = [], {}

    def allocate():
        memories.append(object())
        return memories[-1]

    def work(job, memory):
        users.setdefault(id(memory), set()).add(threading.get_ident())
        time.sleep(1e-3)

    share_out(work, 40, 3, allocate)
    assert len(memories) == 3
    assert all(len(found) == 1 for found in users.values())


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_exception_no_job_begins(error, failing):
    begun = []

    def work(job, memory):
        begun.append(job)
        if job == failing:
            raise error("job")
        time.sleep(0.05)

    with pytest.raises(error, match="job"):
        share_out(work, 100, 2, lambda: None)
    assert len(begun) <= 3


def test_one_thread_stops_at_an_exception_too():
    begun = []

    def work(job, memory):
        begun.append(job)
        raise ValueError("job")

    with pytest.raises(ValueError, match="job"):
        share_out(work, 100, 1, lambda: None)
    assert begun == [0]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_job_warns_of_its_arithmetic(threads):
    # pytest turns warnings into errors.
    share_out(lambda job, memory: np.array([1.0]) / np.zeros(1), 4, threads, lambda: None)


def test_there_is_at_least_one_core(monkeypatch):
    assert count_cores() >= 1
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert count_cores() == 1
