"""Every kind of check holds for right values and fails for wrong ones."""

import numpy as np
import pytest
from scipy import stats

from mirrormargin.claims import checks
from mirrormargin.claims.evidence import Evidence
from mirrormargin.dynamics import fit_rate

RNG = np.random.default_rng(0)
VALUES = 0.5 + 0.01 * RNG.normal(size=20)
K = np.geomspace(10, 1e5, 40)
SEEDS = 1 + 0.01 * RNG.normal(size=(5, 40))

RIGHT_AND_WRONG = {
    "mean_at_most": (
        checks.mean_at_most("x", VALUES, 0.6),
        checks.mean_at_most("x", VALUES + 1, 0.6),
    ),
    "mean_at_least": (
        checks.mean_at_least("x", VALUES, 0.4),
        checks.mean_at_least("x", VALUES - 1, 0.4),
    ),
    "mean_near": (
        checks.mean_near("x", VALUES, 0.5, 0.05),
        checks.mean_near("x", VALUES + 1, 0.5, 0.05),
    ),
    "mean_covers": (
        checks.mean_covers("x", VALUES, VALUES.mean() + 0.005, 0.003),
        checks.mean_covers("x", VALUES, VALUES.mean() + 0.01, 0.003),
    ),
    "all_at_most": (
        checks.all_at_most("x", VALUES, 0.6),
        checks.all_at_most("x", np.append(VALUES, 0.7), 0.6),
    ),
    "all_at_least": (
        checks.all_at_least("x", VALUES, 0.4),
        checks.all_at_least("x", np.append(VALUES, 0.3), 0.4),
    ),
    "all_equal": (
        checks.all_equal("x", np.array([[1, 0], [0, 0]]), [[1, 0], [0, 0]]),
        checks.all_equal("x", np.array([[1, 0], [0, 1]]), [[1, 0], [0, 0]]),
    ),
    "share_at_least": (
        checks.share_at_least("x", [True] * 19 + [False], 0.9),
        checks.share_at_least("x", [True] * 17 + [False] * 3, 0.9),
    ),
    "surely_smaller": (
        checks.surely_smaller("x", VALUES, VALUES + 0.1),
        checks.surely_smaller("x", VALUES + 0.1, VALUES),
    ),
    "ratio_at_most": (
        checks.ratio_at_most("x", VALUES, 4 * VALUES, 0.3),
        checks.ratio_at_most("x", VALUES, [1.0] * 20, 0.3),
    ),
    "check_seeds": (checks.check_seeds(np.zeros((2, 3))), checks.check_seeds(np.zeros((4, 2)))),
    "check_size": (
        checks.check_size(
            Evidence("imdb", {"configurations": ["imdb/paper-3", "imdb/paper-4"]}, {})
        ),
        checks.check_size(Evidence("imdb", {"configurations": ["imdb/paper-3", "imdb/small"]}, {})),
    ),
    "rate_at_least": (
        checks.rate_at_least("x", fit_rate("power", steps=K, values=SEEDS * K**-2.0, claimed=1.0)),
        checks.rate_at_least("x", fit_rate("power", steps=K, values=SEEDS * K**-0.5, claimed=1.0)),
    ),
    "rate_decays": (
        checks.rate_decays("x", fit_rate("power", steps=K, values=SEEDS * K**-0.2)),
        checks.rate_decays("x", fit_rate("power", steps=K, values=SEEDS * K**0.2)),
    ),
}


