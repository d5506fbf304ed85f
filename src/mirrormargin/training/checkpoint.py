r"""All of a training's state in one file, so that it is there whole or not at all.

A safetensors file: tensors under ``model/``, ``selected/``, ``optimizer/<parameter>/``,
``sparsifier/`` and ``random/``; everything else as JSON in the file's metadata. No pickle, and
replaced by renaming.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.errors import TrainingError
from mirrormargin.runs import write_atomically

__all__ = ["flatten_optimizer", "read_tensors", "restore_optimizer", "write_tensors"]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], document: Any) -> None:
    """Write tensors and a JSON document as one safetensors file, atomically."""
    from safetensors.torch import save

    contents = save(
        {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()},
        {"document": json.dumps(document)},
    )
    write_atomically(path, lambda file: file.write(contents))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Inverse of :func:`write_tensors`.

    Raises:
        TrainingError: If the file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            document = json.loads(file.metadata()["document"])
            return {name: file.get_tensor(name) for name in file.keys()}, document  # noqa: SIM118
    except FileNotFoundError:
        raise TrainingError(f"{path} does not exist") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(
            f"{path} is damaged: {error}; bring back a copy, or remove it and train again"
        ) from error


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
