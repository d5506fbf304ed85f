"""What is drawn from each experiment's evidence."""

import json

import numpy as np
import pytest
from evidence_arrays import EVIDENCE

from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.dynamics import claimed_rate
from mirrormargin.figures import Figure, Series
from mirrormargin.figures.palette import find_color
from mirrormargin.figures.spread import find_mean, find_median, find_share
from mirrormargin.report.payload import format_payload

DRAWN = [
    figure
    for name, story in STORIES.items()
    for draw in story.draw
    if (figure := draw(Evidence(name, {}, EVIDENCE[name]))) is not None
]
FIGURES = sorted({figure.name for figure in DRAWN})


def _build(name: str) -> Figure:
    return next(figure for figure in DRAWN if figure.name == name)


def _find(figure: Figure, panel: int, label: str) -> Series:
    return next(one for one in figure.panels[panel].series if one.label == label)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_built_with_something_to_see(name: str) -> None:
    figure = _build(name)
    assert figure.name == name
    assert figure.title
    assert figure.caption
    for panel in figure.panels:
        drawn = [
            one.cut_to_scales(panel.x.scale, panel.y.scale) for one in panel.series if one.visible
        ]
        finite = sum(int(np.isfinite(one.y).sum()) for one in drawn)
        assert finite > 1 or panel.heat is not None
    json.loads(format_payload([figure], {name: f"fig-{name}"}, 10**6))


def test_in_directions_the_line_at_q_equal_to_p_is_the_mean_over_seeds() -> None:
    own = EVIDENCE["directions"]["own"]
    figure = _build("directions")
    for j, label in enumerate(("q = 1.75", "q = 2", "q = 3")):
        line = _find(figure, j, f"solution at {label}")
        np.testing.assert_allclose(line.y, own[:, 1, j, j].mean(axis=0))
        assert not _find(figure, j, f"{label}, for the same tokens").visible


def test_paths_in_cones_are_below_what_is_proven_of_them() -> None:
    figure = _build("cone-paths")
    for label in ("p = 1.75", "p = 2"):
        found, bound = (_find(figure, 0, name) for name in (label, f"{label}, proven bound"))
        assert (found.y <= bound.y).all()
        assert bound.y[-1] == pytest.approx(1e-7)


def test_shares_of_basins_add_up_to_one() -> None:
    for panel in _build("basins").panels:
        np.testing.assert_allclose(sum(series.y for series in panel.series), 1.0)
        for series in panel.series:
            assert ((series.low <= series.y) & (series.y <= series.high)).all()  # pyright: ignore


def test_the_proven_class_touches_the_largest_divergence_from_above() -> None:
    figure = _build("rates")
    for panel, p in zip(figure.panels[:3], (1.5, 2, 3), strict=True):
        measured, bound = panel.series
        assert bound.label == f"proven class, p = {p:g}"
        known = np.isfinite(bound.y)
        assert known.sum() > 50
        quotient = measured.high[known] / bound.y[known]  # pyright: ignore
        assert quotient.max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("p", "expected"),
    [(1.5, lambda x: x**-0.5), (2.0, lambda x: np.log(x) / x), (3.0, lambda x: 1 / x)],
)
def test_the_proven_classes_are_those_of_the_theorem(p: float, expected) -> None:
    decades = np.array([5.0, 50.0, 300.0])
    log_k = decades * np.log(10)
    np.testing.assert_allclose(claimed_rate(p)[1](log_k), expected(log_k))


def test_the_best_rate_of_gradient_descent_is_shown_and_the_others_wait_in_the_legend() -> None:
    panel = _build("steps").panels[0]
    shown = {series.label: series.visible for series in panel.series}
    assert shown == {
        "normalised": True,
        "Polyak, factor 0.5": True,
        "Polyak, factor 1": True,
        "gradient descent, lr = 1": False,
        "gradient descent, lr = 10": True,
    }


def test_losses_below_the_smallest_float_are_drawn() -> None:
    arrays = EVIDENCE["steps"]
    loss = _find(_build("steps"), 1, "normalised")
    expected = np.median(arrays["log_loss_gap"][:, 0], axis=0) / np.log(10)
    np.testing.assert_allclose(loss.y, expected)
    assert loss.y.min() < -1000


def test_attention_maps_are_at_the_same_steps_and_outline_the_optimal_tokens() -> None:
    figure = _build("attention")
    first, *others = (panel.heat for panel in figure.panels)
    assert first is not None
    assert first.frame_labels[0] == "step 0"
    assert first.marked == ((0, 0), (1, 1), (2, 2), (3, 3))
    assert all(heat.frame_labels == first.frame_labels for heat in others if heat)
    np.testing.assert_allclose(first.values[-1], EVIDENCE["trajectories"]["attention"][0, -1])


