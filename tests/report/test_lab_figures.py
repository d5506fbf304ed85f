"""A single run of the lab shows what a theorist wants to see, and says what each letter means."""

from pathlib import Path

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.figures import Figure
from mirrormargin.figures.palette import find_color
from mirrormargin.report.contents import arrange_contents, read_sources

PROBLEM = mm.synthetic.unit_sphere(1)


def _build(folder: Path) -> tuple[Figure, ...]:
    return arrange_contents(read_sources([folder])).figures


@pytest.fixture(scope="module")
def record():
    return mm.train_attention(PROBLEM, p=1.75, num_steps=500, lr=0.1, keep_path=True)


@pytest.fixture(scope="module")
def figures(record, tmp_path_factory) -> tuple[Figure, ...]:
    folder = tmp_path_factory.mktemp("single")
    record.save(folder / "mine")
    return _build(folder)


def test_one_run_has_no_median_and_no_counts(figures) -> None:
    curves = figures[0]
    assert "one run." in curves.caption
    assert "median" not in curves.caption
    assert curves.table.rows[0][-1] == "all steps"
    assert all(series.low is None for panel in curves.panels for series in panel.series)


def test_the_caption_defines_the_divergence(figures) -> None:
    assert "D = 1 − ⟨sign(V)|V|ᵖ⁻¹, U⟩" in figures[0].caption
    assert "U = W_mm/‖W_mm‖ₚ" in figures[0].caption


def test_ends_are_counted_only_where_they_differ(tmp_path: Path) -> None:
    record = mm.train_attention(PROBLEM, p=[2, 3], num_steps=30)
    record.end[0, 1, 0] = 2
    record.save(tmp_path / "mine")
    table = _build(tmp_path)[0].table
    assert table is not None
    assert [row[-1] for row in table.rows] == ["all steps", "diverged"]


def test_normalised_steps_are_drawn_below_the_bound_of_their_norm(figures, record) -> None:
    norm, bound = figures[0].panels[1].series
    assert bound.label == "proven bound, p = 1.75"
    assert bound.style == "dashed"
    np.testing.assert_allclose(bound.y, (0.1 * bound.x) ** (1 / 0.75))
    assert (norm.y <= bound.y * (1 + 1e-9)).all()
    assert norm.y[-1] > 0.8 * bound.y[-1]
    np.testing.assert_array_equal(norm.y, record.norm[0, 0, 0])
    assert "Dashed" in figures[0].caption


def test_the_bound_starts_at_the_norm_of_the_start(tmp_path: Path) -> None:
    start = np.random.default_rng(0).normal(size=(10, 10))
    record = mm.train_attention(PROBLEM, p=3, num_steps=200, lr=0.1, init=start)
    record.save(tmp_path / "mine")
    norm, bound = _build(tmp_path)[0].panels[1].series
    assert bound.y[0] == pytest.approx(norm.y[0])
    assert (norm.y <= bound.y * (1 + 1e-9)).all()


def test_constant_steps_are_compared_with_log_k_and_with_the_class_of_d(tmp_path: Path) -> None:
    record = mm.train_attention(PROBLEM, p=2, step_rule="constant", lr=1.0, num_steps=5000)
    record.save(tmp_path / "mine")
    direction, norm, _ = _build(tmp_path)[0].panels
    growth = norm.series[1]
    late = growth.x > 1
    ratio = growth.y[late] / np.log(growth.x[late])
    np.testing.assert_allclose(ratio, ratio[0])
    assert growth.y[-1] == pytest.approx(norm.series[0].y[-1])
    bound = direction.series[1]
    known = np.isfinite(bound.y)
    assert known.sum() > 1
    assert (direction.series[0].y[known] <= bound.y[known] * (1 + 1e-12)).all()


def test_the_loss_is_a_gap_and_its_digits_where_that_underflows(figures, tmp_path: Path) -> None:
    loss = figures[0].panels[2]
    assert (loss.y.label, loss.y.scale) == ("loss gap", "log")
    long = mm.train_attention(PROBLEM, p=2, num_steps=2000, lr=20.0)
    long.save(tmp_path / "long")
    digits = _build(tmp_path)[0].panels[2]
    assert (digits.y.label, digits.y.scale) == ("−log₁₀ of the loss gap", "log")
    assert digits.series[0].y[-1] == pytest.approx(-long.log_loss_gap[0, 0, 0, -1] / np.log(10))
    assert digits.series[0].y[-1] > 300


def test_w_and_the_max_margin_solution_share_a_colour_scale(figures, record) -> None:
    trained, target = (panel.heat for panel in figures[2].panels)
    assert trained.limits == target.limits
    assert trained.limits[0] == -trained.limits[1] < 0
    norm = (np.abs(record.W[0, 0, 0]) ** 1.75).sum() ** (1 / 1.75)
    np.testing.assert_allclose(trained.values[-1], record.W[0, 0, 0] / norm, rtol=1e-12)
    solution = mm.solve_attention_svm(
        PROBLEM.tokens, PROBLEM.queries, PROBLEM.optimal_tokens, p=1.75
    )
    W = solution.W / (np.abs(solution.W) ** 1.75).sum() ** (1 / 1.75)
    np.testing.assert_allclose(target.values[0], W, atol=1e-6)
    assert len(trained.frame_labels) > 5
    assert (trained.values[0] == 0).all()


def test_selected_tokens_are_listed_with_the_step_from_which_they_are(figures, record) -> None:
    table = figures[1].table
    assert [row[1] for row in table.rows] == [f"{t + 1}" for t in PROBLEM.optimal_tokens]
    assert [row[2] for row in table.rows] == [f"{t + 1}" for t in record.final_selection[0, 0, 0]]
    for i, row in enumerate(table.rows):
        since = int(row[4].removeprefix("step "))
        selection = record.selection[0, 0, 0, :, i]
        after = record.steps[0, 0, 0] >= since
        assert (selection[after] == selection[-1]).all()
        assert since == 0 or selection[~after][-1] != selection[-1]


def test_a_single_run_without_a_path_shows_its_end(tmp_path: Path) -> None:
    record = mm.train_attention(PROBLEM, p=2, num_steps=100)
    record.save(tmp_path / "mine")
    _, maps, matrices = _build(tmp_path)
    assert maps.panels[0].heat is not None
    np.testing.assert_allclose(
        maps.panels[0].heat.values[0], PROBLEM.attention(record.W[0, 0, 0]), rtol=1e-9
    )
    assert [len(panel.heat.frame_labels) for panel in matrices.panels if panel.heat] == [1, 1]


def test_flows_of_one_exponent_differ_in_label_and_colour(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        flow = mm.mirror_flow(mm.synthetic.unit_sphere(seed), 2.0, decades=6)
        flow.save(tmp_path / f"seed-{seed}-p-2")
    direction, norm = _build(tmp_path)[0].panels
    lines = direction.series[:3]
    assert [line.label for line in lines] == ["p = 2, seed-1", "p = 2, seed-2", "p = 2, seed-3"]
    assert len({find_color(line.color_key) for line in lines}) == 3
    growth = norm.series[3]
    assert growth.label == "proven growth, p = 2"
    np.testing.assert_allclose(growth.y, growth.x * growth.y[-1] / growth.x[-1])
