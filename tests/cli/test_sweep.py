"""``mirrormargin sweep``: run, status, resume, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: mirrormargin[sweep]")

from mirrormargin.cli import main
from mirrormargin.sweep import read_table

LAB = '[lab]\nseed = "1-6"\np = [2, 3]\nnum_steps = 3\n'


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(LAB)
    return "grid.toml"


def test_a_grid_is_run_into_a_folder_of_its_name(grid, capsys):
    assert main(["sweep", "run", grid, "--workers", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sweeps/grid: 12 of 12 lab runs, 0 failed\n")
    assert "sweeps/grid/table" in out
    assert "bytes a run" in out
    assert read_table("sweeps/grid").num_rows == 12


def test_status_says_what_is_left_and_resume_runs_it(grid, capsys, monkeypatch):
    from mirrormargin.sweep import running

    report = running._Run.report

    def stop(self):
        if len(self.sweep.done) >= 8:
            os.kill(os.getpid(), signal.SIGINT)
        report(self)

    with monkeypatch.context() as patched:
        patched.setattr(running._Run, "report", stop)
        argv = ["sweep", "run", grid, "--workers", "0", "--batch", "4", "--out", "my sweep"]
        assert main(argv) == 130
    captured = capsys.readouterr()
    assert "interrupted after 8 of 12 runs" in captured.err
    assert "to resume: mirrormargin sweep resume 'my sweep'" in captured.err
    assert main(["sweep", "status", "my sweep", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], report["left"], report["failed"], report["kind"]) == (12, 4, 0, "lab")
    assert main(["sweep", "status", "my sweep"]) == 0
    assert "4 are left: mirrormargin sweep resume 'my sweep'" in capsys.readouterr().out
    assert main(["sweep", "resume", "my sweep", "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 0


def test_failed_runs_are_counted_and_the_exit_code_is_1(grid, tmp_path, capsys):
    (tmp_path / "grid.toml").write_text(LAB + "rank = [2]\n")
    assert main(["sweep", "run", grid, "--workers", "0"]) == 1
    out = capsys.readouterr().out
    assert "12 of 12 lab runs, 12 failed" in out
    assert "  12 x ProblemError: rank is 2, but W has no factors" in out
    assert "mirrormargin sweep resume sweeps/grid --retry-failed" in out


def test_a_dry_run_counts_and_writes_nothing(grid, tmp_path, capsys):
    assert main(["sweep", "run", grid, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("12 runs, 0 of them done in sweeps/grid")
    assert not (tmp_path / "sweeps").exists()
    assert main(["sweep", "run", grid, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 12


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "none.toml"], "none.toml does not exist: give the file of a grid"),
        (["run"], "GRID is missing"),
        (["status", "."], "holds no sweep: begin one with mirrormargin sweep run"),
        (["resume", "nowhere"], "nowhere holds no sweep"),
        (["run", "grid.toml", "--engine", "dask"], "Invalid value"),
        (["run", "grid.toml", "--workers", "-1"], "the value is -1: give an integer >= 0"),
        (["run", "grid.toml", "--gpus", "-1"], "gpus is -1.0: give a number of at least 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(grid, argv, message, capsys):
    assert main(["sweep", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_progress_is_told_in_lines_where_there_is_no_terminal(grid, capsys, monkeypatch):
    from mirrormargin.cli import sweep

    monkeypatch.setattr(sweep, "LINE_EVERY", 0.0)
    assert main(["sweep", "run", grid, "--workers", "0", "--batch", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 of 12 runs"
    assert lines[1].startswith("4 of 12 runs, about ")
    assert lines[1].endswith("left")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a group of processes")
def test_ctrl_c_in_a_terminal_leaves_a_valid_table(grid, tmp_path):
    """It reaches all processes of the group, as a terminal sends it."""
    (tmp_path / "grid.toml").write_text('[lab]\nseed = "1-4000"\nnum_steps = 1000\n')
    argv = [sys.executable, "-m", "mirrormargin", "sweep", "run", "grid.toml", "--workers", "2"]
    process = subprocess.Popen(
        [*argv, "--batch", "40"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    fresh = tmp_path / "sweeps" / "grid" / "fresh"
    end = time.monotonic() + 100
    while not any(fresh.glob("*.parquet")) and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    done = read_table(tmp_path / "sweeps" / "grid").num_rows
    assert 0 < done < 4000
    assert f"interrupted after {done:,} of 4,000 runs" in errors
    assert not fresh.exists()
