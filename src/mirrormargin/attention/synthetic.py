r"""Random attention problems, each a function of its seed.

:func:`unit_sphere` draws everything from a standard normal in float32 and projects it:

    v / |v|,    y_i = +1 if N(0, 1) > 0 else -1,    x_it / |x_it|,    z_i / |z_i|,

in that order from one generator. Order, precision and shapes of the draws decide which problem a
seed names, so they are part of the contract; float64 draws would give other problems.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

import torch
from torch import Tensor

from mirrormargin.attention.problem import AttentionProblem
from mirrormargin.errors import ProblemError

__all__ = ["unit_sphere"]


def unit_sphere(
    seed: SupportsIndex,
    num_sequences: SupportsIndex = 6,
    num_tokens: SupportsIndex = 8,
    dim: SupportsIndex = 10,
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

    Raises:
        ProblemError: (a ValueError) If an argument is not an integer in its range.

    Example:
        >>> unit_sphere(seed=1)
        AttentionProblem(num_sequences=6, num_tokens=8, dim=10, loss='logistic')
    """
    seed = _check_integer("seed", seed, least=0, most=2**64 - 1)
    n = _check_integer("num_sequences", num_sequences, least=1)
    T = _check_integer("num_tokens", num_tokens, least=2)
    d = _check_integer("dim", dim, least=1)
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        # Device and dtype are named because the user may have changed torch's defaults.
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    v = _normalize(draw(d))
    labels = torch.where(draw(n) > 0, 1.0, -1.0)
    tokens = _normalize(draw(n, T, d))
    queries = _normalize(draw(n, d))
    return AttentionProblem(tokens, queries, labels, v)


def _normalize(vectors: Tensor) -> Tensor:
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)


def _check_integer(name: str, value: SupportsIndex, least: int, most: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ProblemError(
            f"{name} is {value!r}, a {type(value).__name__}: give an integer"
        ) from None
    if number < least or (most is not None and number > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ProblemError(f"{name} is {number}: give an integer {allowed}")
    return number
