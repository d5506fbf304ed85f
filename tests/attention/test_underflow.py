"""Derivatives as mantissa and log-scale, against high precision where floating point underflows."""

import math

import mpmath
import numpy as np
import pytest
import torch

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.logits import find_log_loss_gap, find_logit_gradient
from mirrormargin.attention.losses import LOSSES

GAPS = [1.0, 36.0, 700.0, 1e4, 1e6]
TORCH_LOSSES = {
    "logistic": lambda m: torch.nn.functional.softplus(-m),
    "exponential": lambda m: torch.exp(-m),
    "correlation": lambda m: -m,
}
# Slope at m, and loss(m - drop) - loss(m).
EXACT_LOSSES = {
    "logistic": (
        lambda m: -1 / (1 + mpmath.exp(m)),
        lambda m, drop: mpmath.log1p(mpmath.expm1(drop) / (1 + mpmath.exp(m))),
    ),
    "exponential": (
        lambda m: -mpmath.exp(-m),
        lambda m, drop: mpmath.exp(-m) * mpmath.expm1(drop),
    ),
    "correlation": (lambda m: mpmath.mpf(-1), lambda m, drop: drop),
}


def with_loss(problem, loss, head=1.0):
    return AttentionProblem(
        problem.tokens, problem.queries, problem.labels, head * problem.head, loss
    )


def problem_at_gap(seed, gap, loss="logistic", head=1.0):
    """A random problem, and a random W under which the smallest logit gap is the given one."""
    problem = with_loss(synthetic.unit_sphere(seed, 3, 4, 5), loss, head)
    W = np.random.default_rng(seed).normal(size=(5, 5))
    two = np.sort(problem.logits(W), axis=1)[:, -2:]
    return problem, W * (gap / (two[:, 1] - two[:, 0]).min())


def exact(problem, W):
    """log of the gap, and the gradient divided by its largest entry with the log of that.

    mpmath's exponents have no bounds, so that 80 digits see exp(-10^6); every difference of nearly
    equal numbers is written as a sum of small ones: gamma_t - m = sum_r s_r (gamma_t - gamma_r).
    """
    slope, rise = EXACT_LOSSES[problem.loss_name]
    n, T, d = problem.tokens.shape
    with mpmath.workdps(80):
        matrix = mpmath.matrix(W.tolist())
        gap, gradient = mpmath.mpf(0), mpmath.zeros(d, d)
        for i in range(n):
            X = mpmath.matrix(problem.tokens[i].tolist())
            z = mpmath.matrix(problem.queries[i].tolist())
            # The scores as floating point has them: they are data, here as in the library.
            gamma = [mpmath.mpf(float(score)) for score in problem.scores[i]]
            weights = [mpmath.exp(logit) for logit in X * matrix * z]
            s = [w / mpmath.fsum(weights) for w in weights]
            excess = [mpmath.fsum(s[r] * (g - gamma[r]) for r in range(T)) for g in gamma]
            best = max(range(T), key=lambda t: gamma[t])
            gap += rise(gamma[best], excess[best])
            c = mpmath.matrix([s[t] * excess[t] for t in range(T)])
            gradient += slope(gamma[best] - excess[best]) * X.T * c * z.T
        largest = max(abs(entry) for entry in gradient)
        direction = np.array((gradient / largest).tolist(), dtype=float)
        log_gap = float(mpmath.log(gap / n)) if gap else -math.inf
        return log_gap, direction, float(mpmath.log(largest / n))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("seed", [1, 2])
def test_direction_is_right_at_every_logit_gap(seed, gap, loss):
    problem, W = problem_at_gap(seed, gap, loss)
    _, direction, log_size = exact(problem, W)
    check_direction(problem, W, direction, log_size)


