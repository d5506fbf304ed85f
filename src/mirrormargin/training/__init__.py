"""How is a real model trained? One loop for all optimizers; evaluation, pruning, shrinking.

    config = find_configuration("digits/tiny", {"epochs": 10, "optimizer.p": 1.05})
    data = load_training_data(config)
    train_model(config, data, "runs/mine")
    model = load_model("runs/mine")
    pruning_curve(model, data.test, [0.9, 0.95, 0.99])

Names are resolved on first use: configurations and folders can be read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrormargin.training.building import load_model, load_training_data
    from mirrormargin.training.config import TrainingConfig
    from mirrormargin.training.configurations import find_configuration
    from mirrormargin.training.evaluation import evaluate
    from mirrormargin.training.folder import TrainingFolder
    from mirrormargin.training.input_norms import draw_calibration, measure_inputs
    from mirrormargin.training.loop import train_model
    from mirrormargin.training.pruning import prune, pruning_curve
    from mirrormargin.training.settings import override
    from mirrormargin.training.shrinking import shrink
    from mirrormargin.training.tensor_files import load_pruned, save_pruned
    from mirrormargin.training.trackers import TensorBoardTracker, Tracker

_HOMES = {
    "TensorBoardTracker": "trackers",
    "Tracker": "trackers",
    "TrainingConfig": "config",
    "TrainingFolder": "folder",
    "draw_calibration": "input_norms",
    "evaluate": "evaluation",
    "find_configuration": "configurations",
    "load_model": "building",
    "load_pruned": "tensor_files",
    "load_training_data": "building",
    "measure_inputs": "input_norms",
    "override": "settings",
    "prune": "pruning",
    "pruning_curve": "pruning",
    "save_pruned": "tensor_files",
    "shrink": "shrinking",
    "train_model": "loop",
}

__all__ = [
    "TensorBoardTracker",
    "Tracker",
    "TrainingConfig",
    "TrainingFolder",
    "draw_calibration",
    "evaluate",
    "find_configuration",
    "load_model",
    "load_pruned",
    "load_training_data",
    "measure_inputs",
    "override",
    "prune",
    "pruning_curve",
    "save_pruned",
    "shrink",
    "train_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mirrormargin.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mirrormargin.training.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
