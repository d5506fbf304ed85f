"""Files with the layout of paper A's published models, written without their code."""

import sys
import types
from pathlib import Path

import torch
from torch import nn

__all__ = ["write_published"]


def build_module(width, layers, heads, vocab_size, length):
    """The published layout: module and attribute names and shapes."""
    tools, source = types.ModuleType("tools"), types.ModuleType("tools.sent_analysis_model")
    for name in ("TransformerClassifier", "Block", "SelfAttention", "FeedForward", "LayerNorm"):
        layer = type(name, (nn.Module,), {"__module__": "tools.sent_analysis_model"})
        setattr(source, name, layer)
    tools.sent_analysis_model = source

    def make(name, **parts):
        module = getattr(source, name)()
        for key, value in parts.items():
            setattr(module, key, value)
        return module

    def linear(inside, outside):
        return nn.Linear(inside, outside, bias=False)

    def norm():
        weight = nn.Parameter(1 + 0.1 * torch.randn(width))
        return make("LayerNorm", weight=weight, bias=None)

    def block():
        attention = make(
            "SelfAttention",
            attn_matrix=linear(width, 3 * width),
            linear=linear(width, width),
            resid_dropout=nn.Dropout(0.2),
            n_head=heads,
            n_embd=width,
            dropout=0.2,
        )
        mlp = make(
            "FeedForward",
            lin1=linear(width, 4 * width),
            gelu=nn.GELU(),
            lin2=linear(4 * width, width),
            dropout=nn.Dropout(0.2),
        )
        return make("Block", ln1=norm(), attn=attention, ln2=norm(), mlp=mlp)

    model = make(
        "TransformerClassifier",
        emb_static=nn.Embedding(vocab_size, width),
        emb_pos=nn.Embedding(length, width),
        blocks=nn.Sequential(*(block() for _ in range(layers))),
        lin=linear(width, 1),
    )
    return model, {"tools": tools, "tools.sent_analysis_model": source}


def write_published(
    path: Path, *, width=12, layers=2, heads=2, vocab_size=40, length=16, seed=0
) -> nn.Module:
    """Write a file, and return the module in it; whoever reads it does not have its classes."""
    torch.manual_seed(seed)
    model, modules = build_module(width, layers, heads, vocab_size, length)
    curves = {name: torch.linspace(0.5, 0.9, 4) for name in ("train_loss", "train_acc")}
    curves |= {name: torch.linspace(0.6, 0.8, 4) for name in ("test_loss", "test_acc")}
    sys.modules.update(modules)
    try:
        torch.save({"model": model, **curves}, path)
    finally:
        for name in modules:
            del sys.modules[name]
    return model
