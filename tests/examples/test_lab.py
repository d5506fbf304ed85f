"""The example measures what the papers say, and prints it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "lab.py"


def show(section, capsys):
    runpy.run_path(str(EXAMPLE))[f"show_{section}"](True)
    return capsys.readouterr().out


def test_joint_training_selects_the_published_tokens(capsys):
    printed = show("joint", capsys)
    assert re.findall(r"selects (\[.*?\])", printed) == ["[1, 0]", "[1, 0]", "[0, 0]"] * 2
    assert "at least as fast as the claimed exponent 0.333333" in printed


def test_paths_end_near_the_max_margin_direction(capsys):
    printed = show("paths", capsys)
    assert all(float(value) < 1e-3 for value in re.findall(r"worst of 2: (\S+),", printed))
    assert len(re.findall("worst of 2", printed)) == 3


def test_factors_are_nearer_to_the_nuclear_norm_solution(capsys):
    assert "nearer to the first in 5" in show("factors", capsys)


@pytest.mark.slow
def test_directions_lists_both_comparisons(capsys):
    printed = show("directions", capsys)
    assert "p = 1.75, own" in printed
    assert "p = 3, same" in printed
