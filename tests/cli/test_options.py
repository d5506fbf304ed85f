"""Options that several commands share: one check, one line."""

import pytest

from mirrormargin.cli import main
from mirrormargin.cli.options import _read_range

COMMANDS = ("train", "solve", "flow", "path")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--p", "1"], "--p: p is 1.0: give a number above 1 and below inf; near 1, such as 1.1"),
        (["--p", "nan"], "--p: p is nan"),
        (["--p", "inf"], "--p: p is inf"),
        (["--p", "two"], "--p: p is 'two': give a number above 1"),
        (["--p", "2", "2.0"], "--p: 2.0 is given with repetitions"),
        (["--seed", "-1"], "--seed: seed is '-1': give integers >= 0"),
        (["--seed", "1.5"], "--seed: seed is '1.5'"),
        (["--seed", "5-2"], "--seed: the range '5-2' is empty: give 2-5"),
        (["--seed", "0-999999999"], "has more than 100,000 seeds"),
        (["--seed", "1-3", "2"], "--seed: 2 is given with repetitions"),
        (["--sede", "1"], "Unknown option: --sede. Did you mean --seed?"),
    ],
)
def test_a_wrong_value_is_one_line_and_exit_2(command, argv, message, capsys):
    assert main(["lab", command, "unit_sphere", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_same_options_examples_and_exit_codes(command, capsys):
    assert main(["lab", command, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--p P...", "--seed SEED...", "--out F", "--overwrite", "--json", "--quiet"):
        assert option in out
    assert out.count(f"  mirrormargin lab {command} ") >= 2
    assert "unit_sphere, equal_scores" in out
    assert "2 wrong input, 130 interrupted, 143 terminated" in " ".join(out.split())


def test_ranges_include_both_ends():
    assert list(_read_range("3-5")) == [3, 4, 5]
    assert list(_read_range("7")) == [7]
