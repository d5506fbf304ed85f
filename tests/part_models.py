"""Small random models of all kinds whose heads and hidden units are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mirrormargin.models import (
    LanguageTransformer,
    PretrainedEncoder,
    SpecialTokens,
    TextTransformer,
    VisionTransformer,
)
from mirrormargin.models.block import Block
from mirrormargin.optim.parts import Parts

__all__ = [
    "HUGGING_FACE",
    "OURS",
    "PARTS",
    "SPECIAL",
    "WIDTHS",
    "answer",
    "make",
    "randomize",
    "zero_parts",
]

HUGGING_FACE = ("Bert", "Roberta", "DistilBert", "ModernBert")
OURS = ("text", "image", "language", "encoder")
PARTS = ("blocks", "torch", *HUGGING_FACE)  # of bare layers
WIDTHS = {"num_layers": 2, "width": 12, "num_heads": 3, "hidden": 20}
SPECIAL = SpecialTokens(padding=0, first=1, separator=2, has_types=False, num_tokens=30)


def make(kind: str) -> Any:
    """A model of 2 layers with 3 heads and 20 hidden units each, width 12."""
    if kind == "blocks":
        return nn.Sequential(Block(12, 3, 20, bias=True), Block(12, 3, 20))
    if kind == "torch":
        return nn.Sequential(_make_torch_layer(), _make_torch_layer(bias=False))
    if kind == "text":
        return TextTransformer(30, 3, length=8, **WIDTHS)
    if kind == "language":
        return LanguageTransformer(30, length=8, **WIDTHS)
    if kind == "image":
        return VisionTransformer(3, size=8, mean=[0.5], std=[0.3], **WIDTHS)
    backbone = _make_hugging_face("Bert" if kind == "encoder" else kind)
    if kind != "encoder":
        return backbone
    from mirrormargin.models.checkpoints import describe_backbone

    return PretrainedEncoder(special=SPECIAL, architecture=describe_backbone(backbone))


def _make_torch_layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True, **options)


def _make_hugging_face(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 20, "max_position_embeddings": 40}
    if kind == "DistilBert":
        sizes = {"dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20}
    config = getattr(transformers, f"{kind}Config")(vocab_size=30, pad_token_id=0, **sizes)
    return transformers.AutoModel.from_config(config)


def randomize(model: nn.Module, std: float = 0.3) -> nn.Module:
    """All parameters, biases too, from N(0, std^2); in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        nn.init.normal_(param, std=std, generator=generator)
    return model.eval()


@torch.no_grad()
def answer(model: Any, kind: str) -> Tensor:
    """What a model says to some inputs, always the same ones."""
    generator = torch.Generator().manual_seed(1)
    if kind in ("blocks", "torch"):
        return model(torch.randn(2, 5, 12, generator=generator))
    if kind == "image":
        return model(torch.randint(256, (2, 1, 8, 8), generator=generator))
    ids = torch.randint(3, 30, (2, 5), generator=generator)
    ids[:, 0] = SPECIAL.first
    if kind in OURS:
        return model(ids)
    return model(input_ids=ids).last_hidden_state


@torch.no_grad()
def zero_parts(parts: Parts, gone: Any) -> None:
    """Set parts to zero, one entry of an axis after the other."""
    for layer, its in zip(parts.layers, gone, strict=True):
        for slot in (*layer.slots, *layer.biases):
            for number in range(layer.num_parts * slot.block):
                if its[number // slot.block]:
                    slot.param.select(slot.dim, slot.start + number).zero_()
