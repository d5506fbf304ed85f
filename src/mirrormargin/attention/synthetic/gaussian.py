r"""Self-attention on nearly orthogonal tokens, a setting of global convergence.

Tokens are drawn as ``x ~ N(0, I/d)``, of norm about 1 and with inner products of about
``1/sqrt(d)``, and the query is the first token, ``z_i = x_i1``. One token of each sequence, at a
random position o_i, matters:

    equal_scores    y_i <v, x_it> = a if t = o_i else b,    v of least norm
    signal_noise    x_{i,o_i} = mu_+ or mu_-, by the label, instead of noise

The settings are those of "Implicit Bias and Fast Convergence Rates for Self-attention", the first
for training W under a fixed head, the second for training W and the head; sizes and draws are
ours. All draws are in float64 from ``numpy.random.default_rng(seed)``.
"""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from scipy.linalg import solve_triangular

from mirrormargin.arguments import check_count, check_number, check_seed, check_size
from mirrormargin.attention.losses import LossName
from mirrormargin.attention.problem import AttentionProblem
from mirrormargin.errors import ProblemError

__all__ = ["equal_scores", "signal_noise"]


def equal_scores(
    seed: SupportsIndex,
    num_sequences: SupportsIndex = 8,
    num_tokens: SupportsIndex = 4,
    dim: SupportsIndex = 64,
    optimal_score: float = 1.0,
    other_score: float = 0.0,
    *,
    loss: LossName = "logistic",
) -> AttentionProblem:
    """One token of each sequence has one score, all the others have another; labels fair coins.

    No other token is better than the rest, so that there is no second-best selection for training
    to get caught in. Since ``n T <= d``, the tokens are linearly independent: there is a head with
    these scores, up to rounding, and W separates every selection.

    Args:
        seed: A non-negative integer below 2**64.
        num_sequences: n, at least 1.
        num_tokens: T, at least 2.
        dim: d, at least ``n T``; the larger, the nearer to orthogonal are the tokens.
        optimal_score: a, the score of the optimal token of each sequence.
        other_score: b, the score of the others, below a.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If an argument is outside its range or the loss is unknown.

    Example:
        >>> problem = equal_scores(seed=0)
        >>> abs(problem.scores[0].round(12))
        array([1., 0., 0., 0.])
    """
    rng = np.random.default_rng(check_seed(seed))
    n = check_count("num_sequences", num_sequences)
    T = check_count("num_tokens", num_tokens, least=2)
    d = check_count("dim", dim)
    check_size("tokens", (n, T, d))
    b = check_number("other_score", other_score)
    a = check_number("optimal_score", optimal_score)
    if a <= b:
        raise ProblemError(
            f"optimal_score is {a:g} and other_score is {b:g}: give the optimal tokens the higher"
            " score"
        )
    if n * T > d:
        raise ProblemError(
            f"dim is {d}, but a head that gives {n} x {T} tokens their scores needs a dim of at"
            f" least {n * T}: raise dim, or lower num_sequences or num_tokens"
        )
    tokens = rng.standard_normal((n, T, d)) / np.sqrt(d)
    optimal = rng.integers(T, size=n)
    labels = rng.choice([-1.0, 1.0], size=n)
    scores = np.where(np.arange(T) == optimal[:, None], a, b)
    # The head of least norm with X v = y gamma, from X' = Q R. The Gram matrix X X' would square
    # the condition number, and with it the rounding:
    # test_equal_scores_has_equal_non_optimal_scores_at_the_least_dim.
    Q, R = np.linalg.qr(tokens.reshape(n * T, d).T)
    head = Q @ solve_triangular(R.T, (labels[:, None] * scores).ravel(), lower=True)
    problem = AttentionProblem(tokens, tokens[:, 0], labels, head, loss)
    if not np.array_equal(problem.optimal_tokens, optimal):
        raise ProblemError(
            f"optimal_score {a:g} and other_score {b:g} are so close that rounding hides which"
            " token is optimal: choose scores further apart"
        )
    return problem


def signal_noise(
    seed: SupportsIndex,
    num_sequences: SupportsIndex = 8,
    num_tokens: SupportsIndex = 4,
    dim: SupportsIndex = 64,
    signal: float = 1.0,
    *,
    loss: LossName = "logistic",
) -> AttentionProblem:
    """One token of each sequence is the signal of its label, all the others are noise.

    The signals mu_+ and mu_- are orthogonal, of norm ``signal`` and in random directions. Half of
    the labels are +1 (of an odd number, one half is larger by chance), in random order. Training
    of the head brings its own v; here it is the reference ``(mu_+ - mu_-) / |mu_+ - mu_-|``, which
    scores a signal ``signal / sqrt(2)`` and noise ``N(0, 1/d)``. So the signals are its optimal
    tokens but for rare seeds, at the default sizes about one in five million.

    Where the signal comes first it is the query too, shared with other sequences of its label; W
    nevertheless separates the signals from the noise with probability one if d is at least n and
    at least ``ceil(n/2) (T - 1)``, since then different queries are linearly independent, and so
    are the token differences that one query has to tell apart.

    Args:
        seed: A non-negative integer below 2**64.
        num_sequences: n, at least 1.
        num_tokens: T, at least 2.
        dim: d, at least 2; the larger, the nearer to orthogonal are the tokens.
        signal: Norm of the signals, above 0.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If an argument is outside its range or the loss is unknown.

    Example:
        >>> problem = signal_noise(seed=0)
        >>> problem.scores.max(axis=1).round(3)
        array([0.707, 0.707, 0.707, 0.707, 0.707, 0.707, 0.707, 0.707])
    """
    rng = np.random.default_rng(check_seed(seed))
    n = check_count("num_sequences", num_sequences)
    T = check_count("num_tokens", num_tokens, least=2)
    d = check_count("dim", dim, least=2)
    check_size("tokens", (n, T, d))
    signal = check_number("signal", signal, above=0.0)
    plus, minus = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    labels = rng.choice([-1.0, 1.0]) * rng.permutation(np.where(np.arange(n) % 2, -1.0, 1.0))
    position = rng.integers(T, size=n)
    tokens = rng.standard_normal((n, T, d)) / np.sqrt(d)
    tokens[np.arange(n), position] = signal * np.where(labels[:, None] > 0, plus, minus)
    return AttentionProblem(tokens, tokens[:, 0], labels, (plus - minus) / np.sqrt(2.0), loss)
