r"""Optimizers by name, and the schedule of their learning rate.

MirrorDescent, MirrorAdam   this library's
SGD, Adam, AdamW            torch's, the fastest form there is on the device
SNGD                        stochastic normalised gradient descent: lr / ||gradient|| over all
                            parameters together, or all of a group (paper B)
Polyak                      stochastic Polyak steps at p, lr being the factor, capped at max_lr

In step k = 0, 1, ... the learning rate is multiplied with a factor: a linear rise over the first
w = warmup * steps, then constant or down a cosine.

    factor(k) = (k + 1) / w                                  for k < w
                1                                            constant, afterwards
                (1 + cos(pi (k - w) / (steps - w))) / 2      cosine, afterwards
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mirrormargin.errors import TrainingError
from mirrormargin.optim import MirrorAdam, MirrorDescent, param_groups
from mirrormargin.training.config import OPTIMIZERS, OptimizerConfig

__all__ = ["build_optimizer", "find_factor"]


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """The optimizer of all of a model's trainable parameters.

    Raises:
        TrainingError: If there is no such optimizer, or an option does nothing for it.
        OptimizerError: If it does not take a value.
    """
    if config.name not in OPTIMIZERS:
        raise TrainingError(
            f"there is no optimizer {config.name!r}: choose one of {', '.join(OPTIMIZERS)}"
        )
    optimizer = _build(config, param_groups(model, {"*": {}}))
    patterns = {pattern: dict(options) for pattern, options in config.groups}
    for pattern, options in patterns.items():
        for name in options.keys() - optimizer.defaults.keys():
            raise TrainingError(f"{config.name} has no {name}, which the group {pattern!r} sets")
    if patterns:
        # All parameters may be named by the patterns already.
        is_rest = not _covers(patterns, model)
        optimizer = _build(config, param_groups(model, patterns | ({"*": {}} if is_rest else {})))
    return optimizer


def find_factor(schedule: str, warmup: float, step: int, num_steps: int) -> float:
    """What the learning rate is multiplied with in step ``step``, from 0, of ``num_steps``."""
    rising = warmup * num_steps
    if step < rising:
        return min((step + 1) / rising, 1.0)
    if schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * (step - rising) / (num_steps - rising))) / 2


def _covers(patterns: dict[str, Any], model: nn.Module) -> bool:
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names)


def _build(config: OptimizerConfig, params: Any) -> Optimizer:
    decay: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    mirror: dict[str, Any] = {"p": config.p, "scale": config.scale}
    if config.name == "MirrorDescent":
        return MirrorDescent(
            params,
            **decay,
            **mirror,
            momentum=config.momentum,
            step_rule=config.step_rule,
            max_lr=config.max_lr,
        )
    if config.name == "Polyak":
        _refuse(config, "momentum", "step_rule")
        return MirrorDescent(
            params,
            **decay,
            **mirror,
            step_rule="polyak",
            norm_over="group",
            max_lr=config.max_lr,
        )
    _refuse(config, "step_rule", "max_lr")
    if config.name == "MirrorAdam":
        _refuse(config, "momentum")
        return MirrorAdam(params, **decay, **mirror)
    _refuse(config, "p", "scale")
    if config.name == "SNGD":
        return MirrorDescent(
            params, **decay, momentum=config.momentum, step_rule="normalized", norm_over="group"
        )
    if config.name == "SGD":
        return torch.optim.SGD(params, **decay, momentum=config.momentum, fused=True)
    _refuse(config, "momentum")
    kind = torch.optim.Adam if config.name == "Adam" else torch.optim.AdamW
    return kind(params, **decay, fused=True)


def _refuse(config: OptimizerConfig, *names: str) -> None:
    """Options that would silently do nothing are mistakes."""
    default = OptimizerConfig(config.name, config.lr)
    for name in names:
        if getattr(config, name) != getattr(default, name):
            raise TrainingError(
                f"{config.name} has no {name}, got {getattr(config, name)!r}: leave it out or"
                " choose another optimizer"
            )
