"""Many runs at once are each of them alone, bit for bit, on any number of threads."""

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention import synthetic
from mirrormargin.dynamics.metrics import MEASURES

FIELDS = (*MEASURES, "W", "steps", "divergence", "target", "path", "capped", "end")
WAYS = {
    "constant": {"step_rule": "constant", "lr": 1.0},
    "normalized": {"eps": 1e-12},
    "polyak": {"step_rule": "polyak", "lr": 1.0, "max_lr": 1e6},
    "KQ": {"parameterization": "KQ", "rank": 3},
    "joint": {"head_lr": 0.2, "decay": 0.5, "head_decay": 0.3},
}
WAY = pytest.mark.parametrize("way", WAYS)
EXPONENTS = [1.5, 2.0, 3.0]
INIT = mm.NormalInit(0.5, seeds=[4, 7])


def train(way, problems, p=EXPONENTS, init=INIT, **options):
    options = {"num_steps": 40, "record": 6, "keep_path": True} | options
    if way == "joint":
        return mm.train_joint(problems, p, init=init, head_init=init, **WAYS[way], **options)
    return mm.train_attention(problems, p, init=init, **WAYS[way], **options)


def spheres(*seeds):
    return [synthetic.unit_sphere(seed, 3, 5, 6) for seed in seeds]


def assert_same_bits(first, second, fields=FIELDS):
    for name in fields:
        one, other = getattr(first, name), getattr(second, name)
        if one is None:
            assert other is None
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


def part(record, place):
    """The run at this place, as the fields of a record with one run."""
    values = {name: getattr(record, name) for name in (*FIELDS, "head", "head_path", "factors")}
    one = tuple(slice(i, i + 1) for i in place)
    return {name: None if value is None else value[one] for name, value in values.items()}


@WAY
def test_a_batch_is_each_run_alone(way):
    problems = spheres(1, 2)
    together = train(way, problems)
    settings = {"KQ": (2, 6, 3)}
    starts = INIT.draw(2, np.array(EXPONENTS), settings.get(way, (6, 6)))
    heads = INIT.draw(2, np.array(EXPONENTS), (6,), (1,))
    for i, j, k in np.ndindex(2, 3, 2):
        options = {"num_steps": 40, "record": 6, "keep_path": True, **WAYS[way]}
        start = starts[i, j, k]
        if way == "joint":
            alone = mm.train_joint(
                problems[i], EXPONENTS[j], init=start, head_init=heads[i, j, k], **options
            )
        else:
            alone = mm.train_attention(problems[i], EXPONENTS[j], init=start, **options)
        for name, value in part(together, (i, j, k)).items():
            if value is not None:
                np.testing.assert_array_equal(value, getattr(alone, name), err_msg=name)


def test_starts_have_the_same_duals_in_a_batch_and_alone():
    # W -> |W|^(p-1): of an array of exponents NumPy takes another power than of 1/2 or 2 alone.
    from mirrormargin.dynamics.descent.batch import make_batch

    d, exponents = 100, np.array([1.5, 3.0, 1.1, 2.0])
    problem = synthetic.unit_sphere(1, 2, 2, d)
    starts = np.random.default_rng(0).normal(size=(1, len(exponents), 10, d, d))

    def find_duals(exponents, starts):
        return make_batch((problem,), exponents, "W", "constant", starts, None, {"lr": 1.0}).u

    together = find_duals(exponents, starts).reshape(len(exponents), 10, d, -1)
    for j, p in enumerate(exponents):
        one = starts[:, j : j + 1]
        for given in (one, one[..., ::-1].copy()[..., ::-1], np.asfortranarray(one)):
            np.testing.assert_array_equal(find_duals(np.array([p]), given), together[j])
        for k in (0, 3, 9):
            alone = find_duals(np.array([p]), one[:, :, k : k + 1])
            np.testing.assert_array_equal(alone[0], together[j, k])


