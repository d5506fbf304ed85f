"""Figures of trainings on real data, from the folders that the command line writes."""

import json
from pathlib import Path

import numpy as np
import pytest

from mirrormargin.cli import main
from mirrormargin.errors import ReportError
from mirrormargin.figures.palette import find_color
from mirrormargin.report.contents import arrange_contents, read_sources
from mirrormargin.runs import seal
from mirrormargin.training.figures import choose_epochs

SHORT = ["train", "digits/tiny", "--epochs", "2", "--num-train", "200", "--quiet"]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainings")
    assert main([*SHORT, "--out", str(folder / "mirror")]) == 0
    assert main([*SHORT, "--out", str(folder / "adamw"), "--optimizer", "AdamW", "--no-test"]) == 0
    return folder


def test_trainings_are_drawn_side_by_side(trainings: Path) -> None:
    curves, pruning, weights = arrange_contents(read_sources([trainings])).figures
    names = ["AdamW", "MirrorAdam p=1.1"]
    for figure in (curves, pruning, weights):
        assert [series.label for series in figure.panels[0].series] == names
        assert figure.table is not None
        assert [row[0] for row in figure.table.rows] == names
    assert curves.table is not None
    assert [row[-2] for row in curves.table.rows] == ["adamw", "mirror"]
    document = json.loads((trainings / "mirror" / "summary.json").read_text())
    line = curves.panels[1].series[1]
    assert line.y.tolist() == [row["validation_accuracy"] for row in document["epochs"]]
    # One of them was not evaluated on test data.
    assert "on validation data" in pruning.caption
    assert pruning.panels[0].series[1].y.tolist() == document["validation"]["frontier"]["blocks"]
    assert len(weights.panels) == 3


def test_of_one_training_with_test_data_pruning_is_that_on_test_data(trainings: Path) -> None:
    _, pruning, _ = arrange_contents(read_sources([trainings / "mirror"])).figures
    assert "on test data" in pruning.caption
    assert [panel.title for panel in pruning.panels] == [
        "all block matrices",
        "attention matrices",
    ]


@pytest.mark.filterwarnings("ignore:.*has no checksum")
def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(ReportError, match=r"summary\.json is damaged"):
        read_sources([tmp_path])


def test_each_of_many_trainings_has_its_colour_and_its_label(
    trainings: Path, tmp_path: Path
) -> None:
    document = json.loads((trainings / "adamw" / "summary.json").read_text())
    for name, changes in {
        "adamw-l1": {"sparsifier": {"kind": "L1Penalty", "strength": 3e-5}},
        "p-1.05": {
            "optimizer": document["config"]["optimizer"] | {"name": "MirrorAdam", "p": 1.05}
        },
        "p-1.1": {"optimizer": document["config"]["optimizer"] | {"name": "MirrorAdam", "p": 1.1}},
        "adamw": {},
    }.items():
        (tmp_path / name).mkdir()
        changed = document | {"config": document["config"] | changes}
        (tmp_path / name / "summary.json").write_text(json.dumps(seal(changed)))
    figures = arrange_contents(read_sources([tmp_path])).figures
    for figure in figures:
        for panel in figure.panels:
            labels = [series.label for series in panel.series]
            assert labels == ["AdamW", "AdamW + L1", "MirrorAdam p=1.05", "MirrorAdam p=1.1"]
            assert len({find_color(series.color_key) for series in panel.series}) == 4
    table = figures[0].table
    assert table is not None
    assert table.columns[6:] == ("settings", "folder", "command")
    assert [row[6] for row in table.rows] == [
        "AdamW, no penalty",
        "AdamW, L1 3e-05",
        "MirrorAdam, p 1.05, no penalty",
        "MirrorAdam, p 1.1, no penalty",
    ]


def test_epochs_are_whole_numbers(trainings: Path) -> None:
    curves = arrange_contents(read_sources([trainings])).figures[0]
    assert {panel.x.marks for panel in curves.panels} == {(1.0, 2.0)}
    for count in range(1, 1200):
        marks = choose_epochs(count)
        assert marks[0] == 1
        assert marks[-1] <= count
        assert len(marks) <= 8
        assert all(mark.is_integer() for mark in marks)


def test_a_training_of_one_epoch_is_a_point(trainings: Path, tmp_path: Path) -> None:
    document = json.loads((trainings / "mirror" / "summary.json").read_text())
    document["epochs"] = document["epochs"][:1]
    (tmp_path / "summary.json").write_text(json.dumps(seal(document)))
    curves = arrange_contents(read_sources([tmp_path])).figures[0]
    assert {series.style for panel in curves.panels for series in panel.series} == {"points"}


def test_histograms_count_every_entry_in_few_bins(trainings: Path) -> None:
    *_, weights = arrange_contents(read_sources([trainings / "mirror"])).figures
    document = json.loads((trainings / "mirror" / "summary.json").read_text())
    for panel, kind in zip(weights.panels, ("key", "query", "value"), strict=True):
        heights = panel.series[0].y[::2]
        assert heights.size <= 40
        assert np.nansum(heights) == sum(document["weights"][kind]["histogram"])
