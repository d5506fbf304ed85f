"""The README's example of a training from Python runs as it is written."""

from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_training_from_python_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    blocks = README.read_text(encoding="utf-8").split("```python\n")[1:]
    (code,) = (block.split("```")[0] for block in blocks if "train_model(" in block)
    exec(compile(code, str(README), "exec"), {})
    accuracies = [float(value) for value in capsys.readouterr().out.strip("[]\n").split(",")]
    assert len(accuracies) == 3
    assert accuracies[0] > 30  # of ten classes, with a tenth of the weights
    assert (tmp_path / "runs" / "mine" / "final.safetensors").exists()
