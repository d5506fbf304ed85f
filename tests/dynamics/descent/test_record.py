"""The record of a training: what it holds, and that it comes back from the disk."""

import dataclasses
import json
import math

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.dynamics.descent.record import AttentionRecord
from mirrormargin.errors import ProblemError, RunError

EXPONENTS = [1.75, 3.0]


def spheres(*seeds):
    return [synthetic.unit_sphere(seed, 3, 5, 6) for seed in seeds]


def make_record(**options):
    defaults = {"num_steps": [60, 40], "init": mm.NormalInit(0.5, range(2)), "record": 8}
    return mm.train_attention(
        spheres(1, 2), EXPONENTS, **(defaults | {"keep_path": True} | options)
    )


def assert_same(first, second):
    for field in dataclasses.fields(AttentionRecord):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "problems":
            for a, b in zip(one, other, strict=True):
                assert a.loss_name == b.loss_name
                for name in ("tokens", "queries", "labels", "head"):
                    np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        elif field.name == "state":
            assert one.keys() == other.keys()
            for name, value in one.items():
                np.testing.assert_array_equal(value, other[name], err_msg=name)
        elif field.name == "settings":
            assert one == other
        elif one is None:
            assert other is None, field.name
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)
            assert one.dtype == other.dtype, field.name


def test_recorded_values_are_those_of_the_recorded_path():
    record = make_record()
    for place in np.ndindex(record.steps.shape):
        problem, p, W = record.problems[place[0]], EXPONENTS[place[1]], record.path[place]
        s = problem.attention(W)
        assert record.loss_gap[place] == pytest.approx(problem.loss_gap(W), rel=1e-10)
        assert math.exp(record.log_loss[place]) == pytest.approx(problem.loss(W), rel=1e-10)
        assert record.norm[place] == pytest.approx(float(mm.LpPotential(p).norm(W)), rel=1e-12)
        assert record.attention[place] == pytest.approx(s.max(axis=1).mean(), rel=1e-10)
        np.testing.assert_array_equal(record.selection[place], problem.selected_tokens(W))
        target = record.target[place[:3]]
        expected = mm.directional_divergence(target, W, p)
        assert record.divergence[place] == pytest.approx(float(expected), rel=1e-9, abs=1e-14)
    np.testing.assert_array_equal(record.W, record.path[..., -1, :, :])
    np.testing.assert_array_equal(record.final_selection, record.selection[..., -1, :])
    np.testing.assert_array_equal(record.loss_gap, np.exp(record.log_loss_gap))


def test_targets_are_the_max_margin_solutions_of_the_final_selection():
    record = make_record()
    solved = mm.solve_many(record.problems, record.final_selection, EXPONENTS)
    np.testing.assert_array_equal(record.target, solved.W)


def test_steps_are_those_asked_for():
    record = make_record(record=[7, 11, 50])
    assert record.steps.shape == (2, 2, 2, 5)
    assert record.steps[1, 0, 1].tolist() == [0, 7, 11, 50, 60]
    assert record.steps[1, 1, 0].tolist() == [0, 7, 11, 40, 40]
    assert record.planned.tolist() == [[0, 7, 11, 50, 60], [0, 7, 11, 40, 40]]
    assert record.is_complete


def test_no_steps_record_the_start():
    record = make_record(num_steps=0)
    assert record.steps.shape == (2, 2, 2, 1)
    start = mm.NormalInit(0.5, range(2)).draw(2, np.array(EXPONENTS), (6, 6))
    np.testing.assert_array_equal(record.W, start)


def test_a_start_at_zero_has_no_divergence():
    record = make_record(init=0.0)
    assert np.isnan(record.divergence[..., 0]).all()
    assert np.isfinite(record.divergence[..., 1:]).all()


def test_other_targets():
    own = make_record()
    given = make_record(target=own.target[:, :, :1])
    np.testing.assert_array_equal(given.divergence[:, :, 0], own.divergence[:, :, 0])
    np.testing.assert_array_equal(given.divergence, own.divergence_from(own.target[:, :, :1]))
    one = make_record(target=np.eye(6))
    np.testing.assert_array_equal(one.divergence, own.divergence_from(np.eye(6)))
    none = make_record(target=None)
    assert none.divergence is None
    assert none.target is None
    np.testing.assert_array_equal(none.W, own.W)


def test_a_selection_that_nothing_separates_has_a_target_of_nan():
    # Twin tokens: no W makes one of them lead.
    twins = AttentionProblem([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], [[1.0, 1.0]], [1], [1.0, 0.0])
    record = mm.train_attention(twins, 2.0, num_steps=20)
    assert np.isnan(record.target).all()
    assert np.isnan(record.divergence).all()
    assert np.isfinite(record.W).all()


def test_the_path_is_kept_on_request_alone():
    record = make_record(keep_path=False)
    assert record.path is None
    np.testing.assert_array_equal(record.divergence, make_record().divergence)
    with pytest.raises(ProblemError, match="the path of W was not kept: train with keep_path=True"):
        record.divergence_from(np.eye(6))


def test_repr_names_the_axes():
    assert repr(make_record()) == (
        "AttentionRecord(2 x 2 x 2 problems x exponents x inits, p = 1.75, 3, normalized, 60 steps)"
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_path": False, "target": None},
        {"target": np.eye(6)},
        {"step_rule": "polyak", "lr": 1.0, "max_lr": 1e50},
        {"step_rule": "polyak", "lr": 1.0},
        {"parameterization": "KQ", "rank": 2},
        {"eps": np.float32(0.25), "target_tol": np.float32(1e-6), "keep_path": np.True_},
    ],
)
def test_a_record_comes_back_from_the_disk(tmp_path, options):
    record = make_record(**options)
    record.save(tmp_path / "run")
    assert_same(record, AttentionRecord.load(tmp_path / "run"))
    assert sorted(path.suffix for path in (tmp_path / "run").iterdir()) == [".json", ".npz"]


@pytest.mark.parametrize("loss", ["exponential", "correlation"])
def test_a_joint_record_comes_back_from_the_disk(tmp_path, loss):
    record = mm.train_joint(
        synthetic.joint_toy(loss=loss), EXPONENTS, num_steps=20, keep_path=True, decay=0.5
    )
    record.save(str(tmp_path))
    assert_same(record, AttentionRecord.load(str(tmp_path)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("settings"),
        lambda document: document.pop("losses"),
        lambda document: document["settings"].pop("lr"),
        lambda document: document["settings"].update(other=1),
        lambda document: document["settings"].update(max_lr="much"),
        lambda document: document.update(settings=[]),
        lambda document: document.update(losses=["logistic"]),
        lambda document: document.update(losses=["other", "other"]),
    ],
)
def test_a_damaged_document_is_a_run_error(tmp_path, damage):
    make_record().save(tmp_path)
    path = tmp_path / "run.json"
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    with pytest.raises(RunError, match="is damaged"):
        AttentionRecord.load(tmp_path)


def test_a_folder_without_a_record_is_a_run_error(tmp_path):
    with pytest.raises(RunError, match=r"holds no run: there is no run\.json"):
        AttentionRecord.load(tmp_path)
