r"""A vision transformer: patches as tokens, pre-LN blocks, read out at a learned [CLS].

    x = [cls, patches(image) E + b] + position,   x <- block_l(x),   logits = head(LN x_[CLS])

It takes images as they are stored, bytes or floats from 0 to 255, and normalises them itself, so
that a saved model needs to be told nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.errors import ModelError
from mirrormargin.models.block import ByteDropout, make_blocks, stack_attention

__all__ = ["VisionTransformer"]


class VisionTransformer(nn.Module):
    """Classifies images (B, channels, size, size).

    Args:
        num_classes: One logit each; 2 classes get one (of the second class).
        size: Height and width of an image.
        mean: Of each channel of the training images, in [0, 1].
        std: Likewise.
        patch: Side of a patch; must divide the size that is used.
        upscale: Enlarge images to this size first (paper A: 32 to 48); None to take them as is.
        width: Of a token.
        num_layers: Blocks.
        num_heads: Heads of each; a list has the number of each block.
        hidden: Width inside the perceptrons, or a list.
        head_width: Of query, key and value in a head; None is ``width / num_heads``.
        dropout: Of the embedding and of both layers of each block.
        attention_dropout: Of the attention maps; None is the same as ``dropout``.
        hidden_dropout: Inside the perceptrons.
        init_std: Standard deviation of normal initial weights; None is torch's own.

    Raises:
        ModelError: For sizes that do not fit together.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        patch: int = 4,
        upscale: int | None = None,
        width: int = 512,
        num_layers: int = 6,
        num_heads: int | Sequence[int] = 8,
        hidden: int | Sequence[int] = 512,
        head_width: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        hidden_dropout: float = 0.0,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        used = size if upscale is None else upscale
        if used % patch:
            raise ModelError(f"patches of {patch} pixels do not tile images of {used}")
        self.patch, self.upscale, self.size = patch, upscale, size
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1) * 255)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1) * 255)
        self.embedding = nn.Linear(len(mean) * patch**2, width)
        self.cls = nn.Parameter(torch.randn(width))
        self.position = nn.Parameter(torch.randn((used // patch) ** 2 + 1, width))
        self.dropout = ByteDropout(dropout)
        self.blocks = make_blocks(
            num_layers,
            width,
            num_heads,
            hidden,
            head_width=head_width,
            norm_first=True,
            bias=True,
            dropout=dropout,
            attention_dropout=dropout if attention_dropout is None else attention_dropout,
            hidden_dropout=hidden_dropout,
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1 if num_classes == 2 else num_classes)
        if init_std is not None:
            for name, parameter in self.named_parameters():
                if parameter.ndim == 2 or name == "cls":
                    nn.init.normal_(parameter, 0.0, init_std)

    def forward(self, images: Tensor, whole: bool = False) -> Tensor:
        """Logits, (B,) for two classes and (B, classes) for more."""
        x = self._embed(images)
        *blocks, last = self.blocks
        for block in blocks:
            x = block(x)
        return self.head(self.norm(last(x, first_only=not whole)[:, 0])).squeeze(-1)

    @torch.no_grad()
    def attention(self, images: Tensor) -> Tensor:
        """Attention maps (B, layers, heads, T, T); token 0 is [CLS], then patches by rows."""
        return stack_attention(self.blocks, self._embed(images))

    def _embed(self, images: Tensor) -> Tensor:
        if images.shape[1:] != (len(self.mean), self.size, self.size):
            raise ModelError(
                f"images of shape {tuple(images.shape[1:])} were given to a model of"
                f" ({len(self.mean)}, {self.size}, {self.size})"
            )
        images = (images - self.mean) / self.std
        if self.upscale is not None:
            images = functional.interpolate(
                images, self.upscale, mode="bilinear", align_corners=False
            )
        patches = functional.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        cls = self.cls.expand(len(images), 1, -1)
        return self.dropout(torch.cat([cls, self.embedding(patches)], dim=1) + self.position)
