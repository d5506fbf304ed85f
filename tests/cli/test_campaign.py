"""``mirrormargin campaign``: every missing record is made, once."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from mirrormargin.claims.campaign import compared_methods, fitted, league
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.cli import main
from mirrormargin.training.config import OptimizerConfig
from mirrormargin.training.configurations import find_configuration

BASE = replace(find_configuration("digits/tiny"), epochs=1)
# The first method's second setting diverges at once.
GRID = {
    "lr0.1": replace(BASE, optimizer=OptimizerConfig("SGD", 0.1)),
    "lr1e+30": replace(BASE, optimizer=OptimizerConfig("SGD", 1e30)),
}
METHODS = (
    Method("digits/tiny", "SGD", GRID, seeds=(0, 1)),
    Method("digits/tiny", "MirrorAdam p=1.1", {"lr0.003": BASE}, seeds=(0,)),
)
KEYS = {
    "digits-tiny/sgd/lr0.1-seed0",
    "digits-tiny/sgd/lr0.1-seed1",
    "digits-tiny/sgd/lr1e+30-seed0",
    "digits-tiny/mirroradam-p1.1/lr0.003-seed0",
}


@pytest.fixture
def campaign(tmp_path, monkeypatch, capfd):
    """A function that runs the command in a folder and gives its exit code and lines."""
    monkeypatch.setattr(compared_methods, "METHODS", METHODS)
    monkeypatch.setattr(fitted, "METHODS", ())
    monkeypatch.setattr(league, "METHODS", ())
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = main(["campaign", *argv])
        captured = capfd.readouterr()
        return code, captured.out.splitlines(), captured.err

    return call


def list_keys(folder):
    return {str(path.relative_to(folder))[:-5] for path in folder.rglob("*.json")}


def test_every_missing_record_is_made_once(campaign, tmp_path):
    code, lines, errors = campaign("--workers", "1")
    assert (code, errors) == (0, "")
    records = tmp_path / "records"
    assert list_keys(records) == KEYS
    # The first setting of the grid comes again, with test data, once it is chosen.
    made = [line.split()[0] for line in lines]
    assert set(made) == KEYS
    assert made.count("digits-tiny/sgd/lr0.1-seed0") == 2
    assert len(made) == 5
    seed1 = json.loads((records / "digits-tiny/sgd/lr0.1-seed1.json").read_bytes())
    expected = (
        f"{seed1['key']}  validation {seed1['validation']['selected']:.2f}%"
        f"  test {seed1['test']['selected']:.2f}%  {seed1['seconds']:.0f} s"
    )
    assert expected in lines
    assert seed1["threads"] == 1

    before = {path: path.read_bytes() for path in records.rglob("*.json")}
    assert campaign("--workers", "1") == (0, ["nothing is missing in records"], "")
    assert {path: path.read_bytes() for path in records.rglob("*.json")} == before

    lost = records / "digits-tiny/sgd/lr0.1-seed1.json"
    lost.unlink()
    assert campaign("--workers", "1") == (0, [expected], "")
    assert {path: path.read_bytes() for path in records.rglob("*.json")} == before


def test_a_diverged_training_is_recorded_and_not_retried(campaign, tmp_path):
    code, lines, _ = campaign("--workers", "1", "--only", "*/sgd", "--quiet")
    assert code == 0
    failed = [line for line in lines if "failed: the loss is nan" in line]
    assert [line.split()[0] for line in failed] == ["digits-tiny/sgd/lr1e+30-seed0"]
    record = json.loads((tmp_path / "records/digits-tiny/sgd/lr1e+30-seed0.json").read_bytes())
    assert "smaller learning rate" in record["failed"]
    assert "validation" not in record
    assert campaign("--only", "*/sgd")[1] == ["nothing is missing in records"]


@pytest.mark.slow
def test_two_workers_do_no_run_twice(campaign, tmp_path):
    code, lines, errors = campaign("--workers", "2")
    assert (code, errors) == (0, "")
    assert list_keys(tmp_path / "records") == KEYS
    # Lines of both processes; the chosen setting's first record is completed with test data.
    made = [line.split()[0] for line in lines]
    assert sorted(made) == sorted([*KEYS, "digits-tiny/sgd/lr0.1-seed0"])


def test_the_list_says_what_is_there_and_what_was_chosen(campaign, tmp_path):
    assert campaign("--list") == (
        0,
        [
            "records  settings   chosen  test %  method",
            "    0/3         2        -       -  digits-tiny/sgd",
            "    0/1         1  lr0.003       -  digits-tiny/mirroradam-p1.1",
            "there is no folder records: a checkout has one, --records names another",
        ],
        "",
    )
    assert campaign("--workers", "1", "--only", "*/sgd")[0] == 0
    found = [
        json.loads(path.read_text())["test"]["selected"]
        for path in tmp_path.glob("records/digits-tiny/sgd/lr0.1-seed*.json")
    ]
    assert campaign("--list", "--only", "*sgd")[1][1].split() == [
        "3/3", "2", "lr0.1", f"{sum(found) / len(found):.2f}", "digits-tiny/sgd",
    ]  # fmt: skip


def test_the_list_tells_methods_apart_that_share_records(tmp_path, capsys):
    asked = ["--only", "mnist-small/adamw", "--records", str(tmp_path)]
    assert main(["campaign", "--list", *asked]) == 0
    ends = [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert ends == ["mnist-small/adamw", "mnist-small/adamw (AdamW for pruning)"]


def test_published_sizes_are_trained_only_if_they_are_named(campaign):
    assert campaign("--list", "--only", "imdb-*")[0] == 2
    _, lines, _ = campaign("--list", "--only", "imdb-paper-3/*")
    assert [line.split()[-1] for line in lines[1:-1]] == [
        f"imdb-paper-3/mirrordescent-p{p}" for p in ("1.1", "2", "3")
    ]


def test_a_dry_run_lists_what_would_be_trained(campaign, tmp_path):
    keys = ["digits-tiny/sgd/lr0.1-seed0", "digits-tiny/sgd/lr1e+30-seed0"]
    code, lines, _ = campaign("--dry-run", "--only", "*/sgd")
    assert (code, lines) == (0, [*keys, "2 to train"])
    assert list(tmp_path.iterdir()) == []
    assert campaign("--workers", "1", "--only", "*/sgd")[0] == 0
    assert campaign("--dry-run", "--only", "*/sgd")[1] == ["nothing is missing in records"]
    assert campaign("--dry-run")[1][-1] == "1 to train"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--only", "imdb-*"], "'imdb-*' matches no method: there are digits-tiny/sgd, digits"),
        (["--workers", "0"], "--workers: the value is 0"),
        (["--records", "file"], "file/record.json cannot be written"),
        (["--data-dir"], "--data-dir needs a value"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(campaign, tmp_path, argv, message):
    (tmp_path / "file").write_text("")
    code, lines, errors = campaign(*argv)
    assert (code, lines) == (2, [])
    assert errors.count("\n") == 1
    assert message in errors
    assert not (tmp_path / "campaign").exists()


PROGRAM = """
import sys
from dataclasses import replace
from mirrormargin.claims.campaign import compared_methods, fitted, league
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.cli import main
from mirrormargin.training.configurations import find_configuration

