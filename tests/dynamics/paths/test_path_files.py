"""A regularization path on disk is the path, its targets included."""

import dataclasses
import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.dynamics.paths.joint_regularization_path import JointRegularizationPath
from mirrormargin.dynamics.paths.regularization_path import PathStatus, RegularizationPath
from mirrormargin.errors import RunError

KINDS = {
    RegularizationPath: "regularization path",
    JointRegularizationPath: "joint regularization path",
}
SOLUTION = ("w", "lam", "duals", "support", "margin", "gap", "tol", "p", "iterations", "method")


@pytest.fixture(scope="module", params=["fixed head", "joint", "relaxed"])
def path(request):
    if request.param == "fixed head":
        problem = mm.synthetic.unit_sphere(1, loss="exponential")
        return mm.regularization_path(problem, 1.5, num_radii=3)
    if request.param == "joint":
        return mm.joint_regularization_path(mm.synthetic.joint_toy(), 3.0, num_radii=3)
    # One sequence does not support the decoder, so its lead is to be 0 and not 1.
    problem = mm.synthetic.planar_joint(third=(0.5, 1.5))
    return mm.joint_regularization_path(problem, 2.0, num_radii=3, raise_on_failure=False)


def test_a_saved_path_is_read_back_to_the_last_bit(path, tmp_path):
    path.save(tmp_path / "path", {"seed": 1})
    loaded = type(path).load(tmp_path / "path")
    special = {"problem", "target", "decoder"}
    for field in dataclasses.fields(path):
        if field.name not in special:
            a, b = getattr(path, field.name), getattr(loaded, field.name)
            assert type(a) is type(b), field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)
    for name in ("tokens", "queries", "labels", "head"):
        np.testing.assert_array_equal(getattr(path.problem, name), getattr(loaded.problem, name))
    assert loaded.problem.loss_name == path.problem.loss_name
    assert loaded.status is path.status
    document = json.loads((tmp_path / "path" / "run.json").read_text())
    assert document["kind"] == KINDS[type(path)]
    assert document["about"] == {"seed": 1}


def test_the_targets_still_prove_themselves(path, tmp_path):
    path.save(tmp_path)
    loaded = type(path).load(tmp_path)
    for name in ("target", "decoder"):
        if not hasattr(path, name):
            continue
        one, other = getattr(path, name), getattr(loaded, name)
        assert type(one) is type(other)
        for key in SOLUTION:
            np.testing.assert_array_equal(getattr(one, key), getattr(other, key), err_msg=key)
        assert other.status is one.status
        assert other.residuals() == one.residuals()
        assert other.is_optimal()
    np.testing.assert_array_equal(loaded.target.selection, path.target.selection)


def test_the_residuals_can_be_measured_again(path, tmp_path):
    path.save(tmp_path)
    loaded = type(path).load(tmp_path)
    np.testing.assert_array_equal(loaded.measure_residuals(), path.measure_residuals())


def test_a_path_that_is_not_certified_is_read_back_as_such(path, tmp_path):
    dataclasses.replace(path, status=PathStatus.NOT_CERTIFIED).save(tmp_path)
    assert type(path).load(tmp_path).status is PathStatus.NOT_CERTIFIED


def test_damage_and_other_kinds_are_run_errors(path, tmp_path):
    other = next(kind for kind in KINDS if kind is not type(path))
    path.save(tmp_path)
    with pytest.raises(RunError, match=f"not '{KINDS[other]}'"):
        other.load(tmp_path)
    file = tmp_path / "run.json"
    for key in ("loss", "target", "start", "status"):
        path.save(tmp_path)
        document = json.loads(file.read_text())
        del document[key]
        file.write_text(json.dumps(document))
        with pytest.raises(RunError, match="is damaged"):
            type(path).load(tmp_path)
