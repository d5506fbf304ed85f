"""Models of single matrices, for the tests of pruning."""

import torch
from torch import nn

__all__ = ["make_model", "same_bits"]


def make_model(*matrices, dtype=torch.float32):
    """A model with these matrices, each in a block."""
    model = nn.Module()
    blocks = []
    for matrix in matrices:
        rows = torch.tensor(matrix, dtype=dtype)
        block = nn.Linear(rows.shape[1], rows.shape[0])
        block.weight = nn.Parameter(rows)
        blocks.append(block)
    model.blocks = nn.ModuleList(blocks)
    model.head = nn.Linear(2, 2)
    return model


def same_bits(a, b):
    return a.dtype is b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
