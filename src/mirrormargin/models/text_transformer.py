r"""Paper A's text classifier: post-LN blocks without biases, read out at [CLS].

    x = embedding(ids) + position,   x <- block_l(x) for l = 1..L,   logits = head(x_[CLS])

Only the [CLS] row leaves the last block, so only that row is computed there;
``forward(ids, whole=True)`` is the slow twin that computes them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count
from mirrormargin.errors import ModelError
from mirrormargin.models.batch_rows import find_whole
from mirrormargin.models.block import ByteDropout, make_blocks, stack_attention

__all__ = ["TextTransformer"]


class TextTransformer(nn.Module):
    """Classifies sequences of token ids, [CLS] first, padded with 0.

    Args:
        vocab_size: Number of token ids.
        num_classes: 2 classes get one logit (of the second class), more get one each.
        length: Largest number of tokens.
        width: Of a token.
        num_layers: Blocks.
        num_heads: Heads of each; a list has the number of each block.
        hidden: Width inside the perceptrons, or a list; None is four times the width.
        head_width: Of query, key and value in a head; None is ``width / num_heads``.
        dropout: Of both layers of each block.
        attention_dropout: Of the attention maps; None is the same as ``dropout``.
        embedding_dropout: Of the embedding; None is the same as ``dropout``.
        init_std: Standard deviation of normal initial weights; None is torch's own (embedding
            N(0, 1), linear layers uniform), from which paper A starts.

    Raises:
        ModelError: For sizes that do not fit together, or more tokens than ``length``.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int = 2,
        *,
        length: int = 512,
        width: int = 384,
        num_layers: int = 3,
        num_heads: int | Sequence[int] = 3,
        hidden: int | Sequence[int] | None = None,
        head_width: int | None = None,
        dropout: float = 0.2,
        attention_dropout: float | None = None,
        embedding_dropout: float | None = None,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes, least=2, error=ModelError)
        self.embedding = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(length, width)
        self.dropout = ByteDropout(dropout if embedding_dropout is None else embedding_dropout)
        self.blocks = make_blocks(
            num_layers,
            width,
            num_heads,
            4 * width if hidden is None else hidden,
            head_width=head_width,
            dropout=dropout,
            attention_dropout=dropout if attention_dropout is None else attention_dropout,
        )
        self.head = nn.Linear(width, 1 if num_classes == 2 else num_classes, bias=False)
        if init_std is not None:
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, 0.0, init_std)

    def forward(self, ids: Tensor, whole: bool = False) -> Tensor:
        """Logits, (B,) for two classes and (B, classes) for more."""
        x, mask = self._embed(ids)
        *blocks, last = self.blocks
        for block in blocks:
            x = block(x, mask)
        return self.head(last(x, mask, first_only=not whole)[:, 0]).squeeze(-1)

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """Attention maps (B, layers, heads, T, T), T being the longest of these sequences."""
        return stack_attention(self.blocks, *self._embed(ids))

    def _embed(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens and their mask, without the columns that are padding throughout."""
        is_used = (find_whole(ids) != 0).any(dim=0)
        longest = int(is_used.nonzero().max()) + 1 if bool(is_used.any()) else 1
        ids = ids[:, :longest]
        mask = ids != 0
        if longest > self.position.num_embeddings:
            raise ModelError(
                f"a sequence of {longest} tokens was given to a model of length"
                f" {self.position.num_embeddings}: cut it, or build a longer model"
            )
        x = self.embedding(ids) + self.position.weight[:longest]
        return self.dropout(x), None if bool(mask.all()) else mask
