"""Figures of trainings on real data, from the folders that the command line writes."""

import json
from pathlib import Path

import pytest

from mirrormargin.cli import main
from mirrormargin.errors import ReportError
from mirrormargin.report.contents import arrange_contents, read_sources

SHORT = ["train", "digits/tiny", "--epochs", "2", "--num-train", "200", "--quiet"]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainings")
    assert main([*SHORT, "--out", str(folder / "mirror")]) == 0
    assert main([*SHORT, "--out", str(folder / "adamw"), "--optimizer", "AdamW", "--no-test"]) == 0
    return folder


def test_trainings_are_drawn_side_by_side(trainings: Path) -> None:
    curves, pruning, weights = arrange_contents(read_sources([trainings])).figures
    names = ["adamw, AdamW", "mirror, MirrorAdam p=1.1"]
    for figure in (curves, pruning, weights):
        assert [series.label for series in figure.panels[0].series] == names
        assert figure.table is not None
        assert [row[0] for row in figure.table.rows] == names
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


def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(ReportError, match=r"summary\.json is damaged"):
        read_sources([tmp_path])
