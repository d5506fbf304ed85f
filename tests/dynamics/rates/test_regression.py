"""half_width: intervals of slopes whose residuals follow each other."""

import numpy as np
import pytest
from scipy import optimize, stats

from mirrormargin.dynamics.rates import fit_rate
from mirrormargin.dynamics.rates.regression import half_width


def correlated(rho, size, rng):
    """An AR(1) series of variance one."""
    noise = rng.normal(size=size) * np.sqrt(1 - rho**2)
    series = [noise[0] / np.sqrt(1 - rho**2)]
    for step in noise[1:]:
        series.append(rho * series[-1] + step)
    return np.array(series)


def coverage(form, log_k, log_y, sigma, draw, trials, truth):
    hits = 0
    for _ in range(trials):
        fit = fit_rate(form, log_steps=log_k, log_values=log_y + sigma * draw())
        hits += fit.interval[0] <= truth <= fit.interval[1]
    return hits / trials


@pytest.mark.parametrize(
    ("form", "truth", "rho"),
    [
        ("log", 2.0, 0.0),
        ("power", 0.5, 0.5),
        ("exp", 1 / 3, 0.9),
        pytest.param("log", 2.0, 0.5, marks=pytest.mark.slow),
        pytest.param("log", 2.0, 0.9, marks=pytest.mark.slow),
        pytest.param("power", 0.5, 0.0, marks=pytest.mark.slow),
        pytest.param("power", 0.5, 0.9, marks=pytest.mark.slow),
        pytest.param("exp", 1 / 3, 0.0, marks=pytest.mark.slow),
        pytest.param("exp", 1 / 3, 0.5, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_the_true_exponent(form, truth, rho):
    rng = np.random.default_rng(11)
    log_k = np.linspace(2.0, 12.0, 40)
    laws = {"log": -2 * np.log(log_k), "power": -0.5 * log_k, "exp": 1 - np.exp(log_k / 3)}

    def draw():
        return correlated(rho, log_k.size, rng)

    share = coverage(form, log_k, laws[form], 0.1, draw, 150, truth)
    assert 0.88 <= share <= 0.99


def test_noise_does_not_hide_a_slow_drift():
    # Without the means of blocks, 0.6 of the intervals cover.
    rng = np.random.default_rng(3)
    log_k = np.linspace(2.0, 12.0, 150)

    def draw():
        return correlated(0.95, log_k.size, rng) + rng.normal(size=log_k.size)

    assert coverage("power", log_k, -log_k, 0.1, draw, 100, 1.0) >= 0.85


def test_noise_that_grows_along_the_trajectory_is_covered():
    # Without the robust variance, 0.7 of the intervals cover.
    rng = np.random.default_rng(4)
    log_k = np.linspace(2.0, 9.0, 28)
    depth = 1000 * np.exp(log_k - 9)

    def draw():
        return (1 + depth) * rng.normal(size=log_k.size)

    assert coverage("exp", log_k, -depth, 0.03, draw, 150, 1.0) >= 0.85


def dense_half_width(X, e, confidence):
    """The same from the n x n covariance and scipy's likelihood of residual contrasts."""
    n, m = X.shape
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    contrasts = np.linalg.svd(X)[0][:, m:].T

    def covariance(rho):
        return rho**lags / (1 - rho**2)

    def cost(rho):
        S = contrasts @ covariance(rho) @ contrasts.T
        squares = (contrasts @ e) @ np.linalg.solve(S, contrasts @ e)
        return 0.5 * (n - m) * np.log(squares) + 0.5 * np.linalg.slogdet(S)[1]

    rho = optimize.minimize_scalar(
        cost, bounds=(0, 1 - 0.1 / n), method="bounded", options={"xatol": 1e-9}
    ).x
    S = contrasts @ covariance(rho) @ contrasts.T
    variance = (contrasts @ e) @ np.linalg.solve(S, contrasts @ e) / (n - m)
    pseudo = np.linalg.pinv(X)[-1]
    spread = np.sqrt(variance * (pseudo @ covariance(rho) @ pseudo))
    return stats.t.ppf(0.5 + confidence / 2, max(n * (1 - rho) / (1 + rho) - m, 2)) * spread


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("columns", [2, 3])
def test_the_width_is_that_of_dense_matrices(columns, seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, 25)
    X = np.stack([x**i for i in range(columns)], axis=1)
    y = correlated(0.6, x.size, rng)
    e = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    leverage = np.diag(X @ np.linalg.pinv(X))
    pseudo = np.linalg.pinv(X)[-1]
    robust = np.sum((pseudo * e / (1 - leverage)) ** 2)
    plain = (pseudo @ pseudo) * (e @ e) / (x.size - columns)
    expected = dense_half_width(X, e, 0.9) * np.sqrt(max(robust / plain, 1))
    np.testing.assert_allclose(half_width(X, e, 0.9), expected, rtol=1e-4)


def test_residuals_of_any_size_scale_the_width():
    rng = np.random.default_rng(0)
    X = np.stack([np.ones(20), np.arange(20.0)], axis=1)
    e = rng.normal(size=20)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(half_width(X, scale * e, 0.95), scale * half_width(X, e, 0.95))


def test_no_residual_leaves_what_rounding_hides():
    X = np.stack([np.ones(20), np.arange(20.0)], axis=1)
    assert half_width(X, np.zeros(20), 0.95) == 0
    assert 0 < half_width(X, np.zeros(20), 0.95, rounding=1e-15) < 1e-15