if __name__ == "__main__":
    config = replace(find_configuration("digits/tiny"), epochs=100_000)
    fitted.METHODS = league.METHODS = ()
    compared_methods.METHODS = (Method("digits/tiny", "long", {"a": config, "b": config}),)
    sys.exit(main(["campaign"]))
"""


def start(tmp_path):
    """The command with two workers on endless trainings, as soon as both train."""
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(list(tmp_path.glob("campaign/*/*/*/checkpoint.safetensors"))) == 2)
    return process


def wait_until(is_true):
    end = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


INTERRUPTED = [
    "mirrormargin: campaign keeps what is done; the same command resumes",
    "mirrormargin: interrupted",
]


def test_an_interrupt_says_how_to_continue(campaign, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mirrormargin.claims.campaign.records.do_campaign", interrupt)
    code, lines, errors = campaign("--workers", "1")
    assert (code, lines, errors.splitlines()) == (130, [], INTERRUPTED)


def is_group_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
def test_an_interrupt_ends_all_workers_and_says_how_to_continue(tmp_path):
    process = start(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, "")
    assert errors.splitlines() == INTERRUPTED
    wait_until(lambda: is_group_gone(process.pid))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    process = start(tmp_path)
    process.kill()
    process.communicate(timeout=120)
    wait_until(lambda: is_group_gone(process.pid))
