"""Claims on real data: trained where the profile says so, judged on records otherwise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.campaign.training_table import TrainingTable
from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.registry import STORIES
from mirrormargin.claims.stories.imdb_optimizers import collect_accuracies
from mirrormargin.claims.story import Story
from mirrormargin.claims.trainings import Trainings, store_tables
from mirrormargin.training.config import OptimizerConfig
from mirrormargin.training.configurations import find_configuration

DIGITS = replace(find_configuration("digits/tiny"), epochs=1)


def make_method(name, optimizer, rates, seeds=(0, 1)):
    grid = {
        f"lr{rate:g}": replace(DIGITS, optimizer=OptimizerConfig(optimizer, rate, p=1.1))
        for rate in rates
    }
    return Method("digits/tiny", name, grid, seeds)


@pytest.fixture(scope="module")
def table():
    methods = (
        make_method("one", "MirrorAdam", (1e-3, 3e-3)),
        make_method("two", "MirrorDescent", (1e-2,), seeds=(0,)),
    )
    return TrainingTable(methods, collect_accuracies, ("one",))


@pytest.fixture(scope="module")
def trained(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("claims")
    story = Story("made-up", "a table", {}, (), table=table)
    evidence = Trainings(out, "full").find_evidence(story)
    return out, story, evidence


def test_full_trains_and_collects(trained):
    out, _, evidence = trained
    assert evidence.origin["kind"] == "run now"
    assert evidence["optimizer"].tolist() == ["one", "two"]
    # The smaller number of seeds is common to both.
    assert evidence["selected_test"].shape == (2, 1)
    records = read_records(out / "records")
    chosen = [record for record in records.values() if "test" in record]
    assert len(records) == 4
    assert len(chosen) == 3
    best = max(
        (record for key, record in records.items() if "/one/" in key and key.endswith("seed0")),
        key=lambda record: record["validation"]["selected"],
    )
    assert evidence["lr"][0] == best["config"]["optimizer"]["lr"]


def test_what_has_a_record_is_not_trained_again(trained, tmp_path):
    out, story, evidence = trained
    again = Trainings(tmp_path, "full", records=out / "records").find_evidence(story)
    assert not (tmp_path / "trainings").exists()
    assert again.origin["kind"] == "stored record"
    np.testing.assert_array_equal(again["selected_test"], evidence["selected_test"])


def test_without_training_missing_methods_are_left_out(trained, tmp_path):
    out, story, _ = trained
    records = tmp_path / "records"
    for path in (out / "records").glob("*/one/*.json"):
        (records / "digits-tiny" / "one").mkdir(parents=True, exist_ok=True)
        (records / "digits-tiny" / "one" / path.name).write_bytes(path.read_bytes())
    found = Trainings(tmp_path / "out", "full", records, may_train=False)
    assert found.find_evidence(story)["optimizer"].tolist() == ["one"]


def test_without_a_required_method_there_is_no_evidence(tmp_path, table):
    story = Story("made-up", "a table", {}, (), table=table)
    assert Trainings(tmp_path, "full", may_train=False).find_evidence(story) is None


def test_quick_trains_nothing(tmp_path, table):
    story = Story("made-up", "a table", {}, (), table=table)
    assert Trainings(tmp_path, "quick").find_evidence(story) is None
    assert list(tmp_path.iterdir()) == []


def test_fresh_trains_again(trained, tmp_path, table):
    out, story, _ = trained
    place = tmp_path / "records" / "digits-tiny" / "two"
    place.mkdir(parents=True)
    name = "lr0.01-seed0.json"
    record = json.loads((out / "records" / "digits-tiny" / "two" / name).read_text())
    (place / name).write_text(json.dumps(record | {"seconds": -1.0}))
    only = replace(table, methods=table.methods[1:], required=("two",))
    found = Trainings(tmp_path, "full", is_fresh=True).find_evidence(replace(story, table=only))
    assert found.seconds > 0


def test_stored_tables_are_found_as_records(trained, tmp_path, monkeypatch, table):
    out, _, evidence = trained
    story = Story("made-up", "a table", {}, (), table=table)
    monkeypatch.setattr("mirrormargin.claims.trainings.STORIES", {"made-up": story})
    assert store_tables(out / "records", tmp_path) == ["made-up"]
    found = find_record("made-up", tmp_path)
    assert found.arrays.keys() == evidence.arrays.keys()
    np.testing.assert_array_equal(found["selected_test"], evidence["selected_test"])
    assert found.origin["data_sha256"]
    assert "mirrormargin campaign --only" in found.origin["command"]


def test_every_stored_record_of_the_package_can_be_read():
    for name in STORIES:
        record = find_record(name)
        assert record is None or record.settings["configurations"]
