"""Where training starts."""

import numpy as np
import pytest

from mirrormargin.dynamics.descent.inits import NormalInit, read_init
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
