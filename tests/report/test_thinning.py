import numpy as np
import pytest

from mirrormargin.figures import Axis, Figure, HeatFrames, Panel, Series
from mirrormargin.report.payload import MAX_FRAMES, thin_figure, thin_series

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [401, 1000, 54321])
def test_thinning_keeps_ends_and_extremes(size: int) -> None:
    y = RNG.normal(size=size)
    y[size // 3], y[size // 2] = 50.0, -60.0
    thin = thin_series(Series("a", np.arange(size), y), 400)
    assert thin.y.size <= 400
    assert thin.y.max() == 50.0
    assert thin.y.min() == -60.0
    assert (thin.x[0], thin.x[-1]) == (0, size - 1)
    assert (np.diff(thin.x) > 0).all()
    np.testing.assert_array_equal(thin.y, y[thin.x.astype(int)])


def test_a_short_series_stays_as_it_is() -> None:
    series = Series("a", np.arange(400.0), np.ones(400))
    assert thin_series(series, 400) is series


def test_a_gap_of_one_point_stays() -> None:
    y = np.ones(5000)
    y[2345] = np.nan
    assert np.isnan(thin_series(Series("a", np.arange(5000), y), 100).y).sum() == 1


def test_a_series_of_gaps_only_stays_one() -> None:
    thin = thin_series(Series("a", np.arange(1000), np.full(1000, np.nan)), 100)
    assert 0 < thin.y.size <= 100
    assert np.isnan(thin.y).all()


def test_maps_keep_their_first_and_last_frame() -> None:
    count = 5 * MAX_FRAMES
    labels = tuple(f"step {i}" for i in range(count))
    heat = HeatFrames(RNG.random((count, 1, 1)), labels, ("r",), ("c",), ((0, 0),))
    figure = Figure("f", "", "", (Panel("", Axis(""), Axis(""), heat=heat),))
    thin = thin_figure(figure, 100).panels[0].heat
    assert thin is not None
    assert len(thin.frame_labels) == MAX_FRAMES
    assert (thin.frame_labels[0], thin.frame_labels[-1]) == (labels[0], labels[-1])
    np.testing.assert_array_equal(thin.values[-1], heat.values[-1])
    assert thin.marked == ((0, 0),)
