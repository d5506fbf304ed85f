"""``mirrormargin lab solve``: a file in, a certificate out."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli import main


@pytest.fixture
def problem():
    return mm.synthetic.unit_sphere(seed=1)


@pytest.fixture
def file(problem, tmp_path):
    """A problem file; more arrays, or other ones, by keyword."""

    def write(**arrays):
        path = tmp_path / "problem.npz"
        base = {"tokens": problem.tokens, "queries": problem.queries}
        merged = {**base, "selection": problem.optimal_tokens, **arrays}
        np.savez(path, **{k: v for k, v in merged.items() if v is not None})
        return str(path)

    return write


def report(capsys, *argv):
    code = main(["lab", "solve", "--json", *argv])
    return code, json.loads(capsys.readouterr().out)["solutions"]


def test_certificate_is_printed(file, capsys):
    assert main(["lab", "solve", file(), "--p", "1.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("p = 1.5: optimal (interior point, Cholesky")
    values = dict(line.split()[:2] for line in lines[1:])
    assert float(values["norm"]) == pytest.approx(4.856112942, abs=1e-7)
    assert float(values["gap"]) <= 1e-8
    assert float(values["margin"]) == pytest.approx(1 / 4.856112942, rel=1e-7)
    assert set(values) >= {"primal", "dual", "stationarity", "complementarity", "support"}


def test_json_holds_one_row_for_each_exponent(file, capsys):
    code, rows = report(capsys, file(), "--p", "1.75", "2", "3")
    assert code == 0
    assert [row["p"] for row in rows] == [1.75, 2.0, 3.0]
    assert [row["norm"] for row in rows] == pytest.approx(
        [3.459492115, 2.660156915, 1.417868952], abs=1e-7
    )


def test_labels_and_head_select_the_optimal_tokens(problem, file, capsys):
    _, by_selection = report(capsys, file())
    path = file(selection=None, labels=problem.labels, head=problem.head)
    _, by_head = report(capsys, path)
    assert by_head[0]["norm"] == by_selection[0]["norm"]


def test_solution_is_written_and_read_back(problem, file, capsys, tmp_path):
    out = tmp_path / "solution.npz"
    assert main(["lab", "solve", file(), "--p", "1.5", "3", "--out", str(out)]) == 0
    arrays = np.load(out)
    W = arrays["W_1.5"]
    expected = mm.solve_attention_svm(problem.tokens, problem.queries, problem.optimal_tokens, 1.5)
    np.testing.assert_allclose(W, expected.W, rtol=1e-6)
    assert arrays["duals_3"].shape == (6, 8)
    assert os.listdir(tmp_path).count("solution.npz") == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_json_solution_holds_certificate_and_arrays(problem, file, capsys, tmp_path):
    out = tmp_path / "solution.json"
    assert main(["lab", "solve", file(), "--p", "1.5", "3", "--out", str(out)]) == 0
    solutions = json.loads(out.read_text())["solutions"]
    assert [solution["p"] for solution in solutions] == [1.5, 3.0]
    expected = mm.solve_attention_svm(
        problem.tokens, problem.queries, problem.optimal_tokens, 1.5, compiled=False
    )
    first = solutions[0]
    np.testing.assert_array_equal(first["W"], expected.W)
    np.testing.assert_array_equal(first["duals"], expected.duals)
    np.testing.assert_array_equal(first["support"], expected.support)
    assert (first["gap"], first["margin"]) == (expected.gap, expected.margin)
    assert first["status"] == "optimal"
    assert set(first["residuals"]) >= {"primal", "dual", "stationarity", "complementarity"}


def test_json_has_null_where_nothing_separates(problem, file, tmp_path):
    path = file(tokens=problem.tokens[:, [0, 0, 1]], selection=[0] * 6)
    out = tmp_path / "solution.json"
    assert main(["lab", "solve", path, "--out", str(out)]) == 1
    [solution] = json.loads(out.read_text())["solutions"]
    assert solution["W"] is None
    assert solution["status"] == "infeasible"


def test_json_files_are_read(problem, file, capsys, tmp_path):
    _, by_npz = report(capsys, file())
    path = tmp_path / "problem.json"
    arrays = {"tokens": problem.tokens, "queries": problem.queries}
    arrays["selection"] = problem.optimal_tokens
    path.write_text(json.dumps({name: array.tolist() for name, array in arrays.items()}))
    _, by_json = report(capsys, str(path))
    assert by_json[0]["norm"] == by_npz[0]["norm"]


def test_the_lab_is_solved_for_its_optimal_tokens(file, capsys, tmp_path):
    _, by_file = report(capsys, file())
    out = tmp_path / "solutions.npz"
    argv = ["unit_sphere", "--seed", "1-2", "--p", "2", "3", "--out", str(out)]
    code, rows = report(capsys, *argv)
    assert code == 0
    assert [(row["seed"], row["p"]) for row in rows] == [(1, 2.0), (1, 3.0), (2, 2.0), (2, 3.0)]
    assert rows[0]["norm"] == by_file[0]["norm"]
    arrays = np.load(out)
    assert arrays["margin_2_seed1"] == rows[0]["margin"]
    assert arrays["W_3_seed2"].shape == (10, 10)


def test_quiet_prints_one_line_for_each_solution(file, capsys, tmp_path):
    argv = ["--p", "2", "3", "--quiet", "--out", str(tmp_path / "solution.npz")]
    assert main(["lab", "solve", file(), *argv]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["p = 2", "p = 3"]


def test_a_file_is_replaced_only_if_asked_and_never_the_problem(file, capsys, tmp_path):
    path, out = file(), tmp_path / "solution.npz"
    assert main(["lab", "solve", path, "--out", str(out)]) == 0
    before = out.read_bytes()
    assert main(["lab", "solve", path, "--p", "3", "--out", str(out)]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main(["lab", "solve", path, "--p", "3", "--out", str(out), "--overwrite"]) == 0
    assert np.load(out)["p"] == 3.0
    assert main(["lab", "solve", path, "--out", path, "--overwrite"]) == 2
    assert "is the problem itself" in capsys.readouterr().err


def test_the_kind_of_file_is_checked_before_the_solve(tmp_path, capsys):
    assert main(["lab", "solve", "unit_sphere", "--out", str(tmp_path / "solution.csv")]) == 2
    assert "name a file that ends in .npz or .json" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_a_user_error(file, capsys, tmp_path):
    path = file()
    for out in (tmp_path / "nowhere" / "solution.npz", tmp_path):
        assert main(["lab", "solve", path, "--out", str(out)]) == 2
        assert "cannot be written" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["problem.npz"]


def test_soft_margin_relaxation_and_nuclear_norm_are_solved(file, capsys):
    _, hard = report(capsys, file())
    code, soft = report(capsys, file(), "--C", "0.1")
    assert code == 0
    assert soft[0]["norm"] < hard[0]["norm"]
    code, relaxed = report(capsys, file(rhs=[1, 1, 1, 0, 0, 0]))
    assert code == 0
    assert relaxed[0]["norm"] < hard[0]["norm"]
    code, nuclear = report(capsys, file(), "--nuclear")
    assert code == 0
    assert nuclear[0]["norm"] > hard[0]["norm"]


def test_decoder_problem_is_recognised(file, capsys, tmp_path):
    path = file(tokens=None, queries=None, selection=None, features=np.eye(3), labels=[1, -1, 1])
    out = tmp_path / "v.npz"
    assert main(["lab", "solve", path, "--out", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)["v"], [1, -1, 1], rtol=1e-7)


def test_identical_tokens_exit_with_the_pair(problem, file, capsys):
    path = file(tokens=problem.tokens[:, [0, 0, 1]], selection=[0] * 6)
    assert main(["lab", "solve", path]) == 1
    assert "sequence 0: the selected token 0 equals token 1" in capsys.readouterr().out
    code, rows = report(capsys, path)
    assert code == 1
    assert rows[0]["identical"] == [0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "argv", "message"),
    [
        ({"tokens": None}, [], "lacks tokens"),
        ({"selection": None}, [], "lacks selection, or labels and head"),
        ({"selection": [9] * 6}, [], "selection[0] is 9"),
        ({}, ["--p", "1"], "p is 1.0"),
        ({}, ["--tol", "0"], "tol is 0.0"),
        ({}, ["--nuclear", "--p", "3"], "--nuclear has neither"),
        ({"features": np.eye(2)}, ["--nuclear"], "--nuclear needs tokens"),
        ({"rhs": [1] * 6}, ["--nuclear"], "holds rhs, which --nuclear does not have"),
        ({"features": np.eye(2), "labels": [1, 1]}, [], "holds tokens and queries"),
        ({}, ["--p", "2", "2.0"], "with repetitions"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arrays, argv, message, file, capsys):
    assert main(["lab", "solve", file(**arrays), *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize("content", [None, b"", b"not a zip file", "array"])
def test_unreadable_files_are_named(content, tmp_path, capsys):
    path = tmp_path / "problem.npz"
    if content == "array":
        path = tmp_path / "problem.npy"
        np.save(path, np.eye(2))
    elif content is not None:
        path.write_bytes(content)
    assert main(["lab", "solve", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_damaged_file_is_named(file, capsys):
    path = Path(file())
    np.savez_compressed(path, **dict(np.load(path)))
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 40] = bytes(40)
    path.write_bytes(content)
    assert main(["lab", "solve", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