@WAY
def test_threads_change_no_bit(way):
    records = [train(way, spheres(1, 2, 3), threads=threads) for threads in (1, 2, 3)]
    for other in records[1:]:
        assert_same_bits(records[0], other, (*FIELDS, "head", "head_path", "factors"))


def test_targets_are_solved_for_on_no_more_threads(monkeypatch):
    seen = []

    def solve(*args, threads, **options):
        seen.append(threads)
        return mm.solve_many(*args, threads=threads, **options)

    monkeypatch.setattr("mirrormargin.dynamics.descent.targets.solve_many", solve)
    train("normalized", spheres(1), threads=1)
    train("normalized", spheres(1))
    assert seen == [1, None]


@WAY
def test_cutting_into_pieces_changes_no_bit(way, monkeypatch):
    whole = train(way, spheres(1))
    calls = []
    monkeypatch.setattr("mirrormargin.dynamics.descent.batch.PIECE", 1e-6)
    pieces = train(way, spheres(1), progress=lambda done, total: calls.append(done))
    assert len(calls) > 20
    assert calls == sorted(calls)
    assert_same_bits(whole, pieces, (*FIELDS, "head", "head_path", "factors"))


@WAY
def test_more_problems_exponents_or_seeds_leave_the_others_alone(way):
    few = train(way, spheres(1, 2), [1.5, 3.0], mm.NormalInit(0.5, seeds=[4]))
    more = train(way, spheres(1, 2, 3), [1.2, 1.5, 2.0, 3.0], mm.NormalInit(0.5, seeds=[9, 4]))
    same = np.ix_([0, 1], [1, 3], [1])
    for name in ("W", *MEASURES, "divergence", "head"):
        value = getattr(few, name)
        if value is not None:
            np.testing.assert_array_equal(value, getattr(more, name)[same], err_msg=name)


def test_each_exponent_has_its_own_learning_rate_and_number_of_steps():
    problem = spheres(1)
    together = mm.train_attention(
        problem, EXPONENTS, lr=[0.3, 0.2, 0.1], num_steps=[10, 30, 20], record=100, target=None
    )
    for j, p in enumerate(EXPONENTS):
        lr, num_steps = [0.3, 0.2, 0.1][j], [10, 30, 20][j]
        alone = mm.train_attention(problem, p, lr=lr, num_steps=num_steps, record=100, target=None)
        np.testing.assert_array_equal(together.W[:, j], alone.W[:, 0])
        count = alone.steps.shape[-1]
        assert alone.steps[0, 0, 0].tolist() == list(range(num_steps + 1))
        np.testing.assert_array_equal(together.norm[:, j, :, :count], alone.norm[:, 0])
        # The others go on, this one repeats its end.
        assert (together.steps[:, j, :, count:] == num_steps).all()
        assert (together.norm[:, j, :, count:] == alone.norm[:, 0, :, -1:]).all()


def test_progress_counts_all_steps_of_all_runs():
    calls = []
    mm.train_attention(
        spheres(1, 2),
        [1.5, 2.0],
        num_steps=[10, 20],
        init=INIT,
        record=[3, 15],
        target=None,
        progress=lambda done, total: calls.append((done, total)),
    )
    total = 2 * 2 * (10 + 20)
    assert calls == [(0, total), (2 * 2 * (3 + 3), total), (2 * 2 * (10 + 15), total), (total,) * 2]


def test_a_heads_start_is_independent_of_its_matrix():
    record = train("joint", spheres(1), num_steps=0, target=None)
    W, v = record.W[0, 0, 0], record.head[0, 0, 0]
    assert not np.isin(v, W).any()


def test_problems_are_not_changed():
    problem = spheres(1)[0]
    before = problem.scores.copy(), problem.tokens.copy()
    for way in WAYS:
        train(way, problem)
    np.testing.assert_array_equal(before[0], problem.scores)
    np.testing.assert_array_equal(before[1], problem.tokens)
