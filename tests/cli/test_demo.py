"""``mirrormargin demo``: three geometries, three directions."""

import json
import sys

import pytest

from mirrormargin.cli import demo, main

EXPONENTS = [1.75, 2.0, 3.0]


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(demo, "NUM_STEPS", dict.fromkeys(EXPONENTS, 20))


@pytest.fixture(scope="module")
def report():
    """The demo as users see it, once for all tests of this file."""
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        printed = []
        context.setattr("builtins.print", lambda *parts, **_: printed.append(" ".join(parts)))
        assert main(["demo", "--json"]) == 0
    return json.loads("\n".join(printed))


def test_demo_trains_the_three_exponents(report):
    assert [run["p"] for run in report["runs"]] == EXPONENTS
    assert report["seed"] == 1


def test_demo_selects_the_optimal_tokens(report):
    for run in report["runs"]:
        assert run["num_optimal"] == report["num_sequences"]
        assert 0.999 < run["attention"] <= 1.0
        assert 0.0 < run["loss_gap"] < 1e-5


def test_demo_goes_to_the_max_margin_solution_of_its_own_exponent(report):
    for i, line in enumerate(report["divergences"]):
        others = [value for j, value in enumerate(line) if j != i]
        assert 0 < line[i] < 0.02
        assert line[i] < 0.6 * min(others)


def test_demo_directions_settle(report):
    for run in report["runs"]:
        assert 0 < run["late_turn"] < 2e-3


def test_demo_weights_are_sparser_for_smaller_exponents(report):
    shares = [run["small_entries"] for run in report["runs"]]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_demo_norm_follows_the_growth_law(report):
    """Never above (lr * steps)^(1 / (p - 1)), and near it once the direction has settled."""
    for run in report["runs"]:
        ideal = (report["lr"] * run["steps"]) ** (1 / (run["p"] - 1))
        assert 0.9 * ideal < run["norm"] <= ideal * (1 + 1e-9)


def test_demo_is_deterministic(short, capsys):
    outputs = []
    for _ in range(2):
        main(["demo", "--quiet"])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_seed_chooses_the_problem(short, capsys):
    main(["demo", "--quiet"])
    first = capsys.readouterr().out
    main(["demo", "--quiet", "--seed", "2"])
    assert capsys.readouterr().out != first


def test_table_has_one_aligned_line_per_exponent(short, capsys):
    assert main(["demo", "--quiet"]) == 0
    captured = capsys.readouterr()
    table, divergences = captured.out.rstrip().split("\n\n")
    assert len({len(line) for line in table.splitlines()}) == 1
    assert [float(line.split()[0]) for line in table.splitlines()[1:]] == EXPONENTS
    assert [float(line.split()[0]) for line in divergences.splitlines()[2:]] == EXPONENTS


def test_explanations_come_unless_quiet(short, capsys):
    main(["demo"])
    out = capsys.readouterr().out
    assert out.startswith("One attention layer, 6 sequences of 8 tokens in dimension 10 (seed 1)")
    assert "late turn    divergence" in out


@pytest.mark.parametrize(
    ("argv", "terminal", "talks"),
    [(["demo"], True, True), (["demo", "--quiet"], True, False), (["demo"], False, False)],
)
def test_progress_is_shown_only_on_a_terminal(argv, terminal, talks, short, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    main(argv)
    assert ("step 0 of 20" in capsys.readouterr().err) is talks
