"""Variants and tensors with which every contract is tried."""

from __future__ import annotations

import torch
from torch import Tensor

EXPONENTS = (1.1, 1.3, 1.5, 1.75, 2.0, 3.0, 4.0, 10.0)
PATHS = {"fused": {"fused": True}, "plain": {"fused": False}, "foreach": {"foreach": True}}

# name -> options of MirrorDescent beyond lr and p; lr suits float32 weights of size about 0.5.
DESCENT_RULES = {
    "constant": {},
    "normalized": {"step_rule": "normalized"},
    "normalized-group": {"step_rule": "normalized", "norm_over": "group"},
    "polyak": {"step_rule": "polyak", "f_min": 0.25, "max_lr": 2.0},
}
DESCENT_EXTRAS = {
    "bare": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.1},
    "momentum-decay-scale": {"momentum": 0.5, "weight_decay": 0.05, "scale": 0.3},
    "caution": {"momentum": 0.9, "caution": True},
    "nesterov-decay-caution": {
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.1,
        "caution": True,
    },
    "narrow": {"state_dtype": torch.bfloat16},
    "momentum-narrow": {"momentum": 0.9, "state_dtype": torch.bfloat16},
    "center": {"center": True},
}
CONSTANT_EXTRAS = {
    "momentum-decay-center": {"momentum": 0.9, "weight_decay": 0.1, "center": True},
    "nesterov-caution-center": {
        "momentum": 0.9,
        "nesterov": True,
        "caution": True,
        "center": True,
    },
    "center-narrow": {"center": True, "state_dtype": torch.bfloat16},
    "clip": {"clip": 0.1},
    "clip-group-maximize": {"clip": 0.2, "norm_over": "group", "maximize": True},
    "clip-momentum-caution": {"clip": 0.1, "momentum": 0.5, "caution": True},
}  # extras of constant steps alone
ADAM_EXTRAS = {
    "bare": {},
    "decay": {"weight_decay": 0.1},
    "amsgrad-scale": {"amsgrad": True, "scale": 0.3},
    "caution": {"caution": True},
    "clip": {"clip": 0.05},
    "clip-group-caution": {"clip": 0.1, "norm_over": "group", "caution": True, "maximize": True},
    "narrow": {"state_dtype": torch.bfloat16},
    "amsgrad-scale-narrow": {"amsgrad": True, "scale": 0.3, "state_dtype": torch.bfloat16},
    "caution-narrow": {"caution": True, "state_dtype": torch.bfloat16},
    "center": {"center": True},
    "decay-center": {"weight_decay": 0.1, "center": True},
    "amsgrad-scale-center": {"amsgrad": True, "scale": 0.3, "center": True},
    "clip-caution-center": {"clip": 0.05, "caution": True, "center": True},
    "center-narrow": {"center": True, "state_dtype": torch.bfloat16},
}
SHAPES = ((7, 13), (5,), (), (2, 3, 4), (600,))


def make_params(dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """Weights of several shapes, none of them tiny: |w| in [0.2, 1]."""
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape in SHAPES:
        magnitude = 0.2 + 0.8 * torch.rand(shape, generator=generator, dtype=torch.float64)
        sign = torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)
        params.append(torch.nn.Parameter((magnitude * sign).to(dtype)))
    return params


def set_gradients(params: list[Tensor], step: int) -> float:
    """Give each parameter the gradient of a smooth loss of it; return that loss."""
    generator = torch.Generator().manual_seed(1000 + step)
    loss = 0.0
    for param in params:
        target = torch.randn(param.shape, generator=generator, dtype=torch.float64)
        difference = param.detach().double() - 0.3 * target
        param.grad = (difference / 10).to(param.dtype)
        loss += float((difference**2).sum()) / 20
    return loss


def bits(tensors: list[Tensor]) -> list[bytes]:
    """The exact contents of the tensors."""
    return [t.detach().flatten().view(torch.uint8).numpy().tobytes() for t in tensors]
