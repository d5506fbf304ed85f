r"""Least squares for the two kinds of decay laws, with an interval for the exponent a.

    a line            log y = log C - a x
    an exponential    log y = b - C k^a

The second is a line too once a is fixed, in the coordinate (k^a - 1) / a, which tends to log k for
a -> 0: there the exponential turns into a power law. No residual gets a weight, although log y may
grow a thousandfold along the trajectory: lower-order terms in the exponent then pull a least.

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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special

from mirrormargin.dynamics.rates.laws import Interval
from mirrormargin.figures.spread import find_half_width

__all__ = [
    "SEARCH",
    "DecayFit",
    "fit_exponential",
    "fit_line",
    "half_width",
    "pool_seeds",
    "solve_exponential",
    "solve_line",
]

Array = NDArray[np.float64]

SEARCH = np.geomspace(0.02, 3.0, 80)
"""Exponents among which that of the exponential is searched."""

MAX_STEPS = 100  # of Gauss-Newton; five are usual
NUM_BLOCKS = 16  # few enough for noise to average out, enough for a rho of what remains
NUM_TRIES = 25  # of rho in each round of the search for the largest likelihood
NUM_ROUNDS = 4  # each one searches around the best of the one before


class DecayFit(NamedTuple):
    """An exponent, nan where log y does not fall, its interval, and how well the law fits."""

    exponent: float
    low: float
    high: float
    r_squared: float
    max_residual: float
    at_search_end: bool = False


def fit_line(x: Array, log_y: Array, confidence: float) -> DecayFit:
    """Fit ``log y = log C - a x``."""
    a, residual = _regress(x, log_y)
    X = np.stack([np.ones_like(x), x], axis=1)
    half = half_width(X, residual, confidence, _rounding(log_y))
    return DecayFit(a, a - half, a + half, *_quality(residual, log_y))


def fit_exponential(log_k: Array, log_y: Array, confidence: float) -> DecayFit:
    """Fit ``log y = b - C k^a`` with a between the ends of :data:`SEARCH`.

    The interval holds every a whose sum of squares exceeds the least one by no more than the
    interval of the linearised fit explains. It is open, 0 or inf, where it reaches an end of the
    search.
    """
    t = log_k - log_k[-1]  # of k / k_R, whose powers stay in floating point
    on_grid = np.array([_squares(t, log_y, a) for a in SEARCH])
    a, X, residual = _descend(t, log_y, float(SEARCH[on_grid.argmin()]))
    quality = _quality(residual, log_y)
    at_end = a in (SEARCH[0], SEARCH[-1])
    if _regress(_bend(t, a), log_y)[0] <= 0:
        return DecayFit(np.nan, -np.inf, np.inf, *quality)
    half = half_width(X, residual, confidence, _rounding(log_y))
    allowed = float(residual @ residual) + half**2 * float(np.sum(last_alone(X) ** 2))
    inside = np.append(SEARCH[on_grid <= allowed], a)

    def cross(outside: float, inside: float) -> float:
        bracket = (outside, inside)
        return optimize.root_scalar(lambda a: _squares(t, log_y, a) - allowed, bracket=bracket).root

    low, high = 0.0, np.inf
    if inside.min() > SEARCH[0]:
        low = cross(SEARCH[inside.min() > SEARCH][-1], inside.min())
    if inside.max() < SEARCH[-1]:
        high = cross(SEARCH[inside.max() < SEARCH][0], inside.max())
    return DecayFit(a, low, high, *quality, at_end)


def pool_seeds(fits: list[DecayFit], confidence: float) -> tuple[float, Interval]:
    """The exponent and its interval; of several, their mean and Student's interval over them."""
    if len(fits) == 1:
        return fits[0].exponent, (fits[0].low, fits[0].high)
    exponents = np.array([fit.exponent for fit in fits])
    if np.isnan(exponents).any():
        return np.nan, (-np.inf, np.inf)
    mean = float(exponents.mean())
    half = float(find_half_width(exponents.std(ddof=1), len(fits), confidence))
    half += 4 * float(np.finfo(float).eps) * abs(mean)
    # An end of the search is a bound and no exponent: that side stays open.
    ends = {fit.exponent for fit in fits if fit.at_search_end}
    low = 0.0 if SEARCH[0] in ends else mean - half
    high = np.inf if SEARCH[-1] in ends else mean + half
    return mean, (low, high)


def solve_line(x: Array, log_y: Array, a: float) -> tuple[float, float]:
    """0 and log C of ``log y = log C - a x`` for a given a."""
    return 0.0, float(np.mean(log_y + a * x))


def solve_exponential(log_k: Array, log_y: Array, a: float) -> tuple[float, float]:
    """b and log C of ``log y = b - C k^a`` for a given a; log C is nan where C is not positive."""
    x = _bend(log_k - log_k[-1], a)
    slope, _ = _regress(x, log_y)
    offset = float(np.mean(log_y) + slope * (np.mean(x) + 1 / a))
    log_C = np.log(slope / a) - a * log_k[-1] if slope > 0 else np.nan
    return offset, float(log_C)


def _regress(x: Array, log_y: Array) -> tuple[float, Array]:
    """Fall of log y with x, and what the line leaves."""
    x, y = x - x.mean(), log_y - log_y.mean()
    a = -float(x @ y) / float(x @ x)
    return a, y + a * x


def _bend(t: Array, a: float) -> Array:
    return np.expm1(a * t) / a


def _squares(t: Array, log_y: Array, a: float) -> float:
    residual = _regress(_bend(t, a), log_y)[1]
    return float(residual @ residual)


def _descend(t: Array, log_y: Array, a: float) -> tuple[float, Array, Array]:
    """Gauss-Newton steps in a, which may not leave the search; also X and the residual there."""
    X, residual = _linearise(t, log_y, a)
    for _ in range(MAX_STEPS):
        z = last_alone(X)
        step = float(z @ residual) / max(float(z @ z), 1e-300)
        squares = float(residual @ residual)
        trials = np.clip(a + step * 0.5 ** np.arange(30), SEARCH[0], SEARCH[-1])
        better = next((a for a in trials if _squares(t, log_y, a) < squares), None)
        if better is None:
            break
        a = float(better)
        X, residual = _linearise(t, log_y, a)
    return a, X, residual


def _linearise(t: Array, log_y: Array, a: float) -> tuple[Array, Array]:
    """How log y changes with its mean, its fall and a, and what the law leaves."""
    x = _bend(t, a)
    fall, residual = _regress(x, log_y)
    change = -fall * (t * np.exp(a * t) - x) / a
    return np.stack([np.ones_like(t), x, change], axis=1), residual


def _quality(residual: Array, log_y: Array) -> tuple[float, float]:
    """Share of the variance that is explained, 0 of values that do not vary; largest residual."""
    spread = log_y - log_y.mean()
    total = float(spread @ spread)
    explained = 1 - float(residual @ residual) / total if total > 0 else 0.0
    return explained, float(np.abs(residual).max())


def _rounding(log_y: Array) -> float:
    return 4 * float(np.finfo(float).eps * max(np.abs(log_y).max(), 1.0))


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
