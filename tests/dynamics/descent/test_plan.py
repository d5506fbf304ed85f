"""Where training starts, and which steps are recorded."""

import numpy as np
import pytest

from mirrormargin.dynamics.descent.plan import (
    NormalInit,
    plan_steps,
    read_counts,
    read_init,
    read_lrs,
)
from mirrormargin.errors import ProblemError

EXPONENTS = np.array([1.5, 2.0])


def test_starts_are_normal():
    starts = NormalInit(3.0, seeds=range(100)).draw(4, EXPONENTS, (5, 5))
    assert starts.shape == (4, 2, 100, 5, 5)
    count = starts.size
    assert abs(starts.mean()) < 4 * 3 / np.sqrt(count)
    assert starts.std() == pytest.approx(3.0, rel=4 / np.sqrt(2 * count))


def test_no_two_starts_are_the_same():
    starts = NormalInit(1.0, seeds=range(10)).draw(3, EXPONENTS, (2, 2))
    assert len(np.unique(starts)) == starts.size


def test_a_start_depends_on_nothing_but_seed_place_and_exponent():
    few = NormalInit(1.0, seeds=[5]).draw(2, EXPONENTS, (3,))
    more = NormalInit(1.0, seeds=[1, 5]).draw(3, np.array([2.0, 1.25, 1.5]), (3,))
    np.testing.assert_array_equal(few, more[np.ix_([0, 1], [2, 0], [1])])


def test_a_start_can_be_the_same_at_every_exponent():
    starts = NormalInit(1.0, seeds=range(3), same_for_all_p=True).draw(2, EXPONENTS, (3,))
    np.testing.assert_array_equal(starts[:, 0], starts[:, 1])
    assert not (starts[0] == starts[1]).any()


def test_another_stream_is_another_draw():
    init = NormalInit(1.0, seeds=range(3))
    first, second = init.draw(2, EXPONENTS, (3,)), init.draw(2, EXPONENTS, (3,), (1,))
    assert not np.isin(first, second).any()


def test_no_std_is_zero():
    assert not NormalInit(0.0).draw(1, EXPONENTS, (3,)).any()


@pytest.mark.parametrize("seeds", [3, np.int64(3), [3], (3,), np.array([3]), range(3, 4)])
def test_seeds_may_come_as_any_integers(seeds):
    assert NormalInit(seeds=seeds).seeds == (3,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"std": -1.0}, "std is -1.0: give a number of at least 0"),
        ({"std": np.nan}, "std is nan"),
        ({"std": np.inf}, "std is inf"),
        ({"std": "wide"}, "std is 'wide'"),
        ({"std": None}, "std is None"),
        ({"seeds": []}, r"seeds is \[\]: give at least one integer"),
        ({"seeds": -1}, "seeds is -1: give at least one integer, all >= 0"),
        ({"seeds": [1, -2]}, r"seeds is \[1, -2\]"),
        ({"seeds": 1.5}, "seeds is 1.5: give integers >= 0"),
        ({"seeds": [1.5]}, r"seeds is \[1.5\]: give integers"),
        ({"seeds": "one"}, "seeds is 'one': give integers"),
        ({"seeds": None}, "seeds is None: give integers"),
    ],
)
def test_a_wrong_normal_init_says_what_is_wrong(options, message):
    with pytest.raises(ProblemError, match=message):
        NormalInit(**options)


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((), ()),
        ((3, 3), ()),
        ((1, 3, 3), (0,)),
        ((4, 3, 3), (2,)),
        ((2, 1, 3, 3), (1, 0)),
        ((5, 1, 4, 3, 3), (1, 0, 2)),
        ((5, 2, 4, 3, 3), (1, 1, 2)),
    ],
)
def test_arrays_broadcast_to_problems_exponents_and_starts(shape, place):
    array = np.random.default_rng(0).normal(size=shape)
    starts = read_init(array, 5, EXPONENTS, (3, 3))
    count = shape[-3] if len(shape) > 2 else 1
    assert starts.shape == (5, 2, count, 3, 3)
    k = place[-1] if len(place) else 0
    np.testing.assert_array_equal(starts[1, 1, k], np.broadcast_to(array[place], (3, 3)))
    starts[:] = 0.0  # a copy of its own


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (np.zeros((2, 3)), r"init has shape \(2, 3\).*does not broadcast to \(5, 2, 1, 3, 3\)"),
        (np.zeros((4, 1, 1, 3, 3)), r"init has shape \(4, 1, 1, 3, 3\)"),
        (np.zeros((0, 3, 3)), r"init has shape \(0, 3, 3\) and is empty"),
        ([[0.0, np.nan, 0.0]], r"init\[0, 1\] is nan"),
        (np.inf, r"init.* is (nan|inf): give finite numbers"),
        ("zero", "init has dtype"),
        (None, "init has dtype object"),
    ],
)
def test_a_wrong_array_says_what_is_wrong(init, message):
    with pytest.raises(ProblemError, match=message):
        read_init(init, 5, EXPONENTS, (3, 3))


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
