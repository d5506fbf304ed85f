"""The examples in other people's training loops learn, with nine tenths of the weights removed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.filterwarnings("ignore")  # those of other libraries
@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        ("huggingface_trainer", ["transformers.trainer_optimizer", "accelerate"]),
        ("accelerate_digits", ["accelerate", "sklearn"]),
        ("lightning_digits", ["lightning", "sklearn"]),
    ],
)
def test_an_example_learns_and_removes_its_share(name, libraries, tmp_path, monkeypatch, capsys):
    for library in libraries:
        pytest.importorskip(library, reason=f"{library.partition('.')[0]} is not installed")
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    try:
        runpy.run_path(str(path))
    finally:
        if "accelerate" in libraries:
            from accelerate.state import AcceleratorState

            AcceleratorState._reset_state(reset_partial_state=True)
    said = capsys.readouterr().out.strip().splitlines()[-1]
    removed, right = map(float, re.findall(r"([\d.]+)%", said))
    assert removed == 90.0
    assert right > 85
