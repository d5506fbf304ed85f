r"""How sure a slope is whose residuals follow each other.

The points of a trajectory are not independent: a residual e_i resembles the one before it. With

    y = X beta + e,    e_i = rho e_(i-1) + noise,    S(rho) = covariance of e,

least squares keeps its estimate, and the variance of the last coefficient is

    z' S(rho) z / (z' z)^2,    z = the last column of X without its part in the others.

rho maximises the restricted likelihood (REML), which unlike the correlation of the residuals does
not shrink rho for each fitted coefficient; Student's t gets the degrees of freedom of
n (1 - rho) / (1 + rho) independent points. `test_intervals_cover_the_true_exponent` fails for
Newey-West and block bootstrap intervals, which cover 40 to 80 percent where rho is 0.8 to 0.99.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

__all__ = ["half_width", "last_alone"]

Array = NDArray[np.float64]

NUM_BLOCKS = 16  # few enough for noise to average out, enough for a rho of what remains
NUM_TRIES = 25  # of rho in each round of the search for the largest likelihood
NUM_ROUNDS = 4  # each one searches around the best of the one before


def half_width(X: Array, residual: Array, confidence: float, rounding: float = 0.0) -> float:
    """Half the confidence interval of the coefficient of the last column of X.

    Args:
        X: The regressors of a least-squares fit, shape (n, m), n > m.
        residual: What the fit left, shape (n,).
        confidence: Nominal coverage.
        rounding: Error of each y that the residual may not show.
    """
    scale = float(np.abs(residual).max())
    hidden = float(rounding * np.sqrt(len(residual)) / np.linalg.norm(last_alone(X)))
    if scale == 0:
        return hidden
    e = residual / scale
    half = _ar1_half_width(X, e, confidence) * np.sqrt(_uneven(X, e))
    if len(e) >= 2 * NUM_BLOCKS:
        # A slow drift under fast noise looks like noise to one rho: ask the block means too,
        # `test_noise_does_not_hide_a_slow_drift`.
        half = max(half, _ar1_half_width(_block_means(X), _block_means(e), confidence))
    return float(scale * half + hidden)


def _ar1_half_width(X: Array, e: Array, confidence: float) -> float:
    n, m = X.shape
    rho, noise = _fit_ar1(np.linalg.qr(X)[0], e)
    z = last_alone(X)
    root = np.ones((2, n))  # of the inverse of S(rho), upper bidiagonal
    root[0], root[1, 0] = -rho, np.sqrt(1 - rho**2)
    spread = np.linalg.norm(linalg.solve_banded((0, 1), root, z)) / (z @ z)
    freedom = max(n * (1 - rho) / (1 + rho) - m, 2.0)
    return float(special.stdtrit(freedom, 0.5 + confidence / 2) * noise * spread)


def _fit_ar1(Q: Array, e: Array) -> tuple[float, float]:
    """The rho of the largest restricted likelihood, and the standard deviation of its noise."""
    n, m = Q.shape
    # Products of the columns after e_i -> e_i - rho e_(i-1), a polynomial in rho.
    A = np.column_stack([Q, e])
    step = A[1:].T @ A[:-1]
    polynomial = np.stack([A.T @ A, -(step + step.T), A[1:-1].T @ A[1:-1]])

    def measure(rho: Array) -> tuple[Array, Array]:
        products = np.tensordot(rho[:, None] ** np.arange(3), polynomial, axes=1)
        volume = np.linalg.slogdet(products[:, :m, :m])[1]
        log_squares = np.linalg.slogdet(products)[1] - volume
        return log_squares, (n - m) * log_squares - np.log1p(-(rho**2)) + volume

    # A correlation that is ten trajectories long cannot be told from a longer one.
    angles = np.linspace(0.0, np.arctanh(1 - 0.1 / n), NUM_TRIES)
    for _ in range(NUM_ROUNDS):
        best = int(measure(np.tanh(angles))[1].argmin())
        ends = angles[max(best - 1, 0)], angles[min(best + 1, NUM_TRIES - 1)]
        angles = np.linspace(*ends, NUM_TRIES)
    rho = np.tanh(angles[[NUM_TRIES // 2]])
    return float(rho[0]), float(np.exp(measure(rho)[0][0] / 2) / np.sqrt(n - m))


def last_alone(X: Array) -> Array:
    """The last column without its part in the others, z above."""
    q = np.linalg.qr(X[:, :-1])[0]
    z = X[:, -1] - q @ (q.T @ X[:, -1])
    return z - q @ (q.T @ z)


def _uneven(X: Array, e: Array) -> float:
    """By how much the variance grows because residuals are large where z is (HC3), at least 1."""
    n, m = X.shape
    leverage = np.minimum((np.linalg.qr(X)[0] ** 2).sum(axis=1), 0.99)
    z = last_alone(X)
    robust = float((z**2 * (e / (1 - leverage)) ** 2).sum())
    return max(robust / float((z @ z) * (e @ e) / (n - m)), 1.0)


def _block_means(a: Array) -> Array:
    starts = np.linspace(0, len(a), NUM_BLOCKS + 1).round().astype(int)
    sizes = np.diff(starts).reshape((-1,) + (1,) * (a.ndim - 1))
    return np.add.reduceat(a, starts[:-1], axis=0) / sizes
