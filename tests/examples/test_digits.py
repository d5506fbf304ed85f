"""The example trains a real transformer with every optimizer it shows."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


ALL = [(kind, p) for kind in ("MirrorDescent", "MirrorAdam") for p in ("1.1", "2", "3")]


@pytest.mark.parametrize(
    ("kind", "p"), [ALL[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL[1:])]
)
def test_digits_reach_95_percent(kind, p):
    pytest.importorskip("sklearn")
    example = runpy.run_path(str(EXAMPLE))
    model = example["train"](example["CHOICES"][f"{kind} p={p}"], epochs=30, seed=0)
    assert example["accuracy"](model) > 0.95
