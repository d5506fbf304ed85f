"""Which runs are trained in lanes: by what they are, and never with another result."""

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention import synthetic
from mirrormargin.dynamics.descent.lane_groups import find_least_group, form_groups
from mirrormargin.dynamics.descent.settings import MODES, RULES
from mirrormargin.geometry.lanes import LANES

FAST = {"num_steps": 2, "record": 1, "target": None, "threads": 1}


def least(mode="W", rule="normalized", size=(6, 8, 10)):
    return find_least_group(MODES[mode], RULES[rule], *size)


def test_small_problems_are_trained_in_lanes_from_four_runs_on():
    assert least() == 4
    assert least(rule="constant") == 4
    assert least(size=(1, 2, 1)) == 4


def test_the_larger_the_problem_the_more_runs_it_takes():
    counts = [least(size=(n, 8, 10)) for n in (6, 30, 60, 100, 200)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "KQ"},
        {"mode": "joint"},
        {"rule": "polyak"},
        {"size": (200, 20, 64)},  # leaves the caches
        {"size": (8, 8, 64)},
    ],
    ids=str,
)
def test_what_is_too_large_or_not_made_for_lanes_is_trained_alone(options):
    assert least(**options) > LANES


class Spy:
    """Counts how often a loop is asked for."""

    def __init__(self, loop):
        self.loop, self.calls = loop, 0

    def load(self):
        self.calls += 1
        return self.loop.load()


def count_calls(monkeypatch, start):
    """Calls of the loop for lanes and of that for one run."""
    from mirrormargin.dynamics.descent import batch

    spies = Spy(batch.advance_lanes), Spy(batch.advance)
    with monkeypatch.context() as patch:
        patch.setattr(batch, "advance_lanes", spies[0])
        patch.setattr(batch, "advance", spies[1])
        start()
    return tuple(spy.calls for spy in spies)


def test_each_training_is_taken_by_its_loop(monkeypatch):
    problems = [synthetic.unit_sphere(seed) for seed in range(9)]
    calls = count_calls(monkeypatch, lambda: mm.train_attention(problems, 2.0, **FAST))
    assert calls == (2, 2)  # eight in lanes and one alone, at the first step and at the second
    ways = (
        lambda: mm.train_attention(problems, 2.0, step_rule="polyak", **FAST),
        lambda: mm.train_attention(problems, 2.0, init=1.0, parameterization="KQ", **FAST),
        lambda: mm.train_joint(problems, 2.0, **FAST),
        lambda: mm.train_attention(
            [synthetic.unit_sphere(seed, 8, 8, 64) for seed in range(8)], 2.0, **FAST
        ),
    )
    for way in ways:
        lanes, alone = count_calls(monkeypatch, way)
        assert lanes == 0
        assert alone >= 8


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("counts", [(1,), (4,), (8,), (19,), (3, 8, 21), (1, 1, 1, 1), (0, 300)])
@pytest.mark.parametrize("fewest", [1, 4, 7, 9])
def test_every_run_is_in_one_place(fewest, counts, threads):
    exponents = np.repeat([1.5, 2.0, 3.0, 1.75][: len(counts)], counts)
    order = np.random.default_rng(0).permutation(len(exponents))
    runs = 10 + np.arange(len(exponents))
    groups, alone = form_groups(runs, exponents[order], fewest, threads)
    assert groups.shape[1] == LANES
    assert sorted([*groups[groups >= 0], *alone]) == runs.tolist()
    for group in groups:
        present = group[group >= 0]
        assert len(present) >= fewest
        assert group[0] >= 0
        assert len(set(exponents[order][present - 10])) == 1


def test_few_runs_are_shared_out_to_all_threads():
    runs, exponents = np.arange(12), np.full(12, 2.0)
    assert [len(form_groups(runs, exponents, 4, threads)[0]) for threads in (1, 2, 3)] == [2, 2, 3]
    groups, alone = form_groups(runs, exponents, 4, 6)  # two for each: faster one by one
    assert len(groups) == 0
    assert len(alone) == 12


def test_no_runs_are_no_groups():
    groups, alone = form_groups(np.arange(0), np.zeros(0), 4, 2)
    assert groups.shape == (0, LANES)
    assert len(alone) == 0
