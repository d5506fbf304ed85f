"""AttentionProblem: its mathematics, against autograd and high-precision arithmetic."""

import copy
import dataclasses
import math
import pickle

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormargin.attention import AttentionProblem, synthetic

SATURATION = 60.0


def random_problem(seed, n=4, T=5, d=3):
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1.0, 1.0], size=n)
    tokens, queries = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    return AttentionProblem(tokens, queries, labels, rng.normal(size=d)), rng.normal(size=(d, d))


def saturated_problem():
    """Both sequences attend to token 0 with logits 60 and more above the others."""
    tokens = [[[1.0, 0.0], [-0.5, 1.0], [-1.0, 0.25]], [[1.0, 0.5], [-0.25, 1.5], [-0.75, -1.0]]]
    problem = AttentionProblem(tokens, [[1.0, 0.5], [1.0, -0.25]], [1, 1], [1.0, -0.5])
    return problem, SATURATION * np.array([[1.0, 0.0], [0.0, 0.125]])


def torch_loss(problem, W):
    X, z, y, v = (
        torch.tensor(a) for a in (problem.tokens, problem.queries, problem.labels, problem.head)
    )
    s = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), dim=1)
    margins = y * torch.einsum("nt,ntd,d->n", s, X, v)
    return torch.nn.functional.softplus(-margins).mean()


def exact_gap_and_gradient(problem, W):
    """The definitions, word for word, in 120 digits."""
    with mpmath.workdps(120):
        n, T, d = problem.tokens.shape
        W, v = mpmath.matrix(W.tolist()), mpmath.matrix(problem.head.tolist())
        gap, gradient = mpmath.mpf(0), mpmath.zeros(d, d)
        for i in range(n):
            X = mpmath.matrix(problem.tokens[i].tolist())
            z = mpmath.matrix(problem.queries[i].tolist())
            gamma = float(problem.labels[i]) * (X * v)
            weights = [mpmath.exp(logit) for logit in X * W * z]
            s = [w / mpmath.fsum(weights) for w in weights]
            m = mpmath.fsum(a * b for a, b in zip(s, gamma, strict=True))
            gap += mpmath.log(1 + mpmath.exp(-m)) - mpmath.log(1 + mpmath.exp(-max(gamma)))
            c = mpmath.matrix([s[t] * (gamma[t] - m) for t in range(T)])
            gradient -= X.T * c * z.T / (1 + mpmath.exp(m))
        return float(gap / n), np.array((gradient / n).tolist(), dtype=float)


@pytest.mark.parametrize("seed", range(5))
def test_gradient_agrees_with_autograd(seed):
    problem, W = random_problem(seed)
    variable = torch.tensor(W, requires_grad=True)
    torch_loss(problem, variable).backward()
    np.testing.assert_allclose(problem.gradient(W), variable.grad.numpy(), rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 5), T=st.integers(2, 6), d=st.integers(1, 5))
def test_gradient_agrees_with_autograd_at_every_size(seed, n, T, d):
    problem, W = random_problem(seed, n, T, d)
    variable = torch.tensor(W, requires_grad=True)
    torch_loss(problem, variable).backward()
    np.testing.assert_allclose(problem.gradient(W), variable.grad.numpy(), rtol=0, atol=1e-12)


def test_loss_agrees_with_torch():
    problem, W = random_problem(7)
    assert problem.loss(W) == pytest.approx(torch_loss(problem, torch.tensor(W)).item(), abs=1e-15)


def test_gradient_keeps_its_digits_under_saturated_attention():
    problem, W = saturated_problem()
    _, exact = exact_gap_and_gradient(problem, W)
    assert np.abs(exact).max() < 1e-30
    np.testing.assert_allclose(problem.gradient(W), exact, rtol=1e-12, atol=0)


def test_loss_gap_keeps_its_digits_where_the_difference_is_zero():
    problem, W = saturated_problem()
    exact, _ = exact_gap_and_gradient(problem, W)
    assert problem.loss(W) - problem.loss_floor == 0.0
    assert problem.loss_gap(W) == pytest.approx(exact, rel=1e-12, abs=0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 3.0, 1e3])
def test_loss_gap_is_loss_minus_floor(size):
    problem, W = random_problem(3)
    stretched = AttentionProblem(
        size * problem.tokens, problem.queries, problem.labels, size * problem.head
    )
    assert stretched.loss_gap(W) == pytest.approx(
        stretched.loss(W) - stretched.loss_floor, rel=1e-9, abs=1e-15
    )


def test_loss_does_not_overflow_for_huge_scores():
    problem, W = random_problem(0)
    huge = AttentionProblem(problem.tokens, problem.queries, problem.labels, 1e6 * problem.head)
    assert math.isfinite(huge.loss(W))
    assert np.isfinite(huge.gradient(W)).all()


def test_zero_weights_attend_evenly():
    problem, W = random_problem(1)
    np.testing.assert_allclose(problem.attention(0 * W), 1 / problem.num_tokens, rtol=1e-15)
    np.testing.assert_allclose(problem.margins(0 * W), problem.scores.mean(axis=1), rtol=1e-12)


def test_attention_maps_sum_to_one_for_huge_weights():
    problem, W = random_problem(2)
    s = problem.attention(1e6 * W)
    np.testing.assert_allclose(s.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(s.argmax(axis=1), problem.selected_tokens(1e6 * W))


def test_scores_are_labelled_head_products():
    problem, _ = random_problem(4)
    i, t = 2, 3
    assert problem.scores[i, t] == pytest.approx(
        problem.labels[i] * (problem.tokens[i, t] @ problem.head)
    )
    np.testing.assert_array_equal(problem.optimal_tokens, problem.scores.argmax(axis=1))


def test_tied_scores_give_the_first_token():
    problem = AttentionProblem([[[1.0, 2.0], [3.0, 2.0]]], [[1.0, 0.0]], [1], [0.0, 1.0])
    assert problem.optimal_tokens.tolist() == [0]


def test_sizes_are_read_from_the_tokens():
    problem, _ = random_problem(0, n=4, T=5, d=3)
    assert (problem.num_sequences, problem.num_tokens, problem.dim) == (4, 5, 3)


def test_problem_is_frozen():
    problem, _ = random_problem(0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.head = np.ones(3)
    for array in (problem.tokens, problem.queries, problem.labels, problem.head, problem.scores):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_later_edits_of_the_input_do_not_reach_the_problem():
    head = np.ones(2)
    problem = AttentionProblem(np.ones((1, 2, 2)), np.ones((1, 2)), [1], head)
    head[:] = 7.0
    assert problem.head.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_copies_are_equal_and_read_only(copied):
    problem = synthetic.unit_sphere(2)
    twin = copied(problem)
    for name in ("tokens", "queries", "labels", "head"):
        np.testing.assert_array_equal(getattr(twin, name), getattr(problem, name))
        assert not getattr(twin, name).flags.writeable
