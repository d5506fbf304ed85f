"""``mirrormargin reproduce``: a list, verdicts, an exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mirrormargin.claims import CLAIMS, PAPERS
from mirrormargin.cli import main
from mirrormargin.cli.reproduce import judge


@pytest.fixture(scope="module")
def folder(find_evidence):
    find_evidence("identities")
    return find_evidence.folder


def test_without_a_name_it_lists_all_claims(capsys):
    assert main(["reproduce"]) == 0
    out = capsys.readouterr().out
    assert all(claim.id in out and claim.title in out for claim in CLAIMS)
    assert all(title in out for title in PAPERS.values())
    assert "[needs trainings (mirrormargin campaign)]" in out


def test_the_list_as_json(capsys):
    assert main(["reproduce", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in report["claims"]] == [claim.id for claim in CLAIMS]
    assert {row["provenance"] for row in report["claims"]} == {
        "seen",
        "derived",
        "recalled",
        "own",
    }


def test_a_claim_is_run_judged_and_written(tmp_path, capsys):
    assert main(["reproduce", "A.alg", "--out", str(tmp_path), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "A.alg.step" in out
    assert "2 reproduced" in out
    assert f"mirrormargin report {tmp_path}" in out
    rows = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [row["verdict"] for row in rows] == ["reproduced", "reproduced"]


def test_json_is_what_is_written_of_the_claims_asked_for(folder, capsys):
    assert main(["reproduce", "A.alg", "--out", str(folder), "--json"]) == 0
    printed, written = (
        json.loads(capsys.readouterr().out),
        json.loads((folder / "claims.json").read_text()),
    )
    assert [row["id"] for row in printed["claims"]] == ["A.alg.step", "A.alg.gd"]
    assert all(row in written["claims"] for row in printed["claims"])


def test_a_claim_that_was_not_run_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mirrormargin.claims.trainings.find_record", lambda name: None)
    assert main(["reproduce", "A.tab.imdb", "--out", str(tmp_path / "new")]) == 0
    assert "because    needs trainings (mirrormargin campaign)" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_one_line():
    command = f"{sys.executable} -m mirrormargin reproduce > /dev/full"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "cannot write: No space left" in result.stderr


def test_a_failed_claim_that_should_hold_is_exit_code_1(capsys):
    rows = [
        {"id": "A.x", "should_hold": True, "verdict": "not reproduced"},
        {"id": "A.y", "should_hold": False, "verdict": "not reproduced"},
        {"id": "A.z", "should_hold": True, "verdict": "reproduced differently"},
    ]
    assert judge({"claims": rows}) == 1
    assert capsys.readouterr().err == "mirrormargin: should hold, but does not: A.x\n"
    assert judge({"claims": rows[1:]}) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["A.nothing"], "there is no claim 'A.nothing'"),
        (
            ["A.alg", "--profile", "slow"],
            'Invalid value "slow" for --profile. Choose from: "quick"',
        ),
        (["A.alg", "--seed", "-1"], "give an integer >= 0"),
        (["A.alg", "--seed", "99999999999"], "seed is 99999999999"),
        (["A.alg", "--workers", "0"], "give an integer >= 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv, message, tmp_path, capsys):
    assert main(["reproduce", *argv, "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_claims_one_after_the_other_stay_in_one_folder(tmp_path):
    """As it is typed: the second command keeps the first one's verdict."""
    for name in ("A.alg.step", "A.alg.gd"):
        command = [sys.executable, "-m", "mirrormargin", "reproduce", name, "--workers", "1"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "mirrormargin-claims" / "claims.json").read_text())["claims"]
    assert {row["id"]: row["verdict"] for row in rows} == {
        "A.alg.step": "reproduced",
        "A.alg.gd": "reproduced",
    }
