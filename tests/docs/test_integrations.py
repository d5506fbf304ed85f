"""The blocks of each section of docs/integrations.md do what it says, where its library is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mirrormargin as mm
from mirrormargin.training import TrainingFolder

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SECTIONS = {
    section.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")
}


class Classifier(nn.Module):
    """What a section calls ``model``; with labels it gives a loss, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, inputs, labels=None):
        logits = self.layers(inputs)
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def check_training(known, before):
    """The model was trained, and 95% of its matrices removed."""
    model = known["model"]
    assert all((a != b).any() for a, b in zip(before, model.parameters(), strict=True))
    matrices = [param for param in model.parameters() if param.ndim == 2]
    assert sum(int((one == 0).sum()) for one in matrices) == int(0.95 * 72)


def check_jax(known, _):
    assert float(known["weights"]["matrix"][0, 0]) < 1
    assert all(known[name].init(known["weights"]) for name in ("lion", "chain", "sparse"))


def check_classifier(known, _):
    assert known["search"].best_score_ > 0.93
    assert known["best"].dual_gap_.max() <= 1e-6


def check_study(known, _):
    assert [trial.state.name for trial in known["study"].trials] == 3 * ["COMPLETE"]


def check_trackers(known, _):
    assert list(Path("runs/tracked/tensorboard").iterdir())
    assert len(TrainingFolder("runs/tracked").read_metrics("epoch")) == 1


CHECKS = {
    "JAX with optax": check_jax,
    "scikit-learn": check_classifier,
    "Optuna": check_study,
    "Trackers": check_trackers,
}


@pytest.mark.filterwarnings("ignore")  # those of other libraries
@pytest.mark.parametrize("section", [name for name, blocks in SECTIONS.items() if blocks])
def test_the_blocks_of_a_section_run(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels = torch.randn(40, 6), torch.randint(0, 3, (40,))
    rows = [{"inputs": x, "labels": y} for x, y in zip(inputs, labels, strict=True)]
    model = Classifier()
    before = [param.detach().clone() for param in model.parameters()]
    batches = DataLoader(TensorDataset(inputs, labels), batch_size=8)
    known = {"__name__": section, "torch": torch, "model": model, "rows": rows, "batches": batches}
    for block in SECTIONS[section]:
        try:
            exec(compile(block, section, "exec"), known)
        except mm.MissingLibraryError as error:
            pytest.skip(str(error))
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("mirrormargin"):
                raise
            pytest.skip(str(error))
    CHECKS.get(section, check_training)(known, before)
