r"""How sparse attention maps are, layer by layer.

With s_1..s_T one row of a map, T being the number of tokens of the input,

    entropy = -sum_t s_t log s_t / log T     1 if it attends to all alike, 0 if to one token alone
    largest = max_t s_t

are averaged over the rows of all tokens, heads and examples. Padding is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mirrormargin.data import Split
from mirrormargin.errors import ModelError

__all__ = ["measure_attention"]

BATCH = 50


@torch.no_grad()
def measure_attention(model: nn.Module, split: Split, size: int) -> dict[str, list[float]]:
    """Mean entropy and mean largest weight of the maps on the first ``size`` examples, by layer.

    Raises:
        ModelError: If the model gives no attention maps.
    """
    attention = getattr(model, "attention", None)
    if attention is None:
        raise ModelError(
            f"{type(model).__name__} gives no attention maps: leave out attention_size, or choose"
            " one of the transformers here"
        )
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    count = min(size, len(split))
    entropy = largest = torch.zeros((), device=device)
    try:
        for start in range(0, count, BATCH):
            inputs = split.inputs[start : min(start + BATCH, count)].to(device)
            maps = attention(inputs)
            is_token = _find_tokens(inputs, maps.shape[-1], getattr(model, "padding", 0))
            lengths = is_token.sum(dim=1)
            rows = is_token[:, None, :] / lengths[:, None, None]
            spread = -torch.xlogy(maps, maps).sum(dim=-1) / lengths.log()[:, None, None, None]
            # Of a model that was shrunk, nan stands for the heads that a layer lacks.
            entropy = entropy + (spread.nanmean(dim=2) * rows).sum(dim=(0, 2))
            largest = largest + (maps.amax(dim=-1).nanmean(dim=2) * rows).sum(dim=(0, 2))
    finally:
        model.train(was_training)
    return {
        name: [round(value, 6) for value in (total / count).tolist()]
        for name, total in (("entropy", entropy), ("largest", largest))
    }


def _find_tokens(inputs: Tensor, length: int, padding: int) -> Tensor:
    """(B, T), true for tokens: all of an image's, a text's where it has not ended."""
    if inputs.ndim == 2:
        return inputs[:, :length] != padding
    return torch.ones(len(inputs), length, dtype=torch.bool, device=inputs.device)
