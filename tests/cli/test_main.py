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
    "train", "evaluate", "prune", "shrink", "predict", "lab", "sweep", "reproduce", "campaign",
    "demo", "report", "doctor", "completion",
]  # fmt: skip
# Every page of help, and mistakes that are noticed before anything is computed.
LIGHT = [
    [],
    ["--help"],
    ["--version"],
    ["lab"],
    *([name, "--help"] for name in COMMANDS),
    *(["lab", name, "--help"] for name in ("train", "solve", "flow", "path")),
    *(["sweep", name, "--help"] for name in ("run", "status", "resume")),
    ["completion", "bash"],
    ["lab", "flow", "nowhere"],
    ["lab", "train", "unit_sphere", "--p", "1"],
    ["train", "imdb/large"],
    ["train", "digits/tiny", "--show"],
    ["nonsense"],
]


def run_python(code, **options):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_help_and_mistakes_are_answered_without_heavy_imports():
    result = run_python(
        "import sys; from mirrormargin.cli import main\n"
        f"for argv in {LIGHT!r}:\n"
        "    main(argv)\n"
        f"    print('imported', argv, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("imported")]
    assert lines == [f"imported {argv} []" for argv in LIGHT], result.stderr
    assert "Traceback" not in result.stderr


def test_bare_import_is_light_and_silent():
    result = run_python(
        f"import sys, mirrormargin\nassert not [name for name in {HEAVY!r} if name in sys.modules]"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("argv", [["--help"], []])
def test_help_lists_the_commands_with_summaries(argv, capsys):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: mirrormargin COMMAND")
    lines = [line.split() for line in out.splitlines()]
    listed = [line for line in lines if line and line[0] in COMMANDS]
    assert [line[0] for line in listed] == COMMANDS
    assert all(len(line) > 3 for line in listed)


def test_help_of_the_lab_lists_its_commands(capsys):
    assert main(["lab"]) == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    names = [line.split()[0] for line in lines if line]
    assert names == ["train", "solve", "flow", "path"]


def test_help_in_a_pipe_is_plain_text_within_its_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for argv in LIGHT:
        if "--help" in argv:
            assert main(argv) == 0
            out = capsys.readouterr().out
            assert all(letter.isprintable() or letter == "\n" for letter in out)
            assert max(map(len, out.splitlines())) <= 60


def test_version_is_the_one_that_is_installed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mirrormargin {metadata.version('mirrormargin')}\n"


def test_installed_script_and_module_run_main():
    script = Path(sys.executable).with_name("mirrormargin")
    for command in ([script], [sys.executable, "-m", "mirrormargin"]):
        result = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=120
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("mirrormargin ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nonsense"], 'mirrormargin: error: Unknown command "nonsense" (see mirrormargin --help)'),
        (["trian"], 'Unknown command "trian". Did you mean "train"?'),
        (
            ["lab", "sovle"],
            'mirrormargin lab: error: Unknown command "sovle". Did you mean "solve"',
        ),
        (["demo", "--seed", "one"], "--seed: the value is 'one': give an integer >= 0"),
        (["demo", "--sed", "1"], "Unknown option: --sed. Did you mean --seed?"),
        (["demo", "--seed", "-1"], "is -1: give an integer"),
        (["demo", "--seed", "1.5"], "the value is '1.5': give an integer"),
        (["demo", "--seed"], "--seed needs a value (see mirrormargin demo --help)"),
        (["demo", "more"], "'more' is more than this command takes"),
        (["demo", "--json", "--json"], "--json specified multiple times"),
        (["lab", "flow", "unit_sphere", "--p"], "--p needs a value"),
        (["lab", "flow", "\x1b[31mred\x07"], "there is no problem '?x1b[31mred?x07'"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(argv, message, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message.replace("?x", "\\x") in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.strip().isprintable()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently on Windows")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["--help"], ["reproduce"]])
def test_a_closed_pipe_ends_the_command_without_a_traceback(argv, unbuffered):
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
    assert (process.wait(timeout=120), errors) == (141, "")
