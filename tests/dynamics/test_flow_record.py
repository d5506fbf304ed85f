"""A flow on disk is the flow."""

import dataclasses
import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.dynamics.flow_record import FlowRecord, FlowStatus
from mirrormargin.errors import RunError


@pytest.fixture(scope="module")
def record():
    return mm.mirror_flow(mm.synthetic.unit_sphere(1), 1.75, 5, lr=0.5, tol=1e-4, record=3)


def assert_same(one, other):
    for field in dataclasses.fields(FlowRecord):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert type(a) is type(b), field.name
        np.testing.assert_array_equal(a, b, err_msg=field.name)


def test_a_saved_flow_is_read_back_to_the_last_bit(record, tmp_path):
    record.save(tmp_path / "flow", {"problem": "lab/unit_sphere", "seed": 1})
    assert_same(FlowRecord.load(tmp_path / "flow"), record)
    document = json.loads((tmp_path / "flow" / "run.json").read_text())
    assert document["kind"] == "mirror flow"
    assert document["about"] == {"problem": "lab/unit_sphere", "seed": 1}
    assert document["p"] == 1.75


@pytest.mark.parametrize("status", FlowStatus)
def test_every_status_is_read_back_as_itself(record, tmp_path, status):
    dataclasses.replace(record, status=status).save(tmp_path)
    assert FlowRecord.load(tmp_path).status is status


def test_a_flow_without_a_target_is_read_back(record, tmp_path):
    nowhere = np.full_like(record.target, np.nan)
    lost = dataclasses.replace(record, target=nowhere, divergence=record.divergence * np.nan)
    lost.save(tmp_path)
    assert_same(FlowRecord.load(tmp_path), lost)


@pytest.mark.parametrize(
    "change", [{"status": "dancing"}, {"status": None}, {"p": ...}], ids=["status", "none", "p"]
)
def test_a_damaged_document_is_a_run_error(record, tmp_path, change):
    record.save(tmp_path)
    file = tmp_path / "run.json"
    document = json.loads(file.read_text()) | change
    kept = {key: value for key, value in document.items() if value is not ...}
    file.write_text(json.dumps(kept))
    with pytest.raises(RunError, match="is damaged"):
        FlowRecord.load(tmp_path)


def test_other_runs_are_refused(record, tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        FlowRecord.load(tmp_path)
    mm.train_attention(mm.synthetic.unit_sphere(1), num_steps=1).save(tmp_path)
    with pytest.raises(RunError, match=r"'attention training'.* not 'mirror flow'"):
        FlowRecord.load(tmp_path)