NEAR = 1 + np.array([-0.3, 0.1, 0.3])  # seeds with an interval from 0.3 to 1.8
OPEN_AND_CLOSED = {
    "mean_at_most": (
        checks.mean_at_most("x", NEAR, 0.9),
        checks.mean_at_most("x", NEAR, 0.1),
    ),
    "mean_at_least": (
        checks.mean_at_least("x", NEAR, 1.2),
        checks.mean_at_least("x", NEAR, 2.0),
    ),
    "surely_smaller": (
        checks.surely_smaller("x", NEAR, 1.1),
        checks.surely_smaller("x", NEAR, 0.1),
    ),
    "surely_smaller, one seed": (
        checks.surely_smaller("x", [1.0], [0.5]),
        checks.surely_smaller("x", [1.0] * 2, [0.5] * 2),
    ),
    "ratio_at_most": (
        checks.ratio_at_most("x", NEAR, np.ones(3), 0.9),
        checks.ratio_at_most("x", NEAR, np.ones(3), 0.1),
    ),
    "share_at_least": (
        checks.share_at_least("x", [True, False], 0.6),
        checks.share_at_least("x", [True, False], 1.0),  # one counterexample is enough
    ),
    "rate_at_least": (
        checks.rate_at_least(
            "x", fit_rate("power", steps=K, values=(K ** -NEAR[:, None]), claimed=1.2)
        ),
        checks.rate_at_least("x", fit_rate("power", steps=K, values=SEEDS * K**-0.5, claimed=1.0)),
    ),
}


@pytest.mark.parametrize("kind", OPEN_AND_CLOSED)
def test_a_check_whose_interval_reaches_what_is_expected_is_open(kind):
    undecided, refuted = OPEN_AND_CLOSED[kind]
    assert (undecided.holds, undecided.is_open) == (False, True)
    assert (refuted.holds, refuted.is_open) == (False, False)


def test_checks_that_hold_are_not_open():
    assert not any(right.is_open for right, _ in RIGHT_AND_WRONG.values())


@pytest.mark.parametrize("kind", RIGHT_AND_WRONG)
def test_right_values_hold_and_wrong_ones_do_not(kind):
    right, wrong = RIGHT_AND_WRONG[kind]
    assert right.holds is True
    assert wrong.holds is False


def test_every_kind_of_check_is_tested():
    made_elsewhere = {"find_interval", "fit_late", "FIRST_FITTED", "NUMBER", "STATEMENT"}
    assert set(checks.__all__) - made_elsewhere == set(RIGHT_AND_WRONG)


def test_a_ratio_is_a_geometric_mean_with_its_interval():
    check = checks.ratio_at_most("x", [1.0, 4.0], [2.0, 2.0], 1.0)
    assert check.value == pytest.approx(1.0)
    assert check.low == pytest.approx(1 / check.high)
    assert checks.ratio_at_most("x", [1.0], [4.0], 1.0).low is None


def test_sizes_that_are_not_known_are_not_the_published_ones():
    assert not checks.check_size(Evidence("imdb", {"configurations": []}, {})).holds


@pytest.mark.parametrize("check", [checks.all_at_most, checks.mean_at_most])
def test_nan_holds_for_no_bound(check):
    assert not check("x", [0.0, np.nan], 1.0).holds


@pytest.mark.parametrize("check", [checks.all_at_least, checks.mean_at_least])
def test_nan_holds_for_no_lower_bound(check):
    assert not check("x", [0.0, np.nan], -1.0).holds


def test_the_interval_is_students():
    mean, low, high = checks.find_interval(VALUES)
    expected = stats.t.interval(0.95, 19, VALUES.mean(), stats.sem(VALUES))
    np.testing.assert_allclose((low, high), expected, rtol=1e-12)
    assert mean == VALUES.mean()


def test_a_single_seed_has_no_interval():
    assert checks.find_interval([0.3]) == (0.3, None, None)


def test_a_difference_within_noise_is_not_smaller():
    a, b = RNG.normal(size=(2, 30))
    assert not checks.surely_smaller("x", a, b + 0.01).holds


def test_nan_is_no_success():
    assert not checks.share_at_least("x", [np.nan, np.nan], 0.5).holds


@pytest.mark.parametrize("check", [checks.mean_at_most, checks.all_at_least])
def test_no_values_are_an_error(check):
    with pytest.raises(ValueError, match="at least one value"):
        check("x", [], 1.0)


def test_no_runs_are_an_error():
    with pytest.raises(ValueError, match="no runs for 'x'"):
        checks.share_at_least("x", [])
