"""joint_regularization_path: its theorem, its certificates, and SLSQP as a second opinion."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.dynamics import joint_regularization_path
from mirrormargin.errors import NotSeparableError, ProblemError, SolverError
from mirrormargin.geometry import LpPotential, directional_divergence
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm

TOY = synthetic.joint_toy()
PLANAR = synthetic.planar_joint()
RELAXED = synthetic.planar_joint(third=(0.5, 1.5))


def find_loss(problem, v, W):
    """L(v, W) in torch, for autograd."""
    X, z, y = (torch.tensor(each) for each in (problem.tokens, problem.queries, problem.labels))
    s = torch.softmax((X @ (z @ W.T)[:, :, None])[:, :, 0], dim=1)
    return torch.nn.functional.softplus(-y * ((s[:, None, :] @ X)[:, 0] @ v)).mean()


def assert_is_path(path):
    """What holds for every path."""
    assert path.status == "certified"
    assert max(path.head_residual.max(), path.residual.max()) < 1e-10
    assert (np.diff(path.log_loss) < 0).all()
    potential = LpPotential(path.p)
    np.testing.assert_allclose([potential.norm(v) for v in path.v], path.head_radii, rtol=1e-12)
    np.testing.assert_allclose([potential.norm(W) for W in path.W], path.radii, rtol=1e-12)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("problem", [TOY, PLANAR, RELAXED], ids=["toy", "planar", "relaxed"])
def test_path_ends_in_the_max_margin_directions(problem, p):
    path = joint_regularization_path(problem, p, num_radii=15)
    assert_is_path(path)
    assert path.log_loss[-1] <= np.log(1e-300)
    assert path.head_divergence[-1] < 1e-4
    assert path.divergence[-1] < 1e-4
    assert path.head_divergence[-1] == directional_divergence(path.decoder.v, path.v[-1], p)
    assert path.divergence[-1] == directional_divergence(path.target.W, path.W[-1], p)
    np.testing.assert_array_equal(path.selection[-1], path.target.selection)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_selection_has_the_largest_decoder_margin(p):
    margins = {}
    for selection in product(range(3), repeat=2):
        features = TOY.tokens[[0, 1], list(selection)]
        solution = solve_decoder_svm(features, TOY.labels, p, raise_on_failure=False)
        margins[selection] = solution.margin
    path = joint_regularization_path(TOY, p, num_radii=10)
    assert tuple(path.selection[-1].tolist()) == max(margins, key=margins.__getitem__)


@pytest.mark.parametrize(
    ("problem", "prompt"), [(PLANAR, (4 / 3, 1 / 3)), (RELAXED, (1.0, 0.0))], ids=["all", "relaxed"]
)
def test_prompts_in_the_plane_are_those_of_the_closed_forms(problem, prompt):
    path = joint_regularization_path(problem, 2.0, num_radii=20)
    np.testing.assert_allclose(path.target.W, np.outer(prompt, [1.0, 0.0]), atol=1e-6)
    np.testing.assert_allclose(path.W[-1, :, 1], 0.0, atol=1e-12)  # queries are (1, 0)
    direction = path.W[-1, :, 0] / path.radii[-1]
    np.testing.assert_allclose(direction, prompt / np.linalg.norm(prompt), atol=3e-3)
    np.testing.assert_allclose(path.v[-1] / path.head_radii[-1], [0.0, 1.0], atol=3e-3)


def test_a_faster_growing_w_ends_with_a_lead_of_one_everywhere():
    r = np.geomspace(0.1, 60.0, 20)
    path = joint_regularization_path(RELAXED, 2.0, radii=20 * r, head_radii=r)
    assert_is_path(path)
    plain = solve_attention_svm(RELAXED.tokens, RELAXED.queries, [1, 1, 1], 2.0)
    assert directional_divergence(plain.W, path.W[-1], 2.0) < 1e-4
    assert path.divergence[-1] > 1e-2


@pytest.mark.parametrize("p", [1.1, 10.0])
def test_extreme_exponents(p):
    path = joint_regularization_path(TOY, p, num_radii=15)
    assert_is_path(path)
    assert max(path.head_divergence[-1], path.divergence[-1]) < 1e-4


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("problem", [TOY, RELAXED], ids=["toy", "relaxed"])
def test_slsqp_finds_no_lower_loss(problem, p):
    r, R = np.array([0.4, 1.5]), np.array([0.5, 2.0])
    path = joint_regularization_path(problem, p, radii=R, head_radii=r)
    rng = np.random.default_rng(0)

    def value_and_gradient(x):
        x = torch.tensor(x, requires_grad=True)
        loss = torch.log(find_loss(problem, x[:2], x[2:].reshape(2, 2)))
        loss.backward()
        assert x.grad is not None
        return loss.item(), x.grad.numpy()

    blocks = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
    for j in range(2):
        sizes = np.repeat([r[j], R[j]], [2, 4])
        balls = {
            "type": "ineq",
            "fun": lambda x, s=sizes: 1 - blocks @ np.abs(x / s) ** p,
            "jac": lambda x, s=sizes: -blocks * p / s * np.sign(x) * np.abs(x / s) ** (p - 1),
        }
        for _ in range(6):
            x = rng.standard_normal(6) * sizes / 3
            x = minimize(value_and_gradient, x, jac=True, method="SLSQP", constraints=[balls]).x
            norms = (blocks @ np.abs(x / sizes) ** p) ** (1 / p)
            x /= np.maximum(np.repeat(norms, [2, 4]), 1.0)
            assert value_and_gradient(x)[0] > path.log_loss[j] - 1e-8


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_residuals_are_those_of_autograd(p):
    r = np.geomspace(0.1, 3.0, 5)  # attention that autograd can still resolve
    path = joint_regularization_path(TOY, p, radii=r, head_radii=r)
    potential = LpPotential(p)
    for j in range(5):
        v, W = (torch.tensor(each[j], requires_grad=True) for each in (path.v, path.W))
        loss = find_loss(TOY, v, W)
        assert torch.log(loss).item() == pytest.approx(path.log_loss[j], rel=1e-12)
        loss.backward()
        for point in (v, W):
            assert point.grad is not None
            G = point.grad / potential.dual_norm(point.grad)
            x = point.detach() / r[j]
            assert potential.dual_norm(potential.to_dual(x) + G) < 1e-8
    np.testing.assert_allclose(path.measure_residuals()[:, 0], path.head_residual, atol=1e-12)
    np.testing.assert_allclose(path.measure_residuals()[:, 1], path.residual, atol=1e-12)


def test_small_balls_give_the_steepest_descents():
    path = joint_regularization_path(TOY, 1.5, radii=[1e-6], head_radii=[1e-6])
    potential = LpPotential(1.5)
    mean = (TOY.labels[:, None, None] * TOY.tokens).mean(axis=(0, 1))
    v = potential.to_primal(mean)
    np.testing.assert_allclose(path.v[0] / 1e-6, v / potential.norm(v), atol=1e-5)
    problem = AttentionProblem(TOY.tokens, TOY.queries, TOY.labels, path.v[0])
    W = potential.to_primal(-problem.gradient(np.zeros((2, 2))) * 1e6)
    np.testing.assert_allclose(path.W[0] / 1e-6, W / potential.norm(W), atol=1e-5)


def test_random_problem_with_sequences_that_do_not_support():
    problem = synthetic.unit_sphere(2)
    path = joint_regularization_path(problem, 2.0, num_radii=15)
    assert_is_path(path)
    assert not path.decoder.support.all()
    assert max(path.head_divergence[-1], path.divergence[-1]) < 1e-3
    np.testing.assert_array_equal(path.selection[-1], path.target.selection)


def test_exponential_loss():
    path = joint_regularization_path(synthetic.joint_toy(loss="exponential"), 2.0, num_radii=10)
    assert_is_path(path)
    assert max(path.head_divergence[-1], path.divergence[-1]) < 1e-4


def test_progress_and_repr():
    reports = []
    path = joint_regularization_path(
        PLANAR, 2.0, num_radii=3, progress=lambda *report: reports.append(report)
    )
    assert reports == [(1, 3), (2, 3), (3, 3)]
    assert repr(path).startswith("JointRegularizationPath(p=2, status='certified', num_radii=3")


def test_a_path_that_is_not_certified_says_so():
    path = joint_regularization_path(TOY, 2.0, num_radii=2, tol=1e-17, raise_on_failure=False)
    with pytest.raises(SolverError, match="points are not certified") as caught:
        path.check()
    assert caught.value.solution is path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0.5}, "p is 0.5: give a number above 1"),
        ({"radii": [1.0]}, "belong together"),
        ({"radii": [1.0, 2.0], "head_radii": [1.0]}, "2 entries and head_radii 1"),
        ({"radii": [2.0, 1.0], "head_radii": [1.0, 2.0]}, r"radii\[1\] is 1 after 2"),
        ({"radii": [1.0], "head_radii": [-1.0]}, "give positive radii"),
        ({"num_radii": 0}, "num_radii is 0"),
        ({"num_starts": 1.5}, "num_starts is 1.5"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ProblemError, match=message):
        joint_regularization_path(TOY, **options)


def test_losses_that_do_not_vanish_are_refused():
    with pytest.raises(ProblemError, match="choose one of logistic, exponential"):
        joint_regularization_path(synthetic.joint_toy(loss="correlation"))


def test_problems_that_nothing_separates_are_refused():
    tokens = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    problem = AttentionProblem(tokens, [[1.0, 0.0]] * 2, [1, -1], [1.0, 0.0])
    with pytest.raises(NotSeparableError, match="none of 4 selections"):
        joint_regularization_path(problem)
