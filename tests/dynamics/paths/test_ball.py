"""Minimisers on balls whose answer is known otherwise, and the linear algebra behind them."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize

from mirrormargin.attention.losses import LOSSES
from mirrormargin.dynamics.paths.ball import Ball, TangentSystem, keep_positive
from mirrormargin.dynamics.paths.block_losses import LossByMargins
from mirrormargin.dynamics.paths.joint_landscape import AndersonMixing

LOGISTIC = LOSSES["logistic"]


def draw_features(seed, n=8, d=3):
    return np.random.default_rng(seed).standard_normal((n, d))


def mean_loss(x, w):
    return np.logaddexp(0.0, -x @ w).mean()


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_minimiser_inside_the_ball_is_the_free_one(seed, p):
    x = draw_features(seed)
    free = minimize(lambda w: mean_loss(x, w), np.zeros(3), tol=1e-12).x
    ball = Ball(LossByMargins(LOGISTIC), x[:, None, :], p, 3.0 + 2 * np.linalg.norm(free, p))
    for start in np.eye(3):
        point = ball.minimize(100 * start, tol=1e-12, max_iter=100)
        assert point.is_interior
        assert point.residual <= 1e-12
        assert ball.find_curvature(point) == 1.0
        np.testing.assert_allclose(ball.radius * point.x, free, atol=1e-4)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 10.0])
def test_minimiser_of_a_convex_loss_does_not_depend_on_the_start(p):
    x = draw_features(5)
    ball = Ball(LossByMargins(LOGISTIC), x[:, None, :], p, 0.1)
    rng = np.random.default_rng(0)
    points = [ball.minimize(rng.standard_normal(3), 1e-13, 100) for _ in range(5)]
    for point in points:
        assert not point.is_interior
        assert point.residual <= 1e-13
        np.testing.assert_allclose(point.x, points[0].x, atol=1e-10)


@pytest.mark.parametrize("shape", [(2, 3, 20), (4, 3, 5)], ids=["wide", "tall"])
def test_steps_solve_their_system(shape):
    groups, rows, D = shape
    rng = np.random.default_rng(0)
    A, N, j, r = (rng.standard_normal(s) for s in ((groups * rows, D), D, D, D))
    N = np.exp(N)
    B = rng.standard_normal((groups, rows, rows))
    for blocks, is_positive in (
        (B @ B.swapaxes(1, 2), True),
        (np.tile(-100 * np.eye(rows), (groups, 1, 1)), False),
    ):
        system = TangentSystem(A, N, j)
        full = np.diag(N) + A.T @ block_diag(*blocks) @ A
        basis = np.linalg.svd(j[None, :])[2][1:].T
        d = system.solve(r, blocks)
        if is_positive:
            np.testing.assert_allclose(basis.T @ (full @ d - r), 0.0, atol=1e-10)
            assert abs(j @ d) < 1e-12
        else:
            assert d is None
        own = basis.T @ np.diag(N) @ basis
        root = np.linalg.inv(np.linalg.cholesky(own))
        least = np.linalg.eigvalsh(root @ basis.T @ full @ basis @ root.T)[0]
        assert system.find_least_eigenvalue(blocks) == pytest.approx(min(1.0, least), rel=1e-9)


def test_negative_parts_are_dropped():
    rng = np.random.default_rng(0)
    B = rng.standard_normal((5, 4, 4))
    B = B + B.swapaxes(1, 2)
    kept = keep_positive(B)
    assert np.linalg.eigvalsh(kept).min() > -1e-12
    assert np.linalg.eigvalsh(kept - B).min() > -1e-12
    np.testing.assert_allclose(keep_positive(kept), kept, atol=1e-12)


def test_mixing_solves_a_linear_equation_in_as_many_steps_as_unknowns():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((4, 4))
    M *= 0.99 / np.abs(np.linalg.eigvals(M)).max()
    b = rng.standard_normal(4)
    solution, mixing, x = np.linalg.solve(np.eye(4) - M, b), AndersonMixing(), np.zeros(4)
    for _ in range(6):
        x = mixing.mix(x, M @ x + b)
    np.testing.assert_allclose(x, solution, rtol=1e-8)