def test_a_ray_points_to_the_solution_and_is_as_long_as_the_path() -> None:
    ray, path, dots = _build("trajectories").panels[0].series
    assert np.hypot(ray.x[1], ray.y[1]) == pytest.approx(1.05 * np.hypot(path.x, path.y).max())
    assert dots.x.size == 4
    assert set(dots.x) <= set(path.x)


def test_the_ray_is_grey_wide_and_beneath_the_path() -> None:
    for name in ("trajectories", "joint"):
        ray, path = _build(name).panels[0].series[:2]
        assert (ray.label, ray.style) == ("max-margin ray", "wide")
        assert path.style == "arrow path"
        for color in find_color(ray.color_key):
            channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
            assert max(channels) - min(channels) < 25


@pytest.mark.parametrize("name", FIGURES)
def test_what_has_one_name_in_a_legend_looks_alike_in_every_panel(name: str) -> None:
    looks: dict[str, set] = {}
    for panel in _build(name).panels:
        for one in panel.series:
            # Dots may mark what is a line elsewhere, and an arrow is a line with a tip.
            style = "line" if one.style in ("arrow path", "points") else one.style
            looks.setdefault(one.label, set()).add((style, find_color(one.color_key)))
    assert {label: look for label, look in looks.items() if len(look) > 1} == {}


def test_the_slope_in_cones_is_that_at_the_largest_lead() -> None:
    figure = _build("cones")
    left, right = figure.panels
    assert [one.label for one in left.series] == [one.label for one in right.series]
    expected = EVIDENCE["cones"]["descends"][:2, :, -1].mean(axis=0)
    np.testing.assert_allclose(right.series[0].y, expected)
    assert "lead of 20 in logits" in figure.caption


def test_other_potentials_have_no_exponents_colour() -> None:
    names = ("quadratic", "squared 3", "weighted 1.5", "weighted 3")
    colors = {find_color(name) for name in names}
    assert len(colors) == 4
    assert not colors & {find_color(f"p = {p}") for p in (1.1, 1.5, 2, 3, 10)}


def test_sizes_have_colours_and_kinds_have_dashes_in_the_figure_of_ranks() -> None:
    for panel in _build("rank").panels:
        looks = {one.label: (one.style, one.group) for one in panel.series}
        assert looks == {"n = 4": ("line", "n = 4"), "n = 4, dashed": ("dashed", "n = 4")}


@pytest.mark.parametrize(("name", "start"), [("rates", "norm, "), ("prompts", "1 − cos, ")])
def test_the_second_row_says_what_it_shows(name: str, start: str) -> None:
    figure = _build(name)
    titles = [panel.title for panel in figure.panels]
    first, second = titles[: figure.columns], titles[figure.columns :]
    assert second == [start + title for title in first]


def test_a_mean_has_students_interval_and_leaves_out_gaps() -> None:
    middle, low, high = find_mean([[1.0, np.nan], [2.0, 5.0], [3.0, 7.0]])
    np.testing.assert_allclose(middle, [2.0, 6.0])
    np.testing.assert_allclose(high[0] - 2.0, 4.302652729911275 / np.sqrt(3))  # pyright: ignore
    np.testing.assert_allclose(6.0 - low[1], 12.706204736432095)  # pyright: ignore


def test_one_run_has_no_band() -> None:
    assert find_mean([[1.0]])[1:] == (None, None)
    assert find_median([[1.0]])[1:] == (None, None)


def test_a_share_has_wilsons_interval() -> None:
    share, low, high = find_share(np.arange(10)[:, None] < 8)
    assert share == pytest.approx(0.8)
    assert low == pytest.approx(0.490162, abs=1e-6)
    assert high == pytest.approx(0.943318, abs=1e-6)


def test_two_stories_share_the_figure_of_linear_models() -> None:
    flows, steps = (figure for figure in DRAWN if figure.name == "linear")
    assert len(flows.panels) == 3
    assert [panel.title for panel in steps.panels] == ["normalised steps, lp"]


def test_runs_that_do_not_count_are_left_out_of_the_means() -> None:
    figure = _build("multi-token")
    assert [panel.title for panel in figure.panels] == ["d = 8, runs: 2", "d = 10, runs: 1"]
    assert all(np.isfinite(one.y).all() for panel in figure.panels for one in panel.series)