def check_direction(problem, W, direction, log_size):
    mantissa, log_scale = problem.scaled_gradient(W)
    cosine = (mantissa * direction).sum() / np.linalg.norm(mantissa) / np.linalg.norm(direction)
    assert abs(1 - cosine) < 1e-12
    size = log_scale + math.log(abs(mantissa).max())
    # A logit of 10^6 is known to 10^-10, and so is the logarithm of the gradient.
    assert size == pytest.approx(log_size, rel=1e-14, abs=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", GAPS)
def test_log_loss_gap_at_every_logit_gap(gap, loss):
    problem, W = problem_at_gap(1, gap, loss)
    best = problem.optimal_tokens
    # A W that selects the optimal tokens: only there the gap to the floor vanishes.
    chosen = np.take_along_axis(problem.tokens, best[:, None, None], axis=1)[:, 0]
    others = problem.tokens.mean(axis=1)
    W = np.linalg.lstsq(problem.queries, chosen - others, rcond=None)[0].T
    two = np.sort(problem.logits(W), axis=1)
    W = W * gap / (two[:, -1] - two[:, -2]).min()
    log_gap, _, _ = exact(problem, W)
    assert problem.log_loss_gap(W) == pytest.approx(log_gap, rel=1e-13, abs=1e-9)
    if gap <= 100:
        assert math.exp(log_gap) == pytest.approx(problem.loss_gap(W), rel=1e-9)


def test_huge_scores_do_not_underflow_the_slope():
    problem, W = problem_at_gap(2, 5.0, "exponential", head=1e4)
    _, direction, log_size = exact(problem, W)
    assert abs(log_size) > 800
    check_direction(problem, W, direction, log_size)


def test_equal_scores_of_leader_and_runner_up_do_not_set_the_scale():
    # Token 1 has the leader's score; it gets weight only through token 2, 2,000 logits below.
    problem = AttentionProblem([[[2.0, 1.0], [1.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0]], [1], [0, 1.0])
    W = np.array([[1000.0, 0.0], [0.0, 0.0]])
    mantissa, log_scale = problem.scaled_gradient(W)
    _, direction, log_size = exact(problem, W)
    np.testing.assert_allclose(mantissa / abs(mantissa).max(), direction, rtol=1e-12)
    assert log_scale + math.log(abs(mantissa).max()) == pytest.approx(log_size, rel=1e-12)


def test_equal_scores_everywhere_have_gradient_zero():
    problem = AttentionProblem([[[1.0, 1.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], [0.0, 1.0])
    mantissa, log_scale = problem.scaled_gradient(np.eye(2))
    assert not mantissa.any()
    assert log_scale == 0
    assert problem.log_loss_gap(np.eye(2)) == -math.inf


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_and_curvature_agree_with_autograd(loss):
    problem, W = problem_at_gap(4, 0.3, loss)
    n, T, _ = problem.tokens.shape
    scores = torch.tensor(problem.scores)

    def total(logits):
        return TORCH_LOSSES[loss]((torch.softmax(logits, dim=1) * scores).sum(dim=1)).mean()

    logits = torch.tensor(problem.logits(W), requires_grad=True)
    total(logits).backward()
    gradient = find_logit_gradient(problem.logits(W), problem.scores, LOSSES[loss])
    scale = math.exp(gradient.log_scale)
    np.testing.assert_allclose(gradient.mantissa * scale, logits.grad.numpy(), atol=1e-15)
    hessian = torch.autograd.functional.hessian(total, logits.detach()).numpy()
    blocks = np.stack([hessian[i, :, i, :] for i in range(n)])
    np.testing.assert_allclose(gradient.curvature() * scale, blocks, atol=1e-15)
    matrix = torch.tensor(W, requires_grad=True)
    X, z = torch.tensor(problem.tokens), torch.tensor(problem.queries)
    total(torch.einsum("ntd,de,ne->nt", X, matrix, z)).backward()
    np.testing.assert_allclose(problem.gradient(W), matrix.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_of_logits_is_each_of_them(loss):
    problem, _ = problem_at_gap(5, 1.0, loss)
    rng = np.random.default_rng(0)
    logits = 10.0 ** rng.integers(-1, 5, size=(2, 3, 1, 1)) * rng.normal(size=(2, 3, 3, 4))
    together = find_logit_gradient(logits, problem.scores, LOSSES[loss])
    gaps = find_log_loss_gap(logits, problem.scores, LOSSES[loss])
    for place in np.ndindex(2, 3):
        one = find_logit_gradient(logits[place], problem.scores, LOSSES[loss])
        np.testing.assert_array_equal(together.mantissa[place], one.mantissa)
        assert together.log_scale[place] == one.log_scale
        assert gaps[place] == find_log_loss_gap(logits[place], problem.scores, LOSSES[loss])
