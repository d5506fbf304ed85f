"""Which steps are recorded."""

import numpy as np
import pytest

from mirrormargin.dynamics.descent.schedule import plan_steps, read_counts, read_lrs
from mirrormargin.errors import ProblemError


@pytest.mark.parametrize("count", [1, 2, 7, 50, 10_000])
@pytest.mark.parametrize("last", [0, 1, 2, 10, 12345])
def test_steps_go_from_zero_to_the_last_one_and_ascend(count, last):
    (steps,) = plan_steps(count, np.array([last]))
    assert steps[0] == 0
    assert steps[-1] == last
    assert (np.diff(steps) > 0).all()
    assert len(steps) <= count + 2


def test_spaced_steps_have_equal_ratios_in_the_end():
    (steps,) = plan_steps(50, np.array([10**6]))
    assert steps[:5].tolist() == [0, 1, 2, 3, 4]
    ratios = steps[-20:] / steps[-21:-1]
    assert ratios == pytest.approx(np.full(20, 10 ** (6 / 49)), rel=1e-3)


def test_given_steps_are_recorded_with_the_first_and_the_last():
    (steps,) = plan_steps([30, 5, 5, 70, 0, 900], np.array([100]))
    assert steps.tolist() == [0, 5, 30, 70, 100]
    assert plan_steps([], np.array([100])).tolist() == [[0, 100]]
    assert plan_steps(np.arange(4), np.array([3])).tolist() == [[0, 1, 2, 3]]


def test_rows_that_end_early_repeat_their_last_step():
    plan = plan_steps([2, 4, 6], np.array([3, 10, 0]))
    assert plan.tolist() == [[0, 2, 3, 3, 3], [0, 2, 4, 6, 10], [0] * 5]


def test_a_plan_may_start_later():
    plan = plan_steps(4, np.array([1000, 50]), np.array([100, 50]))
    assert plan[0, 0] == 100
    assert plan[0, -1] == 1000
    assert (plan[1] == 50).all()
    assert plan_steps([7, 70], np.array([100]), np.array([20])).tolist() == [[20, 70, 100]]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (0, "record is 0: record at least 1 step"),
        (-3, "record is -3"),
        ([1.5], "record must be a number of log-spaced steps, or a list of steps"),
        ([-1], "record must be"),
        ([np.inf], "record must be"),
        ([np.nan], "record must be"),
        ([[1, 2]], "record must be"),
        (2.5, "record must be"),
        ("all", "record has dtype"),
        (None, "record has dtype"),
    ],
)
def test_a_wrong_record_says_what_is_wrong(record, message):
    with pytest.raises(ProblemError, match=message):
        plan_steps(record, np.array([10]))


def test_numbers_are_for_all_exponents_or_each():
    assert read_counts(5, 3).tolist() == [5, 5, 5]
    assert read_counts([5], 3).tolist() == [5, 5, 5]
    assert read_counts([5, 0, 7], 3).tolist() == [5, 0, 7]
    assert read_lrs("lr", np.float32(0.5), 2).tolist() == [0.5, 0.5]
    assert read_lrs("lr", [0.5, 1.0], 2).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("count", [-1, 1.5, np.nan, np.inf, 1e300])
def test_a_wrong_number_of_steps_says_what_is_wrong(count):
    with pytest.raises(ProblemError, match=r"num_steps is .*: give integers >= 0"):
        read_counts([3, count], 2)


@pytest.mark.parametrize("lr", [0.0, -0.1, np.nan, np.inf])
def test_a_wrong_learning_rate_says_what_is_wrong(lr):
    with pytest.raises(ProblemError, match=r"head_lr is .*: give a positive number"):
        read_lrs("head_lr", [lr, 0.1], 2)


@pytest.mark.parametrize("shape", [(3,), (1, 2), (2, 1), (0,)])
def test_a_wrong_shape_says_what_is_wrong(shape):
    with pytest.raises(ProblemError, match=r"lr has shape \(.*one for each of the 2 exponents"):
        read_lrs("lr", np.ones(shape), 2)
