"""The comparison of two runs of the claims: silent about prose, and it can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "compare_claims.py"

CLAIM: dict[str, Any] = {
    "id": "A.thm.rate",
    "statement": "D falls.",
    "verdict": "reproduced",
    "provenance": "recalled",
    "experiment": "rates",
    "figures": ["rates"],
    "should_hold": True,
    "tests": [
        {
            "name": "D at the end",
            "kind": "statement",
            "expected": "at most 0.02",
            "value": 0.011,
            "low": 0.010,
            "high": None,
            "holds": True,
        }
    ],
    "command": "mirrormargin reproduce A.thm.rate",
}
FIGURE: dict[str, Any] = {
    "name": "rates",
    "title": "D falls",
    "caption": "On log axes",
    "panels": [{"title": "p = 2", "series": [{"label": "D", "x": [1, 2], "y": [0.5, None]}]}],
    "table": None,
}


def compare(
    folder: Path, claim: dict[str, Any], figure: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    for name, one, picture in (("old", CLAIM, FIGURE), ("new", claim, figure)):
        (folder / name / "figures").mkdir(parents=True)
        (folder / name / "claims.json").write_text(json.dumps({"claims": [one]}))
        (folder / name / "figures" / "rates.json").write_text(json.dumps(picture))
    old, new = folder / "old", folder / "new"
    return subprocess.run(
        [sys.executable, TOOL, old, new, "--figures", old / "figures", new / "figures"],
        capture_output=True,
        text=True,
    )


def test_prose_commands_and_rounding_may_differ(tmp_path: Path) -> None:
    claim, figure = deepcopy(CLAIM), deepcopy(FIGURE)
    claim["statement"], claim["command"] = "The divergence falls.", "mirrormargin reproduce A"
    claim["tests"][0]["value"] *= 1 + 1e-8
    figure["caption"] = "Both axes are logarithmic."
    found = compare(tmp_path, claim, figure)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "compared 1 claims, 1 tests, 1 figures, 6 numbers: 0 differences" in found.stdout


@pytest.mark.parametrize(
    ("key", "value"),
    [("verdict", "not reproduced"), ("id", "A.thm.growth"), ("should_hold", False)],
)
def test_a_changed_claim_is_a_difference(tmp_path: Path, key: str, value: object) -> None:
    found = compare(tmp_path, {**CLAIM, key: value}, FIGURE)
    assert found.returncode == 1
    assert "A.thm.rate" in found.stdout


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "D"),
        ("kind", "number"),
        ("expected", "at most 0.03"),
        ("holds", False),
        ("value", 0.011 * (1 + 1e-5)),
        ("value", "nan"),
        ("low", None),
        ("high", 0.012),
    ],
)
def test_a_changed_test_is_a_difference(tmp_path: Path, key: str, value: object) -> None:
    claim = {**CLAIM, "tests": [{**CLAIM["tests"][0], key: value}]}
    found = compare(tmp_path, claim, FIGURE)
    assert found.returncode == 1
    assert "A.thm.rate, test 0 (D at the end)" in found.stdout


def test_a_lost_test_is_a_difference(tmp_path: Path) -> None:
    assert compare(tmp_path, {**CLAIM, "tests": []}, FIGURE).returncode == 1


@pytest.mark.parametrize("y", [[0.5, 0.1], [0.5001, None], [0.5]])
def test_a_changed_point_of_a_figure_is_a_difference(tmp_path: Path, y: list[float]) -> None:
    figure = deepcopy(FIGURE)
    figure["panels"][0]["series"][0]["y"] = y
    found = compare(tmp_path, CLAIM, figure)
    assert found.returncode == 1
    assert "figure rates, panels[0], series[0], y" in found.stdout


def test_a_missing_folder_is_an_error_of_use(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, TOOL, tmp_path, tmp_path], capture_output=True, text=True
    )
    assert found.returncode == 2
    assert "claims.json" in found.stderr
