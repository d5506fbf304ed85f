"""``mirrormargin completion``: scripts that shells understand."""

import shutil
import subprocess

import pytest

from mirrormargin.cli import main
from mirrormargin.cli.problems import LAB

COMMANDS = ["demo", "train", "solve", "flow", "path", "doctor", "completion"]


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def complete(capsys, tmp_path):
    """What bash offers for the last word of a line."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (tmp_path / "completion.bash").write_text(script("bash", capsys))
    (tmp_path / "problem.npz").write_text("")
    (tmp_path / "runs").mkdir()

    def ask(*words):
        line = " ".join(f"'{word}'" for word in ("mirrormargin", *words))
        program = (
            f"source completion.bash; COMP_WORDS=({line}); COMP_CWORD={len(words)}\n"
            '_mirrormargin; for word in "${COMPREPLY[@]}"; do echo "$word"; done\n'
        )
        result = subprocess.run(
            ["bash", "--norc", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.stderr == ""
        return result.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fl"], ["flow"]),
        (["--v"], ["--version"]),
        (["train", "lab/planar"], ["lab/planar_joint", "lab/planar_single", "lab/planar_multi"]),
        (["train", "prob"], ["problem.npz"]),
        (["train", "digits/"], ["digits/tiny"]),
        (["flow", "digits/"], []),
        (["train", "digits/tiny", "--seed-"], ["--seed-init", "--seed-order", "--seed-dropout"]),
        (["train", "digits/tiny", "--data", "prob"], ["problem.npz"]),
        (["train", "--device", "c"], ["cpu", "cuda"]),
        (["camp"], ["campaign"]),
        (["campaign", "--runs", ""], ["runs"]),
        (["prune", "ru"], ["runs"]),
        (["prune", "runs", "--ranking", ""], ["global", "matrix"]),
        (["train", "lab/joint_toy", "--in"], ["--init-std", "--init-seeds"]),
        (["train", "--step-rule", ""], ["normalized", "constant", "polyak"]),
        (["train", "--step-rule", "p"], ["polyak"]),
        (["flow", "--out", ""], ["runs"]),
        (["solve", "--out", "pro"], ["problem.npz"]),
        (["flow", "--decades", ""], []),
        (["flow", "lab/unit_sphere", "--quiet", "--j"], ["--json"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nonsense", "-"], []),
    ],
)
def test_bash_offers_what_fits(complete, words, expected):
    assert complete(*words) == expected


def test_bash_offers_the_commands(complete):
    assert [word for word in complete("") if word in COMMANDS] == COMMANDS


def test_bash_offers_all_problems_and_files(complete):
    offered = complete("path", "")
    assert [word for word in offered if word.startswith("lab/")] == [f"lab/{n}" for n in LAB]
    assert {"problem.npz", "runs"} <= set(offered)


def test_bash_calls_the_function_for_the_command(capsys):
    assert script("bash", capsys).endswith("complete -o filenames -F _mirrormargin mirrormargin\n")


def test_zsh_reads_the_script_of_bash(capsys):
    bash, zsh = script("bash", capsys), script("zsh", capsys)
    first, second, rest = zsh.split("\n", 2)
    assert first == "#compdef mirrormargin"
    assert second == "autoload -U +X bashcompinit && bashcompinit"
    assert rest == bash


def test_fish_has_a_line_for_every_option(capsys):
    lines = script("fish", capsys).splitlines()
    assert all(line.startswith("complete -c mirrormargin ") for line in lines)
    assert all(line.count("'") % 2 == 0 for line in lines)
    train = [line for line in lines if "__fish_seen_subcommand_from train'" in line]
    rule = next(line for line in train if "-l step-rule" in line)
    assert rule.endswith("-x -a 'normalized constant polyak'")
    assert any("lab/unit_sphere" in line for line in train)
    assert any(line.endswith("-l json") for line in train)
    assert any(line.endswith("-l lr -x") for line in train)
    for shell in ("zsh", "fish"):
        if shutil.which(shell):
            text = script(shell, capsys)
            subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=60)


def test_an_unknown_shell_is_one_line(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
