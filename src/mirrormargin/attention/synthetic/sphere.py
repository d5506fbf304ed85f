r"""Random problems on the unit sphere.

Everything is drawn from a standard normal in float32 and then projected:

    v / |v|,    y_i = +1 if N(0, 1) > 0 else -1,    x_it / |x_it|,    z_i / |z_i|,

in that order from one generator. Order, precision and shapes of the draws decide which problem a
seed names, so they are part of the contract; float64 draws would give other problems.
"""

from __future__ import annotations

from typing import SupportsIndex

import torch
from torch import Tensor

from mirrormargin.arguments import check_count, check_seed, check_size
from mirrormargin.attention.losses import LossName
from mirrormargin.attention.problem import AttentionProblem

__all__ = ["unit_sphere"]


def unit_sphere(
    seed: SupportsIndex,
    num_sequences: SupportsIndex = 6,
    num_tokens: SupportsIndex = 8,
    dim: SupportsIndex = 10,
    *,
    loss: LossName = "logistic",
) -> AttentionProblem:
    """Tokens, queries and head uniform on the unit sphere, labels fair coins.

    With the default sizes and seeds 1 to 100 these are the problems of "Optimizing Attention with
    Mirror Descent": the same bits where torch runs its AVX2 (or wider) kernels, elsewhere the same
    numbers to about 1e-6. The global random state is neither read nor changed.

    Args:
        seed: A non-negative integer below 2**64.
        num_sequences: n, at least 1.
        num_tokens: T, at least 2.
        dim: d, at least 1.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If an argument is not an integer in its range, or the loss is
            unknown.

    Example:
        >>> unit_sphere(seed=1)
        AttentionProblem(num_sequences=6, num_tokens=8, dim=10, loss='logistic')
    """
    seed = check_seed(seed)
    n = check_count("num_sequences", num_sequences)
    T = check_count("num_tokens", num_tokens, least=2)
    d = check_count("dim", dim)
    check_size("tokens", (n, T, d))
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        # Device and dtype are named because the user may have changed torch's defaults.
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    v = _normalize(draw(d))
    labels = torch.where(draw(n) > 0, 1.0, -1.0)
    tokens = _normalize(draw(n, T, d))
    queries = _normalize(draw(n, d))
    return AttentionProblem(tokens, queries, labels, v, loss)


def _normalize(vectors: Tensor) -> Tensor:
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
