r"""One transformer block, the same for text and for images, and its dropout.

    after the sum (post-LN, paper A's text model):   x <- LN(x + attend(x)),  x <- LN(x + mlp(x))
    before the layer (pre-LN, its ViT):              x <- x + attend(LN x),   x <- x + mlp(LN x)

with attend(x) = softmax(Q K' / sqrt(d_head)) V O and mlp(x) = contract(gelu(expand x)). The
matrices are ``query``, ``key``, ``value``, ``output``, ``expand`` and ``contract``. In a causal
block, which language models are made of, a token attends to itself and those before it alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.arguments import check_count, check_number
from mirrormargin.errors import ModelError
from mirrormargin.models.batch_rows import find_rows

__all__ = ["Block", "ByteDropout", "make_blocks", "stack_attention", "stack_maps"]


def make_blocks(
    num_layers: int,
    width: int,
    num_heads: int | Sequence[int],
    hidden: int | Sequence[int],
    **options: Any,
) -> nn.ModuleList:
    """Blocks that follow one another.

    Args:
        num_layers: How many.
        width: Of a token.
        num_heads: Of every block, or a list with the number of each.
        hidden: Width inside the perceptrons, of all or of each.
        **options: Of :class:`Block`.

    Raises:
        ModelError: If a list has another length, or sizes do not fit together.
    """
    check_count("num_layers", num_layers, error=ModelError)
    heads = _read_sizes("num_heads", num_heads, num_layers)
    widths = _read_sizes("hidden", hidden, num_layers)
    return nn.ModuleList(
        Block(width, *sizes, **options) for sizes in zip(heads, widths, strict=True)
    )


def _read_sizes(name: str, value: Any, num_layers: int) -> tuple[Any, ...]:
    """One for each block; each block checks its own."""
    if not isinstance(value, (list, tuple)):
        return (value,) * num_layers
    if len(value) != num_layers:
        raise ModelError(
            f"{name} has {len(value)} numbers for {num_layers} blocks: give one for each, or one"
            " number for all"
        )
    return tuple(value)


def stack_attention(blocks: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention maps (B, layers, heads, T, T) of blocks that follow one another."""
    maps = []
    for block in blocks.children():
        assert isinstance(block, Block)
        maps.append(block.attention(x, mask))
        x = block(x, mask)
    return stack_maps(maps)


def stack_maps(maps: Sequence[Tensor]) -> Tensor:
    """The maps (B, heads, T, T) of each layer as one tensor (B, layers, heads, T, T).

    In place of the heads that a layer has fewer than another one there is nan.
    """
    most = max(one.shape[1] for one in maps)
    filled = [
        functional.pad(one, (0, 0, 0, 0, 0, most - one.shape[1]), value=torch.nan) for one in maps
    ]
    return torch.stack(filled, dim=1)


class Block(nn.Module):
    """Multi-head attention and a two-layer perceptron, each with a residual sum.

    Args:
        width: Of a token.
        num_heads: Must divide the width, unless ``head_width`` is given.
        hidden: Width inside the perceptron.
        head_width: Of query, key and value in a head; None is ``width / num_heads``.
        norm_first: Pre-LN instead of post-LN.
        bias: Whether all but Q, K and V have biases.
        dropout: Of both layers' results.
        attention_dropout: Of the attention map.
        hidden_dropout: Inside the perceptron.
        is_causal: Whether a token sees none of those after it; such a block takes no mask.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        hidden: int,
        *,
        head_width: int | None = None,
        norm_first: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        is_causal: bool = False,
    ) -> None:
        super().__init__()
        if head_width is None:
            if num_heads < 1 or width % num_heads:
                raise ModelError(
                    f"the width must be a multiple of num_heads, got {width} / {num_heads}"
                )
            head_width = width // num_heads
        sizes = {"num_heads": num_heads, "hidden": hidden, "head_width": head_width}
        for name, size in sizes.items():
            check_count(name, size, error=ModelError)
        inner = num_heads * head_width
        self.num_heads = num_heads
        self.norm_first = norm_first
        self.is_causal = is_causal
        self.query = nn.Linear(width, inner, bias=False)
        self.key = nn.Linear(width, inner, bias=False)
        self.value = nn.Linear(width, inner, bias=False)
        self.output = nn.Linear(inner, width, bias=bias)
        self.expand = nn.Linear(width, hidden, bias=bias)
        self.contract = nn.Linear(hidden, width, bias=bias)
        self.attention_norm = nn.LayerNorm(width, bias=bias)
        self.mlp_norm = nn.LayerNorm(width, bias=bias)
        self.dropout = ByteDropout(dropout)
        self.attention_dropout = ByteDropout(attention_dropout)
        self.hidden_dropout = ByteDropout(hidden_dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, first_only: bool = False) -> Tensor:
        """The block's result.

        Args:
            x: (B, T, width).
            mask: (B, T), true where a token may be attended to; None for all.
            first_only: Compute the first token's row alone, (B, 1, width). It equals the first
                row of the whole result, for a fraction of the work: keys and values are all
                that the other tokens contribute.
        """
        assert mask is None or not self.is_causal
        rows = x[:, :1] if first_only else x
        if self.norm_first:
            normed = self.attention_norm(x)
            x = rows + self._attend(normed[:, :1] if first_only else normed, normed, mask)
            return x + self._mlp(self.mlp_norm(x))
        x = self.attention_norm(rows + self._attend(rows, x, mask))
        return self.mlp_norm(x + self._mlp(x))

    def attention(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attention maps (B, heads, T, T) on the block's input."""
        if self.norm_first:
            x = self.attention_norm(x)
        return self._map(self._heads(self.query(x)), self._heads(self.key(x)), mask)

    def _attend(self, rows: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            self._heads(layer(y))
            for layer, y in ((self.query, rows), (self.key, x), (self.value, x))
        )
        if self.training and self.attention_dropout.threshold:
            mixed = self.attention_dropout(self._map(query, key, mask)) @ value
        else:
            mixed = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                None if mask is None else mask[:, None, None, :],
                is_causal=self.is_causal,
            )
        return self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))

    def _mlp(self, x: Tensor) -> Tensor:
        hidden = self.hidden_dropout(functional.gelu(self.expand(x)))
        return self.dropout(self.contract(hidden))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _map(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None, :], -torch.inf)
        if self.is_causal:
            is_later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
            logits = logits.masked_fill(is_later, -torch.inf)
        return logits.softmax(-1)


class ByteDropout(nn.Module):
    """Dropout whose mask is made of random bytes, eight from one draw of torch's global numbers.

    An entry is dropped when its byte is below 256 * rate, so the rate is a multiple of 1/256 (0.1
    becomes 26/256), and the rest is divided by the rate of keeping that follows: the mean is exact.
    torch's own dropout draws one number for each entry, which takes a third of the time of a small
    transformer on a CPU. There is no module state.

    Raises:
        ModelError: If the rate is not in [0, 1).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_number("the rate of dropout", rate, least=0.0, below=1.0, error=ModelError)
        self.threshold = min(round(256 * rate), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.threshold:
            return x
        # Of a batch that is shared with other processes, the mask of all rows is drawn.
        size, rows = find_rows(len(x))
        shape = (size, *x.shape[1:])
        count = math.prod(shape)
        draws = torch.empty((count + 7) // 8, dtype=torch.int64, device=x.device)
        draws.random_(-(2**63), None)  # all 64 bits
        mask = draws.view(torch.uint8)[:count].view(shape)[rows] >= self.threshold
        return x * mask * (256 / (256 - self.threshold))

    def extra_repr(self) -> str:
        return f"rate={self.threshold}/256"
