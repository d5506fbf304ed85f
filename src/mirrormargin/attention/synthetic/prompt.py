r"""Problems in the plane whose tokens have a key and a score of their own.

"Max-Margin Token Selection in Attention Mechanism" trains a prompt on keys k_it and scores
gamma_it that do not depend on each other,

    m_i = <gamma_i, s_i>,    s_i = softmax((<k_it, prompt>)_t).

An attention problem reads both from one token. With a small eps the choice

    x_it = (k_it, eps gamma_it),    v = (0, 0, 1/eps),    z_i = e_1,    y_i = +1

has exactly these scores, and as all queries are e_1, the first column of W is trained alone:

    X_i W z_i = (<k_it, prompt> + eps gamma_it W_31)_t,    prompt = (W_11, W_21).

The gradient of W_31 carries another factor eps. So in the geometry of p, with 1/p + 1/q = 1, the
prompt follows the original path up to a share of ``O(eps^q)``, about 1e-8 at p = 2.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from mirrormargin.arguments import check_number, check_seed
from mirrormargin.attention.losses import LossName
from mirrormargin.attention.problem import AttentionProblem

__all__ = ["EPS", "planar_multi", "planar_single"]

EPS = 2.0**-13  # about 1e-4; a power of two, so that eps * gamma / eps is gamma to the last bit


def planar_single(third_score: float = 0.9, *, loss: LossName = "logistic") -> AttentionProblem:
    """One sequence of three tokens: keys (-0.1, 1), (1, 0), (0, 0), scores 1, 0.9, ``third_score``.

    Token 0 is optimal, and its max-margin prompt at p = 2 is (-0.1, 1) / 1.01. That of token 1 is
    (1, 0), and in both cases the one support token is token 2. So token 1 is locally optimal, and
    some starts end there, if and only if ``third_score`` is below 0.9. In "Max-Margin Token
    Selection in Attention Mechanism" it is 0.9 or 0, the prompt starts at (0, a) with a in
    {1, 0.5, 0, -0.5, -1, -1.5}, and takes normalized steps of lr 0.1.

    Args:
        third_score: Score of the third token, below 1.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If the score is not a number below 1 or the loss is unknown.

    Example:
        >>> planar_single(third_score=0.0).scores
        array([[1. , 0.9, 0. ]])
    """
    third = check_number("third_score", third_score, below=1.0)
    keys = np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    return _embed(keys, np.array([[1.0, 0.9, third]]), loss)


def planar_multi(seed: SupportsIndex = 0, *, loss: LossName = "logistic") -> AttentionProblem:
    """Three sequences of seven tokens around three centers; token 0 scores 1, the others 0.5.

    The key of token 0 is drawn around (1, 0), those of tokens 1 to 3 around (-1, 1), and those of
    tokens 4 to 6 around (-0.5, -0.5), all with a deviation of 0.2. The centers are so far apart
    that one prompt separates token 0 in all sequences, but for rare seeds.

    Seed 0 is the problem of "Max-Margin Token Selection in Attention Mechanism", drawn as in the
    authors' program: in float32, and of three coordinates, of which the last is not used. There
    the prompt starts at (a, 0) with a in {1, 0.5, 0, -0.5, -1, -1.5} and takes normalized steps of
    lr 0.1. Bits are the same where torch runs its AVX2 (or wider) kernels, elsewhere numbers agree
    to about 1e-6.

    Args:
        seed: A non-negative integer below 2**64.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If the seed is not an integer in its range or the loss is
            unknown.

    Example:
        >>> planar_multi().scores[0]
        array([1. , 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    generator = torch.Generator(device="cpu").manual_seed(check_seed(seed))
    # Device and dtype are named because the user may have changed torch's defaults.
    noise = torch.randn((3, 7, 3), generator=generator, dtype=torch.float32, device="cpu").numpy()
    centers = np.array([(1.0, 0.0)] + [(-1.0, 1.0)] * 3 + [(-0.5, -0.5)] * 3, dtype=np.float32)
    keys = noise[:, :, :2] * np.float32(0.2) + centers
    scores = np.tile([1.0] + [0.5] * 6, (3, 1))
    return _embed(keys, scores, loss)


def _embed(keys: NDArray[Any], scores: NDArray[np.float64], loss: LossName) -> AttentionProblem:
    n = len(keys)
    tokens = np.concatenate([keys, EPS * scores[:, :, None]], axis=2)
    queries = np.tile([1.0, 0.0, 0.0], (n, 1))
    return AttentionProblem(tokens, queries, np.ones(n), [0.0, 0.0, 1.0 / EPS], loss)
