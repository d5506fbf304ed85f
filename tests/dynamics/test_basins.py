"""Where runs end, and how often."""

import numpy as np
import pytest
from scipy import stats

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.dynamics.basins import KINDS
from mirrormargin.errors import ProblemError
from mirrormargin.figures.spread import find_share_of


def spheres(*seeds):
    return [synthetic.unit_sphere(seed, 4, 3, 5) for seed in seeds]


def test_kinds_are_those_of_local_optimality_one_by_one():
    problems, exponents = spheres(*range(6)), [1.75, 3.0]
    # Random ones, which are hardly ever locally optimal, and those that training finds.
    selections = np.random.default_rng(0).integers(0, 3, size=(6, 2, 12, 4))
    selections[:, :, :4] = make_record().final_selection
    kinds = mm.classify_selections(problems, selections, exponents)
    assert kinds.shape == (6, 2, 12)
    for i, j, k in np.ndindex(kinds.shape):
        problem, chosen = problems[i], selections[i, j, k]
        if (chosen == problem.optimal_tokens).all():
            expected = "global"
        else:
            is_local = mm.is_locally_optimal(problem, chosen, exponents[j])
            expected = "local" if is_local else "unsettled"
        assert kinds[i, j, k] == expected
    assert set(np.unique(kinds)) == {"global", "local", "unsettled"}


def test_selections_broadcast():
    problems = spheres(1, 2)
    kinds = mm.classify_selections(problems, [0, 1, 2, 0], [1.5, 2.0])
    assert kinds.shape == (2, 2, 1)
    one = mm.classify_selections(problems[1], [0, 1, 2, 0], 2.0)
    assert one.shape == (1, 1, 1)
    assert one[0, 0, 0] == kinds[1, 1, 0]


def test_a_selection_that_nothing_separates_is_unsettled():
    tokens = [[[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]]
    problem = AttentionProblem(tokens, [[1.0, 1.0]], [1], [1.0, 0.0])
    assert mm.classify_selections(problem, [[0], [2]]).tolist() == [[["unsettled", "global"]]]


def test_a_support_token_of_equal_score_unsettles():
    # Tokens 0 and 1 score the same; the first of them counts as the optimal one.
    problem = AttentionProblem(
        [[[1.0, 0.5], [0.0, 0.5], [-1.0, 0.0]]], [[1.0, 0.0]], [1], [0.0, 1.0]
    )
    assert mm.classify_selections(problem, [[0], [1]]).tolist() == [[["global", "unsettled"]]]
    assert not mm.is_locally_optimal(problem, [1])


def test_what_is_not_certified_is_unknown(monkeypatch):
    solve = mm.solve_many

    def give_up(*args, **options):
        return solve(*args, **(options | {"max_iter": 1}))

    monkeypatch.setattr("mirrormargin.dynamics.basins.solve_many", give_up)
    problem = spheres(1)[0]
    worst = problem.scores.argmin(axis=1)
    kinds = mm.classify_selections(problem, [worst, problem.optimal_tokens])
    assert kinds.tolist() == [[["unknown", "global"]]]


def make_record(num_steps=800):
    return mm.train_attention(
        spheres(*range(6)),
        [1.75, 3.0],
        num_steps=num_steps,
        init=mm.NormalInit(2.0, range(4)),
        record=2,
        target=None,
    )


def test_statistics_count_every_run_once():
    record = make_record()
    statistics = mm.basin_statistics(record)
    kinds = mm.classify_selections(record.problems, record.final_selection, record.p)
    np.testing.assert_array_equal(statistics.kinds, kinds)
    np.testing.assert_array_equal(statistics.p, [1.75, 3.0])
    for j in range(2):
        assert tuple(statistics.counts[j]) == KINDS
        assert sum(statistics.counts[j].values()) == 24
        for kind in KINDS:
            count = int((kinds[:, j] == kind).sum())
            assert statistics.counts[j][kind] == count
            assert statistics.shares[j][kind][0] == pytest.approx(count / 24)
    best = np.array([problem.optimal_tokens for problem in record.problems])[:, None, None]
    share = (record.final_selection == best).mean(axis=(0, 2, 3))
    np.testing.assert_allclose(statistics.optimal_tokens, share)
    assert {"global", "local"} <= set(np.unique(kinds))


def test_settled_training_ends_where_theory_says():
    # After 20,000 steps at p = 1.75: at a selection that is locally optimal.
    record = mm.train_attention(
        spheres(*range(6)),
        1.75,
        num_steps=20_000,
        init=mm.NormalInit(2.0, range(4)),
        record=2,
        target=None,
    )
    assert mm.basin_statistics(record).counts[0]["unsettled"] == 0


def test_statistics_print_as_a_table():
    lines = str(mm.basin_statistics(make_record())).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["p", "runs", *KINDS]
    assert lines[1].split()[:2] == ["1.75", "24"]
    assert lines[1].count("%") == 12


@pytest.mark.parametrize(("count", "total"), [(0, 1), (1, 1), (0, 24), (7, 24), (24, 24), (3, 999)])
def test_intervals_are_wilsons(count, total):
    interval = stats.binomtest(count, total).proportion_ci(0.95, method="wilson")
    found = find_share_of(count, total)
    assert found == pytest.approx((count / total, interval.low, interval.high), abs=1e-12)
    assert 0 <= found[1] <= found[0] <= found[2] <= 1


def test_joint_training_has_no_basins():
    record = mm.train_joint(synthetic.joint_toy(), num_steps=5, target=None)
    with pytest.raises(ProblemError, match="joint training"):
        mm.basin_statistics(record)
