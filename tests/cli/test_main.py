"""The command line itself: light start, one-line errors, pipes."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from mirrormargin.cli import main

HEAVY = ("torch", "numba", "numpy", "scipy")
COMMANDS = [
    "demo", "train", "solve", "flow", "path", "predict", "prune", "reproduce", "campaign", "report",
    "doctor", "completion",
]  # fmt: skip


def run_python(code, **options):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["demo", "--help"],
        ["train", "--help"],
        ["reproduce", "--help"],
        ["report", "--help"],
        ["completion", "bash"],
        ["flow", "lab/nowhere"],
        ["campaign", "--help"],
        ["predict", "--help"],
        ["prune", "--help"],
        ["train", "imdb/large"],
        ["train", "lab/unit_sphere", "--p", "1"],
        ["nonsense"],
        [],
    ],
)
def test_command_line_starts_without_heavy_imports(argv):
    result = run_python(
        "import sys; from mirrormargin.cli import main\n"
        f"main({argv!r})\n"
        f"print('imported', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert result.stdout.splitlines()[-1] == "imported []", result.stderr


def test_bare_import_is_light_and_silent():
    result = run_python(
        f"import sys, mirrormargin\nassert not [name for name in {HEAVY!r} if name in sys.modules]"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    listed = [line[0] for line in lines if line and line[0] in COMMANDS]
    assert listed == COMMANDS


def test_no_command_shows_the_help(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mirrormargin")


def test_version_is_the_one_that_is_installed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mirrormargin {metadata.version('mirrormargin')}\n"


def test_installed_script_runs_main():
    script = Path(sys.executable).with_name("mirrormargin")
    result = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("mirrormargin ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["demo", "--seed", "one"], "argument --seed: "),
        (["demo", "--sed", "1"], "unrecognized arguments: --sed"),
        (["demo", "--seed", "-1"], "is -1: give an integer"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(argv, message, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently on Windows")
@pytest.mark.parametrize(
    ("argv", "unbuffered", "code"),
    [
        (["--help"], "", 141),
        (["reproduce"], "", 141),
        (["reproduce"], "1", 141),
        (["--help"], "1", 0),  # argparse itself drops what it cannot write
    ],
)
def test_a_closed_pipe_ends_the_command_without_a_traceback(argv, unbuffered, code):
    program = (
        f"import sys; from mirrormargin.cli import main\nsys.stdin.read(); sys.exit(main({argv!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()  # nobody reads
    process.stdin.close()  # go
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), errors) == (code, "")


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("mirrormargin.cli.demo.run", interrupt)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "mirrormargin: interrupted\n"
