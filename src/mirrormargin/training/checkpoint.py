"""Optimizers and random numbers as tensors and JSON: what a checkpoint keeps beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = [
    "capture_random_state",
    "flatten_optimizer",
    "restore_optimizer",
    "restore_random_state",
]


def flatten_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], Any]:
    """An optimizer's state as tensors by ``<parameter>/<name>``, and the rest for JSON."""
    state = optimizer.state_dict()
    tensors, others = {}, {}
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}/{key}"] = value
            else:
                others[f"{index}/{key}"] = value
    return tensors, {"others": others, "groups": state["param_groups"]}


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor], document: Any) -> None:
    """Give an optimizer, built as before over weights loaded before, its state back."""
    state: dict[int, dict[str, Any]] = {}
    for path, value in [*tensors.items(), *document["others"].items()]:
        index, _, key = path.partition("/")
        state.setdefault(int(index), {})[key] = value
    # JSON knows no tuples, such as Adam's betas.
    groups = [
        {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
        for group in document["groups"]
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def capture_random_state(device: str) -> dict[str, Tensor]:
    """The global random numbers that dropout and augmentation draw from."""
    state = {"cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Tensor], device: str) -> None:
    torch.set_rng_state(state["cpu"])
    if device.startswith("cuda") and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
