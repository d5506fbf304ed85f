"""The example keeps a fine-tuning in a few kilobytes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "sparse_delta.py"


def test_a_thousand_changes_learn_the_task_and_are_removed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40
    found = runpy.run_path(str(EXAMPLE))
    assert (tmp_path / "task.safetensors").stat().st_size < 6_000
    assert found["delta"].num_values == 1000
    _, learnt, base = capsys.readouterr().out.splitlines()
    shares = [float(line.partition("%")[0]) for line in (learnt, base)]
    assert shares[0] > 75 > 65 > shares[1]
