"""Tables of trainings: made of the records beside them, and what figures and claims read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mirrormargin.claims.campaign.grid_search import list_runs
from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.registry import STORIES

TABLES = {name: story.table for name, story in STORIES.items() if story.table is not None}

RECORDS = Path(__file__).parents[3] / "records"
# A text transformer's record has everything, token selection included.
RECORD = RECORDS / "imdb-small/adamw/lr0.0003-seed0.json"


def make_records(name: str) -> dict[str, Any]:
    """The one record as if it were that of every training that a table needs."""
    one = json.loads(RECORD.read_text())
    one["test"]["best"] = one["test"]["selected"] + 0.5
    one["levels"] = {"0.5": 120, "0.1": 800}
    one["attention"] = {
        "step": [100 * epoch for epoch in range(len(one["epochs"]) + 1)],
        "entropy": [[1.0, 0.9]] * (len(one["epochs"]) + 1),
        "largest": [[0.1, 0.2]] * (len(one["epochs"]) + 1),
    }
    records: dict[str, Any] = {}
    table = TABLES[name]
    for _ in range(2):  # the grid, then the chosen setting's seeds
        for method in (*table.methods, *table.extra):
            for run in list_runs(method, records):
                digest, config = run.config.digest(), json.loads(json.dumps(run.config.as_dict()))
                config["model"]["num_layers"] = 2
                known = {"key": run.key, "digest": digest, "config": config}
                records[run.key] = {**one, **known}
    return records


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_examined_and_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormargin.claims.campaign.grid_search._agree", lambda one, two: True)
    evidence = TABLES[name].make_evidence(name, make_records(name))
    assert evidence is not None
    assert evidence.settings["digest"] == TABLES[name].digest()
    for claim in STORIES[name].claims:
        assert claim.examine(evidence).measured
    (draw,) = STORIES[name].draw
    figure = draw(evidence)
    assert figure is not None
    assert figure.panels
    assert figure.table is not None


def test_a_table_of_other_settings_has_another_digest() -> None:
    table = TABLES["mnist"]
    method = replace(table.methods[1], seeds=(0, 1))
    assert method.name in table.required
    changed = replace(table, methods=(table.methods[0], method, *table.methods[2:]))
    assert changed.digest() != table.digest()
    assert replace(table, methods=table.methods[1:]).digest() == table.digest()


@pytest.mark.parametrize("name", TABLES)
def test_a_stored_table_is_what_the_records_give(name):
    stored, made = find_record(name), TABLES[name].make_evidence(name, read_records(RECORDS))
    assert (stored is None) == (made is None), "mirrormargin campaign --store makes them again"
    if stored is None or made is None:
        return
    assert stored.settings["digest"] == TABLES[name].digest()
    assert stored.arrays.keys() == made.arrays.keys()
    for key, values in made.arrays.items():
        np.testing.assert_array_equal(stored[key], values, err_msg=key)
