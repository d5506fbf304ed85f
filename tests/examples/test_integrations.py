"""The examples of integrations are short, and do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, capsys):
    """What the example prints, line by line, in percent and other numbers."""
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 40
    found = runpy.run_path(str(EXAMPLES / name))
    return found, capsys.readouterr().out.splitlines()


def find_percentage(line):
    return float(re.findall(r"([\d.]+)%", line)[0])


def test_attention_in_jax_learns_the_digits_with_a_twentieth_of_its_weights(capsys):
    pytest.importorskip("sklearn")
    why = "jax and optax are not installed: make test-integrations installs and tests them"
    pytest.importorskip("jax", reason=why)
    optax = pytest.importorskip("optax", reason=why)
    found, (line,) = run("optax_digits.py", capsys)
    assert find_percentage(line) > 90
    size = optax.tree.size(found["w"])
    assert f"with {size - int(0.95 * size)} of {size} weights" in line


def test_tumours_are_classified_with_few_measurements(capsys):
    pytest.importorskip("sklearn")
    found, (best, *few) = run("sparse_classifier.py", capsys)
    assert find_percentage(best) > 93
    assert found["best"].dual_gap_.max() <= 1e-6
    assert all(find_percentage(line) > 88 for line in few)


def test_a_search_prunes_and_finds_what_learns(capsys, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    why = "optuna is not installed: make test-integrations installs and tests it"
    pytest.importorskip("optuna", reason=why)
    monkeypatch.chdir(tmp_path)
    found, (pruned, best, _) = run("optuna_search.py", capsys)
    assert 1 <= int(pruned.split()[1]) <= 9
    assert find_percentage(best) > 85
    assert (tmp_path / found["best"].user_attrs["folder"] / "selected.safetensors").is_file()
