r"""A small causal language model: pre-LN blocks that see the past alone, with a tied head.

    x = embedding(ids) + position,   x <- block_l(x) for l = 1..L,   logits = LN(x) embedding'

Row t of the logits is about token t + 1 and depends on tokens 0..t. There are no biases. Matrices
start from N(0, init_std^2). Those that write into the residual sum (``output`` and ``contract``)
start from a standard deviation smaller by sqrt(2 L), because 2 L of their results are added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.arguments import check_count, check_number
from mirrormargin.errors import ModelError
from mirrormargin.models.block import ByteDropout, make_blocks, stack_attention

__all__ = ["LanguageTransformer"]


class LanguageTransformer(nn.Module):
    """Predicts the next token of a text at every position.

    Args:
        vocab_size: Number of token ids.
        length: Largest number of tokens, the context.
        width: Of a token.
        num_layers: Blocks.
        num_heads: Heads of each; a list has the number of each block.
        hidden: Width inside the perceptrons, or a list; None is four times the width.
        head_width: Of query, key and value in a head; None is ``width / num_heads``.
        dropout: Of the embedding and of both layers of each block.
        attention_dropout: Of the attention maps; None is the same as ``dropout``.
        init_std: Standard deviation of the initial weights.

    Raises:
        ModelError: For sizes that do not fit together, or more tokens than ``length``.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        length: int,
        width: int = 128,
        num_layers: int = 4,
        num_heads: int | Sequence[int] = 4,
        hidden: int | Sequence[int] | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        check_count("vocab_size", vocab_size, error=ModelError)
        check_count("length", length, error=ModelError)
        self.embedding = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(length, width)
        self.dropout = ByteDropout(dropout)
        self.blocks = make_blocks(
            num_layers,
            width,
            num_heads,
            4 * width if hidden is None else hidden,
            head_width=head_width,
            norm_first=True,
            dropout=dropout,
            attention_dropout=dropout if attention_dropout is None else attention_dropout,
            is_causal=True,
        )
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                is_last = name.endswith(("output.weight", "contract.weight"))
                std = init_std / math.sqrt(2 * num_layers) if is_last else init_std
                nn.init.normal_(parameter, 0.0, std)

    @property
    def length(self) -> int:
        """The context: how many tokens it sees at most."""
        return self.position.num_embeddings

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, T, vocab_size) of the token after each, from ids (B, T)."""
        x = self._embed(ids)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.embedding.weight)

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """Attention maps (B, layers, heads, T, T), zero above the diagonal."""
        return stack_attention(self.blocks, self._embed(ids))

    def generate(
        self, ids: list[int], num_tokens: int, *, temperature: float = 1.0, seed: int = 0
    ) -> Iterator[int]:
        """Continue a text, one token at a time.

        Token t + 1 is drawn from softmax(logits_t / temperature). Of a text that is longer than the
        context, the model sees the last ``length`` tokens.

        Args:
            ids: What the text begins with, one token at least.
            num_tokens: How many are added.
            temperature: Below 1, likely tokens become likelier; 0 always takes the likeliest.
            seed: Of the draws: the same seed gives the same text.

        Raises:
            ModelError: If an argument makes no sense.
        """
        check_count("num_tokens", num_tokens, error=ModelError)
        check_number("temperature", temperature, least=0.0, error=ModelError)
        check_count("seed", seed, least=0, most=2**63 - 1, error=ModelError)
        if not ids:
            raise ModelError("a text to continue has one token at least, got none")
        return self._generate(list(ids), num_tokens, temperature, seed)

    @torch.no_grad()
    def _generate(
        self, ids: list[int], num_tokens: int, temperature: float, seed: int
    ) -> Iterator[int]:
        generator = torch.Generator().manual_seed(seed)
        device = self.embedding.weight.device
        for _ in range(num_tokens):
            seen = torch.tensor([ids[-self.length :]], device=device)
            logits = self(seen)[0, -1].double().cpu()
            if temperature == 0:
                ids.append(int(logits.argmax()))
            else:
                # Scaled before the division: a small temperature would overflow.
                shares = ((logits - logits.max()) / temperature).softmax(0)
                ids.append(int(torch.multinomial(shares, 1, generator=generator)))
            yield ids[-1]

    def _embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > self.length:
            raise ModelError(
                f"a sequence of {ids.shape[1]} tokens was given to a model of length"
                f" {self.length}: cut it, or build a longer model"
            )
        return self.dropout(self.embedding(ids) + self.position.weight[: ids.shape[1]])
