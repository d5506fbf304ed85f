"""Pictures of sweeps: the numbers of the table, and what the page says of them."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from mirrormargin.sweep import LabGrid, TrainingGrid, figures, run_sweep
from mirrormargin.sweep.figures import draw_sweep

HERE = {"workers": 0}


def collect(rows, column, **settings):
    """The values of a column in the rows that have these settings."""
    return [row[column] for row in rows if all(row[k] == v for k, v in settings.items())]


def test_lines_are_medians_over_seeds(tmp_path):
    grid = LabGrid(seed="1-9", p=[1.75, 2, 3], lr=[0.1, 0.3], num_steps=30)
    rows = run_sweep(grid, tmp_path, **HERE).read_table().to_pylist()
    (figure,) = draw_sweep("runs/mine", tmp_path)
    assert figure.name == "sweep-runs-mine"
    assert "54 of 54 runs are done" in figure.caption
    direction, optimal = figure.panels
    assert [series.label for series in direction.series] == ["lr = 0.1", "lr = 0.3"]
    for series, lr in zip(direction.series, (0.1, 0.3), strict=True):
        found = [collect(rows, "divergence", lr=lr, p=p) for p in (1.75, 2, 3)]
        np.testing.assert_array_equal(series.x, [1.75, 2, 3])
        np.testing.assert_allclose(series.y, np.median(found, axis=1), rtol=1e-15)
        np.testing.assert_allclose(series.low, np.quantile(found, 0.25, axis=1), rtol=1e-14)
    means = [np.mean(collect(rows, "optimal", lr=0.3, p=p)) for p in (1.75, 2, 3)]
    np.testing.assert_allclose(optimal.series[1].y, means, rtol=1e-14)
    assert figure.table.columns == ("settings", "p", "runs", "D", "optimal")
    assert figure.table.rows[0][:3] == ("lr = 0.1", "p = 1.75", "9")


def test_what_is_no_number_has_a_place_by_name(tmp_path):
    run_sweep(LabGrid(step_rule=["normalized", "constant"], num_steps=9), tmp_path, **HERE)
    (figure,) = draw_sweep("rules", tmp_path)
    axis = figure.panels[0].x
    assert (axis.label, axis.ticks[:2]) == ("step_rule", ("normalized", "constant"))
    np.testing.assert_array_equal(figure.panels[0].series[0].x, [0, 1])


def test_failed_runs_and_large_tables_are_told(tmp_path, monkeypatch):
    grid = LabGrid(parameterization=["W", "KQ"], rank=[None, 3], num_steps=4, seed="1-4")
    run_sweep(grid, tmp_path, most=4, **HERE)
    (figure,) = draw_sweep("mixed", tmp_path)
    assert "16 of 16 runs are done, 12 of them failed." in figure.caption
    run_sweep(LabGrid(seed="5-8", num_steps=4), tmp_path, **HERE)
    monkeypatch.setattr(figures, "MOST_ROWS", 16)
    assert "Drawn from 16 of them." in draw_sweep("mixed", tmp_path)[0].caption


def test_many_lines_are_cut_and_counted(tmp_path):
    run_sweep(LabGrid(lr=list(np.linspace(0.1, 1, 12)), p=[2, 3], num_steps=4), tmp_path, **HERE)
    (figure,) = draw_sweep("many", tmp_path)
    assert len(figure.panels[0].series) == 8
    assert "8 of 12 lines are drawn." in figure.caption


def test_trainings_are_means_over_seeds_with_defaults_where_nothing_was_changed(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it brings the digits")
    small = {"epochs": 2, "data.num_train": 200, "frontier_size": 50}
    grid = TrainingGrid("digits/tiny", {**small, "optimizer.p": [1.1, 2], "seed": [0, 1]})
    rows = run_sweep(grid, tmp_path / "sweep", **HERE).read_table().to_pylist()
    (figure,) = draw_sweep("trainings", tmp_path / "sweep")
    series = figure.panels[0].series[0]
    np.testing.assert_array_equal(series.x, [1.1, 2])  # 1.1 is that of the configuration
    means = [np.mean(collect(rows, "validation_selected", p=p)) for p in (1.1, 2)]
    np.testing.assert_allclose(series.y, means)
    assert figure.panels[0].y.label == "accuracy"


def test_a_report_shows_a_sweep_and_not_each_of_its_trainings(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it brings the digits")
    for library in ("plotly", "jinja2"):
        pytest.importorskip(library)
    from mirrormargin.report import write_report
    from mirrormargin.report.contents import find_unfinished, read_sources

    small = {"epochs": 1, "data.num_train": 200, "frontier_size": 50}
    run_sweep(TrainingGrid("digits/tiny", small), tmp_path / "runs" / "trainings", **HERE)
    run_sweep(LabGrid(p=[2, 3], num_steps=5), tmp_path / "runs" / "lab", **HERE)
    sources = read_sources([tmp_path / "runs"])
    assert [*sources.sweeps] == ["lab", "trainings"]
    assert sources.trainings == {}
    (tmp_path / "runs" / "trainings" / "runs" / "digits-tiny-0").mkdir()
    assert find_unfinished(tmp_path / "runs") == []
    page = write_report([tmp_path / "runs"], tmp_path / "report.html").read_text()
    assert "Sweep: lab" in page
    assert "Sweep: trainings" in page
