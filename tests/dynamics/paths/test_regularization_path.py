"""regularization_path: its theorem, its certificates, and SLSQP as a second opinion."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.logits import find_log_loss_gap, find_logit_gradient
from mirrormargin.dynamics import regularization_path
from mirrormargin.dynamics.paths.regularization_path import PathStatus
from mirrormargin.errors import NotSeparableError, ProblemError, SolverError
from mirrormargin.geometry import LpPotential, directional_divergence

LOG_TINY = np.log(1e-300)


def assert_is_path(path):
    """What holds for every path."""
    assert path.status is PathStatus.CERTIFIED
    assert path.is_certified.all()
    assert path.residual.max() < 1e-11
    assert (np.diff(path.log_loss_gap) < 0).all()
    norms = [float(LpPotential(path.p).norm(W)) for W in path.W]
    np.testing.assert_allclose(norms, path.radii, rtol=1e-12)
    assert (path.margin <= path.target.margin * (1 + 1e-7)).all()
    again = [path.problem.log_loss_gap(W) for W in path.W]
    np.testing.assert_allclose(path.log_loss_gap, again, rtol=1e-12)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(1, 6))
def test_path_ends_in_the_max_margin_direction(seed, p):
    problem = synthetic.unit_sphere(seed)
    path = regularization_path(problem, p, num_radii=15)
    assert_is_path(path)
    assert path.log_loss_gap[-1] <= LOG_TINY
    assert path.divergence[-1] < 1e-4
    assert path.divergence[-1] == directional_divergence(path.target.W, path.W[-1], p)
    assert path.margin[-1] > 0.99 * path.target.margin
    np.testing.assert_array_equal(path.selection[-1], problem.optimal_tokens)


@pytest.mark.parametrize("p", [1.05, 1.1, 1.3, 5.0, 10.0, 20.0])
def test_every_exponent_is_certified(p):
    path = regularization_path(synthetic.unit_sphere(1), p, num_radii=12)
    assert_is_path(path)
    assert path.divergence[-1] < 1e-4


@pytest.mark.parametrize(
    ("problem", "p"),
    [
        (synthetic.equal_scores(0), 2.0),
        (synthetic.planar_single(0.0), 1.1),
        (synthetic.planar_multi(0), 3.0),
        (synthetic.unit_sphere(1, loss="exponential"), 1.5),
        (synthetic.unit_sphere(1, loss="correlation"), 3.0),
        (synthetic.unit_sphere(1, 20, 5, 10), 2.0),  # as many rows as unknowns
    ],
    ids=["equal", "single", "multi", "exponential", "correlation", "square"],
)
def test_other_problems_and_losses(problem, p):
    path = regularization_path(problem, p, num_radii=12)
    assert_is_path(path)
    assert path.divergence[-1] < 1e-4


def test_gap_may_be_far_below_the_smallest_float():
    problem = synthetic.unit_sphere(1)
    path = regularization_path(problem, 2.0, radii=np.geomspace(10.0, 2.66e4, 20))
    assert path.log_loss_gap[-1] < -9000
    assert path.residual.max() < 1e-10
    assert path.divergence[-1] < 1e-7


def test_scores_may_be_so_large_that_the_floor_underflows():
    small = synthetic.unit_sphere(1)
    problem = AttentionProblem(small.tokens, small.queries, small.labels, 3000.0 * small.head)
    path = regularization_path(problem, 2.0, radii=np.geomspace(1.0, 100.0, 5))
    assert path.is_certified.all()
    assert (np.diff(path.log_loss_gap) < 0).all()


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 10.0])
def test_small_balls_give_the_steepest_descent(p):
    problem = synthetic.unit_sphere(2)
    zero = np.zeros((problem.dim, problem.dim))
    steepest = LpPotential(p).to_primal(-problem.gradient(zero))
    path = regularization_path(problem, p, radii=[1e-9, 1e-6])
    x, y = path.W[0] / path.radii[0], steepest / LpPotential(p).norm(steepest)
    np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize("p", [1.1, 1.5, 3.0, 10.0])
def test_one_constraint_has_one_direction_at_all_radii(p):
    # The gradient is always a multiple of the one row, so psi'(W) is too.
    problem = AttentionProblem([[[1.0, -2.0], [0.5, 1.0]]], [[1.0, -0.3]], [1], [1.0, 0.0])
    direction = LpPotential(p).to_primal(np.outer([0.5, -3.0], [1.0, -0.3]))
    path = regularization_path(problem, p, num_radii=10)
    assert_is_path(path)
    assert max(directional_divergence(direction, W, p) for W in path.W) < 1e-14
    np.testing.assert_allclose(path.margin, path.target.margin, rtol=1e-7)


@pytest.mark.parametrize("p", [1.1, 2.0, 4.0])
def test_residual_is_the_one_of_the_public_gradient(p):
    path = regularization_path(synthetic.unit_sphere(3), p, num_radii=6)
    potential = LpPotential(p)
    for j, W in enumerate(path.W):
        G, _ = path.problem.scaled_gradient(W)
        G = G / potential.dual_norm(G)
        misfit = potential.dual_norm(potential.to_dual(W / path.radii[j]) + G)
        assert misfit < 1e-11
        assert 1 + (G * W).sum() / path.radii[j] < 1e-13  # Hoelder's inequality is an equality
    np.testing.assert_allclose(path.measure_residuals(), path.residual, atol=1e-12)
    moved = dataclasses.replace(path, W=path.W + 1e-3 * path.radii[:, None, None])
    assert moved.measure_residuals().min() > 1e-6


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slsqp_finds_no_lower_loss(seed, p):
    problem = synthetic.unit_sphere(seed, 2, 3, 2)
    size = 1 / regularization_path(problem, p, num_radii=1).target.margin
    path = regularization_path(problem, p, radii=[0.5 * size, 3 * size])
    rng = np.random.default_rng(0)
    for R, log_gap in zip(path.radii, path.log_loss_gap, strict=True):
        for _ in range(6):
            w = rng.standard_normal(4)
            w *= R * rng.uniform() / np.linalg.norm(w, p)
            w = _minimize_by_slsqp(problem, p, R, w)
            w *= min(1.0, R / np.linalg.norm(w, p))
            assert problem.log_loss_gap(w.reshape(2, 2)) > log_gap - 1e-8


def _minimize_by_slsqp(problem, p, R, start):
    A = np.einsum("itk,il->itkl", problem.tokens, problem.queries).reshape(*problem.scores.shape, 4)
    scores, loss = problem.scores, problem.margin_loss

    def value(w):
        return float(find_log_loss_gap(A @ w, scores, loss))

    def gradient(w):
        g = find_logit_gradient(A @ w, scores, loss)
        return np.einsum("it,itk->k", g.mantissa, A) * np.exp(g.log_scale - value(w))

    ball = {
        "type": "ineq",
        "fun": lambda w: 1 - (np.abs(w / R) ** p).sum(),
        "jac": lambda w: -p / R * np.sign(w) * np.abs(w / R) ** (p - 1),
    }
    return minimize(
        value, start, jac=gradient, method="SLSQP", constraints=[ball], options={"ftol": 1e-12}
    ).x


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_curvature_is_that_of_the_lagrangian(p):
    problem = synthetic.unit_sphere(4, 3, 3, 2)
    path = regularization_path(problem, p, num_radii=30)
    assert path.curvature.min() < 0.95  # not convex everywhere
    for j in np.argsort(path.curvature)[:3]:
        w = path.W[j].reshape(-1)
        psi = np.sign(w) * np.abs(w) ** (p - 1)
        G = problem.gradient(path.W[j]).reshape(-1)
        nu = -(G @ w) / (psi @ w)
        hessian = _differentiate(lambda w: problem.gradient(w.reshape(2, 2)).reshape(-1), w)
        own = np.diag(nu * (p - 1) * np.abs(w) ** (p - 2))
        tangent = np.linalg.svd(psi[None, :])[2][1:].T
        root = np.linalg.inv(np.linalg.cholesky(tangent.T @ own @ tangent))
        whole = root @ tangent.T @ (hessian + own) @ tangent @ root.T
        assert path.curvature[j] == pytest.approx(np.linalg.eigvalsh(whole)[0], rel=1e-4)


def _differentiate(function, w):
    h = 1e-5 * np.abs(w).max()
    columns = [(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))]
    return np.array(columns)


def test_seed_decides_the_bits():
    problem = synthetic.unit_sphere(1)
    one, other = (regularization_path(problem, 1.5, num_radii=5, seed=7) for _ in range(2))
    assert (one.W == other.W).all()


def test_a_large_ball_alone_is_enough():
    problem = synthetic.unit_sphere(2)
    whole = regularization_path(problem, 2.0, num_radii=10)
    alone = regularization_path(problem, 2.0, radii=whole.radii[-1:])
    assert alone.log_loss_gap[0] == pytest.approx(whole.log_loss_gap[-1], rel=1e-12)


def test_progress_is_reported():
    reports = []
    regularization_path(
        synthetic.unit_sphere(1), 2.0, num_radii=3, progress=lambda *report: reports.append(report)
    )
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_a_path_that_is_not_certified_says_so():
    problem = synthetic.unit_sphere(1)
    path = regularization_path(problem, 2.0, num_radii=3, max_iter=1, raise_on_failure=False)
    assert path.status == "not certified"
    with pytest.raises(SolverError, match="points are not certified") as caught:
        path.check()
    assert caught.value.solution is path
    with pytest.raises(SolverError, match="raise max_iter"):
        regularization_path(problem, 2.0, num_radii=3, max_iter=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 1.0}, "p is 1.0: give a number above 1"),
        ({"p": "two"}, "p is 'two'"),
        ({"radii": []}, "at least one radius"),
        ({"radii": [[1.0, 2.0]]}, "at least one radius"),
        ({"radii": [0.0, 1.0]}, "give positive radii"),
        ({"radii": [1.0, 3.0, 2.0]}, r"radii\[2\] is 2 after 3"),
        ({"radii": [1.0, np.inf]}, r"radii.* is inf: give finite numbers"),
        ({"radii": ["a"]}, "real numbers"),
        ({"num_radii": 0}, "num_radii is 0"),
        ({"num_starts": -1}, "num_starts is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"tol": 0.0}, "tol is 0.0"),
        ({"max_iter": 0}, "max_iter is 0"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ProblemError, match=message):
        regularization_path(synthetic.unit_sphere(1), **options)


def test_shared_highest_scores_are_refused():
    problem = AttentionProblem([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], [1.0, 1.0])
    with pytest.raises(ProblemError, match="two tokens share the highest score"):
        regularization_path(problem)


def test_optimal_tokens_that_nothing_separates_are_refused():
    tokens = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    problem = AttentionProblem(tokens, [[1.0, 0.0]] * 2, [1, -1], [1.0, -1.0])
    with pytest.raises(NotSeparableError, match="choose another head") as caught:
        regularization_path(problem)
    assert caught.value.certificate is not None
