"""LoRA and SHiRA, by the library peft: adapters on matrices of blocks, stored as it does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tools.delta_trainings.methods import HEAD_LR, Loss, Method, Stored

__all__ = ["Lora", "ShiraGradient", "ShiraRandom"]

QUERIES_AND_VALUES = r".*attention\.self\.(query|value)"  # LoRA's usual choice
ALL = r".*(attention\.(self\.(query|key|value)|output\.dense)|(intermediate|output)\.dense)"


class _Adapter(Method):
    """An adapter in the backbone, beside a head that is trained as usual."""

    def configure(self, model: nn.Module, losses: Loss) -> Any:
        raise NotImplementedError

    def start(self, model: nn.Module, losses: Loss) -> torch.optim.Optimizer:
        config = self.configure(model, losses)
        own: Any = model
        own.backbone = peft.get_peft_model(own.backbone, config)
        adapter = [param for param in own.backbone.parameters() if param.requires_grad]
        self.numbers = sum(param.numel() for param in adapter)
        groups = [
            {"params": list(own.head.parameters()), "lr": HEAD_LR},
            {"params": adapter, "lr": self.lr},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, weight_decay=0.0)

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        own: Any = model
        own.backbone.save_pretrained(folder / "adapter")
        save_file(own.head.state_dict(), folder / "head.safetensors")
        files = [folder / "adapter" / "adapter_model.safetensors", folder / "head.safetensors"]
        found: Any = copy.deepcopy(base)
        found.backbone = peft.PeftModel.from_pretrained(found.backbone, folder / "adapter")
        found.head.load_state_dict(load_file(files[1]))
        yield Stored("all", found.eval(), self.numbers, sum(file.stat().st_size for file in files))


class Lora(_Adapter):
    def configure(self, model: nn.Module, losses: Loss) -> Any:
        return peft.LoraConfig(r=self.r, lora_alpha=2 * self.r, target_modules=QUERIES_AND_VALUES)


class ShiraRandom(_Adapter):
    def configure(self, model: nn.Module, losses: Loss) -> Any:
        return peft.ShiraConfig(r=self.r, target_modules=ALL, random_seed=0)


class ShiraGradient(_Adapter):
    """The entries of each layer with the largest gradients over some batches."""

    def configure(self, model: nn.Module, losses: Loss) -> Any:
        own: Any = model
        sizes: dict[int, Tensor] = {}
        for loss in losses(model):
            loss.backward()
        for module in own.backbone.modules():
            if isinstance(module, nn.Linear) and module.weight.grad is not None:
                sizes[id(module)] = module.weight.grad.abs().clone()
        model.zero_grad()
        config = peft.ShiraConfig(r=self.r, target_modules=ALL, mask_type="gradient")  # pyright: ignore

        def choose(base_layer: nn.Module, r: int, **_: Any) -> Tensor:
            size = sizes[id(base_layer)]
            kept = torch.zeros(size.numel(), dtype=torch.bool)
            kept[size.flatten().topk(r * sum(size.shape)).indices] = True
            return kept.view(size.shape)

        config.mask_fn = choose
        return config
