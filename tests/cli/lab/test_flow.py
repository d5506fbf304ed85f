"""``mirrormargin lab flow``: flows as the library follows them, kept and judged."""

import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli import main
from mirrormargin.dynamics.flow_record import FlowRecord


def report(capsys, *argv):
    code = main(["lab", "flow", "unit_sphere", "--json", *argv])
    return code, json.loads(capsys.readouterr().out)["flows"]


def test_json_holds_the_numbers_of_the_library(capsys):
    code, rows = report(capsys, "--p", "2", "3", "--decades", "4", "--lr", "0.5", "--seed", "2")
    assert code == 0
    assert [row["p"] for row in rows] == [2.0, 3.0]
    for row in rows:
        record = mm.mirror_flow(mm.synthetic.unit_sphere(2), row["p"], 4, lr=0.5)
        assert row["seed"] == 2
        assert row["divergence"] == record.divergence[-1]
        assert row["norm"] == record.norm[-1]
        assert row["status"] == record.status
        assert row["selection"] == record.target_selection.tolist()
        assert row["bound_holds"] is None  # too short to tell


def test_the_bound_is_checked_from_a_hundred_decades_on(capsys):
    code, [row] = report(capsys, "--p", "3")
    assert code == 0
    record = mm.mirror_flow(mm.synthetic.unit_sphere(1), 3.0, 100)
    name, rate = mm.claimed_rate(3.0)
    log_k = record.log10_k * np.log(10)
    check = mm.bound_holds(log_k, record.divergence, rate, (20, 50), (100 * 2 / 3, 100))
    assert (row["claimed_rate"], row["bound_holds"]) == (name, check.holds)


def test_a_broken_bound_is_exit_code_1(capsys, monkeypatch):
    fast = mm.dynamics.rates.laws.Rate("log", 9.0)  # faster than any flow
    monkeypatch.setattr(mm, "claimed_rate", lambda p: ("too fast", fast))
    assert main(["lab", "flow", "unit_sphere", "--quiet"]) == 1
    assert "broken" in capsys.readouterr().out


def test_windows_without_points_are_not_judged(capsys):
    code, [row] = report(capsys, "--record", "0.01")
    assert (code, row["bound_holds"]) == (0, None)


def test_a_problem_that_nothing_separates_is_exit_code_1(tmp_path, capsys):
    path = tmp_path / "problem.json"
    twins = {"tokens": [[[1, 0], [1, 0], [0, 1]]], "queries": [[1, 0]]}
    path.write_text(json.dumps(twins | {"labels": [1], "head": [1, 0]}))
    assert main(["lab", "flow", str(path), "--decades", "5", "--quiet"]) == 1
    assert "no W separates" in capsys.readouterr().out


def test_one_flow_is_one_run_and_several_have_a_folder_each(tmp_path, capsys):
    one, several = tmp_path / "one", tmp_path / "several"
    argv = ["lab", "flow", "unit_sphere", "--decades", "5", "--record", "2"]
    assert main([*argv, "--out", str(one)]) == 0
    assert f"wrote {one}" in capsys.readouterr().out
    assert main([*argv, "--p", "1.75", "2", "--seed", "1-2", "--out", str(several)]) == 0
    names = {path.name for path in several.iterdir()}
    assert names == {f"seed-{seed}-p-{p}" for seed in (1, 2) for p in ("1.75", "2")}
    single, same = FlowRecord.load(one), FlowRecord.load(several / "seed-1-p-2")
    np.testing.assert_array_equal(single.path, same.path)
    about = json.loads((several / "seed-2-p-2" / "run.json").read_text())["about"]
    assert about == {"problem": "unit_sphere", "seed": 2}


def test_overwriting_replaces_all_flows_that_were_there(tmp_path):
    argv = ["lab", "flow", "unit_sphere", "--decades", "3", "--record", "1", "--out", str(tmp_path)]
    assert main([*argv, "--p", "2", "3"]) == 0
    assert main([*argv, "--p", "2"]) == 2
    assert main([*argv, "--p", "3", "--overwrite"]) == 0
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()
    assert FlowRecord.load(tmp_path).p == 3.0


def test_table_has_one_aligned_line_for_each_flow(capsys):
    argv = ["--decades", "5", "--p", "1.75", "2", "--seed", "1", "10", "--quiet"]
    assert main(["lab", "flow", "unit_sphere", *argv]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["1", "1.75"],
        ["1", "2"],
        ["10", "1.75"],
        ["10", "2"],
    ]
    status = header.index("status")
    assert all(line[status:].startswith("followed") for line in lines)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--decades", "0"], "decades is 0.0: give a number above 0"),
        (["--decades", "nan"], "--decades: the value is 'nan'"),
        (["--lr", "-1"], "lr is -1.0"),
        (["--tol", "1"], "tol is 1.0"),
        (["--record", "0"], "record is 0.0"),
        (["--out", "/dev/null/run"], "cannot be written"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(argv, message, capsys):
    assert main(["lab", "flow", "unit_sphere", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
