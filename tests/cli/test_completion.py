"""``mirrormargin completion``: scripts that shells understand."""

import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from mirrormargin.cli import main
from mirrormargin.cli.lab.problems import GENERATORS

SHELLS = ("bash", "zsh", "fish")


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


CASES = {
    ("ca",): ["campaign"],
    ("--v",): ["--version"],
    ("lab", ""): ["train", "solve", "flow", "path"],
    ("lab", "train", "planar"): ["planar_joint", "planar_single", "planar_multi"],
    ("lab", "train", "prob"): ["problem.npz"],
    ("train", "digits/"): ["digits/tiny"],
    ("lab", "flow", "digits/"): [],
    ("train", "digits/tiny", "--seed-"): ["--seed-init", "--seed-order", "--seed-dropout"],
    ("train", "digits/tiny", "--data", "prob"): ["problem.npz"],
    ("train", "--device", "c"): ["cpu", "cuda"],
    ("train", "--optimizer", "Mirror"): ["MirrorDescent", "MirrorAdam"],
    ("campaign", "--runs", "r"): ["runs"],
    ("prune", "ru"): ["runs"],
    ("prune", "runs", "--ranking", ""): ["global", "matrix", "row"],
    ("shrink", "ru"): ["runs"],
    ("shrink", "runs", "--scope", ""): ["global", "layer"],
    ("train", "digits/tiny", "--groups", ""): ["rows", "heads", "units", "heads+units"],
    ("lab", "train", "joint_toy", "--in"): ["--init-std", "--init-seeds"],
    ("lab", "train", "--step-rule", ""): ["normalized", "constant", "polyak"],
    ("lab", "train", "--step-rule", "p"): ["polyak"],
    ("lab", "flow", "--out", "ru"): ["runs"],
    ("lab", "solve", "--out", "pro"): ["problem.npz"],
    ("lab", "flow", "--decades", ""): [],
    ("lab", "flow", "unit_sphere", "--quiet", "--j"): ["--json"],
    ("sweep", ""): ["run", "status", "resume"],
    ("sweep", "run", "grid.toml", "--engine", ""): ["local", "ray"],
    ("completion", ""): ["bash", "zsh", "fish"],
    ("nonsense", "--d"): [],
}
MORE = (("",), ("lab", "path", ""))


@pytest.fixture(scope="module")
def offered(tmp_path_factory):
    """What bash offers for the last word of each line."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    folder = tmp_path_factory.mktemp("completion")
    with open(folder / "completion.bash", "w") as file, redirect_stdout(file):
        assert main(["completion", "bash"]) == 0
    (folder / "problem.npz").write_text("")
    (folder / "runs").mkdir()
    # Where values depend on the moment, the script asks the command itself.
    command = folder / "bin" / "mirrormargin"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mirrormargin "$@"\n')
    command.chmod(0o755)
    lines = [
        "source completion.bash",
        "function=$(complete -p mirrormargin | grep -o -- '-F [^ ]*' | cut -c 4-)",
    ]
    for words in (*CASES, *MORE):
        line = " ".join(f"'{word}'" for word in ("mirrormargin", *words))
        lines += [
            f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; COMPREPLY=()",
            '$function mirrormargin; echo "${COMPREPLY[@]}"',
        ]
    result = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        cwd=folder,
        env=os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stderr == ""
    found = [line.split() for line in result.stdout.splitlines()]
    return dict(zip((*CASES, *MORE), found, strict=True))


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_bash_offers_what_fits(offered, words):
    assert offered[words] == CASES[words]


def test_bash_offers_the_commands(offered):
    commands = {"train", "evaluate", "prune", "predict", "lab", "reproduce", "demo", "doctor"}
    assert commands <= set(offered[("",)])


def test_bash_offers_all_problems_and_files(offered):
    assert {*GENERATORS, "problem.npz", "runs/"} <= set(offered["lab", "path", ""])


def test_every_shell_gets_every_command_and_option(capsys):
    for shell in SHELLS:
        text = script(shell, capsys)
        for word in ("evaluate", "lab", "solve", "step-rule", "normalized", "weight-decay"):
            assert word in text
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=60)


def test_an_unknown_shell_is_one_line(capsys):
    assert main(["completion", "tcsh"]) == 2
    error = capsys.readouterr().err
    assert 'Invalid value "tcsh" for SHELL. Choose from: "bash", "zsh", "fish"' in error
    assert error.count("\n") == 1
