import numpy as np
import pytest

from mirrormargin.errors import ReportError
from mirrormargin.figures import Axis, HeatFrames, Series, Table

X = np.array([0.0, 1.0, 2.0, 3.0])


def test_what_has_no_logarithm_is_a_gap() -> None:
    series = Series("a", X, np.array([1.0, 0.0, -1.0, 2.0])).cut_to_scales("log", "log")
    np.testing.assert_array_equal(series.y, [np.nan, np.nan, np.nan, 2.0])
    np.testing.assert_array_equal(series.x, [np.nan, np.nan, np.nan, 3.0])


def test_a_linear_axis_keeps_zero_and_negative_values() -> None:
    y = np.array([1.0, 0.0, -1.0, np.inf])
    np.testing.assert_array_equal(
        Series("a", X, y).cut_to_scales("linear", "linear").y, [1, 0, -1, np.nan]
    )


def test_a_band_below_zero_ends_at_the_least_of_the_data_on_a_log_axis() -> None:
    y, low = np.full(4, 2.0), np.array([-1.0, 0.5, 1.0, 1.0])
    series = Series("a", X, y, low, y + 1).cut_to_scales("linear", "log")
    assert series.low is not None
    np.testing.assert_array_equal(series.low, [0.5, 0.5, 1.0, 1.0])


def test_taking_points_takes_their_band_too() -> None:
    series = Series("a", X, X, X - 1, X + 1, group="p = 2").take(np.array([1, 3]))
    assert (series.x.tolist(), series.low.tolist(), series.high.tolist()) == (  # pyright: ignore
        [1, 3],
        [0, 2],
        [2, 4],
    )
    assert series.group == "p = 2"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axis("x", "cubic"), "scale of an axis is 'cubic'"),
        (lambda: Series("a", X, X, style="wavy"), "style of 'a' is 'wavy'"),
        (lambda: Series("a", X, X[:2]), r"lengths \[2, 4\]"),
        (lambda: Series("a", X, X, low=X), "give both or neither"),
        (lambda: Series("a", X, np.ones((2, 2))), "shape"),
        (lambda: HeatFrames(np.ones((1, 2, 3)), ("a",), ("r",), ("c",) * 3), "labels for"),
        (
            lambda: HeatFrames(np.ones((1, 1, 2)), ("a",), ("r",), ("c", "d"), dots=np.ones(2)),
            "has dots",
        ),
        (lambda: Table(("a", "b"), (("1",),)), "has not 2 cells"),
    ],
)
def test_what_does_not_fit_together_is_refused(make, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        make()
