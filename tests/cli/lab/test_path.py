"""``mirrormargin lab path``: certified paths, kept and printed."""

import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli import main
from mirrormargin.dynamics.paths.joint_regularization_path import JointRegularizationPath
from mirrormargin.dynamics.paths.regularization_path import RegularizationPath

FEW = ["--num-radii", "4"]


def report(capsys, *argv):
    code = main(["lab", "path", "--json", *argv])
    return code, json.loads(capsys.readouterr().out)["paths"]


def test_json_and_run_hold_the_path_of_the_library(tmp_path, capsys):
    argv = ["unit_sphere", "--seed", "2", "--p", "3", "--starts", "1", *FEW]
    code, [row] = report(capsys, *argv, "--out", str(tmp_path / "run"))
    path = mm.regularization_path(mm.synthetic.unit_sphere(2), 3.0, num_radii=4, num_starts=1)
    assert (code, row["status"], row["seed"]) == (0, "certified", 2)
    assert row["radius"] == path.radii[-1]
    assert row["divergence"] == path.divergence[-1]
    assert row["largest_residual"] == path.residual.max()
    assert row["least_curvature"] == path.curvature.min()
    assert row["selection"] == path.selection[-1].tolist()
    kept = RegularizationPath.load(tmp_path / "run")
    np.testing.assert_array_equal(kept.W, path.W)


def test_a_joint_path_is_that_of_the_library(tmp_path, capsys):
    argv = ["joint_toy", "--joint", "--p", "2", "3", *FEW, "--out", str(tmp_path / "runs")]
    code, rows = report(capsys, *argv)
    assert code == 0
    path = mm.joint_regularization_path(mm.synthetic.joint_toy(), 3.0, num_radii=4)
    assert rows[1]["head_divergence"] == path.head_divergence[-1]
    assert rows[1]["largest_residual"] == max(path.head_residual.max(), path.residual.max())
    kept = JointRegularizationPath.load(tmp_path / "runs" / "p-3")
    np.testing.assert_array_equal(kept.v, path.v)


def test_radii_may_be_given(capsys):
    code, [row] = report(capsys, "unit_sphere", "--radii", "1", "10")
    assert (code, row["radius"], row["num_radii"]) == (0, 10.0, 2)
    argv = ["--joint", "--radii", "1", "10", "--head-radii", "1", "20"]
    code, [row] = report(capsys, "joint_toy", *argv)
    assert (code, row["radius"], row["head_radius"]) == (0, 10.0, 20.0)


def test_table_and_quiet(capsys):
    assert main(["lab", "path", "unit_sphere", *FEW, "--quiet"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[2:6] == ["radius", "D", "residual", "curvature"]
    assert line.split()[:2] == ["1", "2"]
    assert line.endswith("3 2 6 2 6 2  certified")
    assert main(["lab", "path", "joint_toy", "--joint", *FEW]) == 0
    assert "head D" in capsys.readouterr().out


def test_points_that_are_not_certified_are_exit_code_1(capsys):
    code, [row] = report(capsys, "unit_sphere", *FEW, "--tol", "1e-30")
    assert (code, row["status"], row["ok"]) == (1, "not certified", False)


def test_what_nothing_separates_has_no_path(tmp_path, capsys):
    # One query, and of two sequences with the same keys each wants the token the other does not.
    content = {
        "tokens": [[[1, 0], [-1, 0]], [[1, 0], [-1, 0]]],
        "queries": [[1, 0], [1, 0]],
        "labels": [1, -1],
        "head": [1, 0],
    }
    path, out = tmp_path / "problem.json", tmp_path / "run"
    path.write_text(json.dumps(content))
    code, rows = report(capsys, str(path), "--p", "2", "3", "--out", str(out))
    assert code == 1
    assert [row["ok"] for row in rows] == [False, False]
    assert all("no W separates the optimal tokens" in row["status"] for row in rows)
    assert not out.exists()
    assert main(["lab", "path", str(path)]) == 1
    assert "wrote" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--radii", "0"], "radii[0] is 0: give positive radii"),
        (["--radii", "2", "1"], "radii must increase"),
        (["--radii", "2", "--num-radii", "3"], "--radii and --num-radii are both given"),
        (["--head-radii", "2"], "--head-radii is given without --joint"),
        (["--joint", "--radii", "2"], "--radii and --head-radii belong together"),
        (["--num-radii", "0"], "--num-radii: the value is 0"),
        (["--starts", "-1"], "--starts: the value is -1"),
        (["--tol", "2"], "tol is 2.0"),
        (["--out", "/dev/null/run"], "cannot be written"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(argv, message, capsys):
    assert main(["lab", "path", "unit_sphere", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
