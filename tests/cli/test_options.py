"""Options that several commands share: one check, one line."""

import pytest

from mirrormargin.cli import main
from mirrormargin.cli.options import read_seeds

COMMANDS = ("train", "solve", "flow", "path")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--p", "1"], "argument --p: p is 1.0, but must be above 1 and finite"),
        (["--p", "nan"], "argument --p: p is nan"),
        (["--p", "inf"], "argument --p: p is inf"),
        (["--p", "two"], "argument --p: p is 'two': give a number above 1"),
        (["--p", "2", "2.0"], "argument --p: 2.0 is given with repetitions"),
        (["--seed", "-1"], "argument --seed: seed is '-1': give integers >= 0"),
        (["--seed", "1.5"], "argument --seed: seed is '1.5'"),
        (["--seed", "5-2"], "argument --seed: the range '5-2' is empty: give 2-5"),
        (["--seed", "0-999999999"], "has more than 100,000 seeds"),
        (["--seed", "1-3", "2"], "argument --seed: 2 is given with repetitions"),
        (["--tols", "1"], "unrecognized arguments: --tols 1"),
    ],
)
def test_a_wrong_value_is_one_line_and_exit_2(command, argv, message, capsys):
    assert main([command, "lab/unit_sphere", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_same_options_examples_and_exit_codes(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--p P", "--seed SEED", "--out F", "--overwrite", "--json", "--quiet"):
        assert option in out
    assert out.count(f"  mirrormargin {command} ") >= 2
    assert "lab/GENERATOR" in out
    assert "2 wrong input, 130 interrupted" in out


def test_ranges_include_both_ends():
    assert list(read_seeds("3-5")) == [3, 4, 5]
    assert list(read_seeds("7")) == [7]
