"""The compiled gradient, against the one of AttentionProblem and against autograd."""

import functools
import math

import numpy as np
import pytest
import torch
from compiled_once import compile_once

from mirrormargin.attention import AttentionProblem, compiled
from mirrormargin.attention.compiled import LOSS_CODES, allocate, pack, round_up
from mirrormargin.attention.logits import find_log_loss_gap, find_logit_gradient
from mirrormargin.attention.losses import LOSSES

GAPS = [0.1, 3.0, 40.0, 290.0, 310.0, 700.0, 800.0, 1e4, 1e6]
# The standard size, padding in T, in d, in both, one sequence, two tokens, one unknown, none.
SIZES = [(6, 8, 10), (4, 9, 8), (3, 4, 3), (5, 7, 13), (1, 5, 6), (4, 2, 5), (3, 3, 1), (2, 4, 4)]


def make_run(version):
    def run(Wt, v, data, memory, loss, Gt, G, gv):
        """Everything; without W the logits are those in the memory."""
        _ = version
        if len(v):
            compiled.find_scores(v, data)
        if len(Wt):
            compiled.push_forward(Wt, data, memory)
        log_scale = compiled.find_weights(data, memory, loss)
        compiled.pull_back(data, memory, Gt)
        compiled.pull_back_transposed(data, memory, G)
        gap = compiled.find_loss_gap(data, memory, loss, log_scale)
        return log_scale, gap, compiled.find_head_gradient(data, memory, loss, gv)

    return run


@functools.cache
def load():
    data = pack(AttentionProblem(np.ones((1, 2, 1)), [[1.0]], [1], [1.0]))
    G = np.zeros((1, 4))
    return compile_once(make_run, G, G[0], data, allocate(1, 2, 1), 0, G, G, G)


def run(*args):
    return load()(*args)


def find_weights(logits, scores, loss):
    """c, its log-scale and s, for logits and scores of any problem."""
    n, T = logits.shape
    data = pack(AttentionProblem(np.ones((n, T, 1)), np.ones((n, 1)), np.ones(n), [1.0]))
    memory = allocate(n, T, 1)
    for name in memory._fields:
        getattr(memory, name)[...] = 7  # what the last run left
    data.scores[:, :T] = scores
    memory.logits[:, :T] = logits
    none, G = np.zeros((0, 4)), np.zeros((1, 4))
    log_scale, *_ = run(none, np.zeros(0), data, memory, LOSS_CODES[loss], G, G, G)
    return memory.c[:, :T], log_scale, memory.s[:, :T]


def find_all(problem, W):
    """G, its log-scale, the scaled gap, the head's gradient and its log-scale."""
    n, T, d = problem.tokens.shape
    data, memory = pack(problem), allocate(n, T, d)
    for name in memory._fields:
        getattr(memory, name)[...] = 7
    Wt, Gt, G = (np.zeros((d, round_up(d))) for _ in range(3))
    gv = np.zeros((1, round_up(d)))
    Wt[:, :d] = W.T
    code = LOSS_CODES[problem.loss_name]
    log_scale, gap, head_scale = run(Wt, np.zeros(0), data, memory, code, Gt, G, gv)
    np.testing.assert_allclose(Gt[:, :d].T, G[:, :d], rtol=1e-12, atol=1e-14 * np.abs(G).max())
    assert not Gt[:, d:].any()
    assert not G[:, d:].any()
    return G[:, :d], log_scale, gap, gv[0, :d], head_scale


def random_logits(seed, n, T, gap):
    """Random ones under which the smallest lead of a row is the gap."""
    logits = np.random.default_rng(seed).normal(size=(n, T))
    two = np.sort(logits, axis=1)[:, -2:]
    return logits * (gap / (two[:, 1] - two[:, 0]).min())


def assert_same(found, found_scale, expected, expected_scale, rtol):
    """Two arrays with log-scales, relative to the largest entry."""
    size = np.abs(expected).max()
    assert size > 0
    # A log-scale of 10^6 is known to 10^-10.
    rtol = rtol + 4 * np.finfo(float).eps * abs(expected_scale)
    np.testing.assert_allclose(
        found * math.exp(found_scale - expected_scale), expected, rtol=0, atol=rtol * size
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("head", [1.0, 50.0, 1e4])
def test_weights_are_those_of_the_logits_at_every_gap(gap, loss, head):
    for seed, (n, T, _) in enumerate(SIZES):
        logits = random_logits(seed, n, T, gap)
        scores = head * np.random.default_rng(seed + 50).normal(size=(n, T))
        c, log_scale, s = find_weights(logits, scores, loss)
        expected = find_logit_gradient(logits, scores, LOSSES[loss])
        # A slope of e^-1000 is known to 1000 eps.
        rtol = 1e-13 * (1 + head / 10)
        assert_same(c, log_scale, expected.mantissa, float(expected.log_scale), rtol)
        np.testing.assert_allclose(s, expected.attention, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", [1.0, 400.0, 1e4])
def test_tokens_of_equal_score_have_no_part_in_the_gradient(gap, loss):
    rng = np.random.default_rng(0)
    for seed in range(20):
        logits = random_logits(seed, 3, 6, gap)
        scores = rng.integers(0, 3, size=(3, 6)) - 1.0
        c, log_scale, _ = find_weights(logits, scores, loss)
        expected = find_logit_gradient(logits, scores, LOSSES[loss])
        if not expected.mantissa.any():  # all the attention is on ties
            assert not c.any()
            continue
        assert_same(c, log_scale, expected.mantissa, float(expected.log_scale), 1e-13)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_scores_everywhere_have_gradient_zero(loss):
    c, log_scale, s = find_weights(random_logits(0, 3, 5, 1.0), np.full((3, 5), 2.0), loss)
    assert not c.any()
    assert log_scale == 0
    np.testing.assert_allclose(s.sum(axis=1), 1.0)


@pytest.mark.parametrize("gaps", [(-1e4, -2e4), (-2e4, -1e4), (-1e4, -1e4), (-300.0, -1e4)])
def test_no_gap_is_taken_for_a_mark(gaps):
    logits = np.array([[0.0, gap] for gap in gaps])
    scores = np.array([[0.0, 1.0], [0.0, 1.0]])
    c, log_scale, _ = find_weights(logits, scores, "logistic")
    expected = find_logit_gradient(logits, scores, LOSSES["logistic"])
    assert_same(c, log_scale, expected.mantissa, float(expected.log_scale), 1e-14)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
@pytest.mark.parametrize("gap", [1.0, 1e3])
def test_logits_that_are_not_finite_show_in_the_weights(bad, place, gap, loss):
    logits = random_logits(0, 3, 5, gap)
    logits[place] = bad
    scores = np.random.default_rng(1).normal(size=(3, 5))
    c, _, _ = find_weights(logits, scores, loss)
    assert np.isnan(c).any()


def problem_at_gap(seed, size, gap, loss, optimal=False, head=1.0):
    """A random problem and a W: its smallest lead is the gap, over the optimal tokens or any."""
    rng = np.random.default_rng(seed)
    n, T, d = size
    X, z, y = rng.normal(size=size), rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    v, W = rng.normal(size=d), rng.normal(size=(d, d))
    if optimal:  # move the selected tokens along the head, as far as that leaves their logits alone
        for i, t in enumerate(AttentionProblem(X, z, y, v).selected_tokens(W)):
            normal = W @ z[i] / np.linalg.norm(W @ z[i])
            X[i, t] += 10 * y[i] * (v - normal * (normal @ v))
    problem = AttentionProblem(X, z, y, head * v, loss)
    assert not optimal or (problem.selected_tokens(W) == problem.optimal_tokens).all()
    two = np.sort(problem.logits(W), axis=1)[:, -2:]
    return problem, W * (gap / (two[:, 1] - two[:, 0]).min())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("size", SIZES)
def test_gradient_is_that_of_the_problem(size, gap, loss):
    for seed in (1, 2):
        problem, W = problem_at_gap(seed, size, gap, loss)
        G, log_scale, *_ = find_all(problem, W)
        expected, expected_scale = problem.scaled_gradient(W)
        # Two sums of the same logit differ in their last bits, and the weights as much.
        rounding = 8 * np.finfo(float).eps * np.abs(problem.logits(W)).max()
        assert_same(G, log_scale, expected, expected_scale, 1e-12 + rounding)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("head", [1e3, 1e5, 1e250])
def test_gradient_under_a_huge_head_is_that_of_the_problem(head, loss):
    for seed in (1, 2, 3):
        problem, W = problem_at_gap(seed, (3, 4, 5), 2.0, loss, head=head)
        G, log_scale, *_ = find_all(problem, W)
        expected, expected_scale = problem.scaled_gradient(W)
        # A slope e^-m is known to m eps; beyond 1e15 that is nothing, and neither is tested then.
        if loss == "correlation" or head < 1e10:
            rtol = 1e-12 if loss == "correlation" else 1e-15 * head + 1e-12
            assert_same(G, log_scale, expected, expected_scale, rtol)
        assert np.isfinite(G).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("optimal", [True, False])
@pytest.mark.parametrize("head", [1.0, 30.0, 1e3])
def test_loss_gap_is_that_of_the_problem_in_units_of_the_gradient(gap, loss, optimal, head):
    for seed in (1, 2, 3):
        problem, W = problem_at_gap(seed, (3, 4, 5), gap, loss, optimal, head)
        _, log_scale, found, *_ = find_all(problem, W)
        expected = problem.log_loss_gap(W) - log_scale
        sizes = np.abs(problem.logits(W)).max() + np.abs(problem.scores).max()
        rounding = 8 * np.finfo(float).eps * sizes
        if expected > 709:
            assert found == math.inf
        elif expected > -700:
            assert math.log(found) == pytest.approx(expected, abs=1e-12 + rounding)
        else:
            assert found < 1e-300


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", [1.0, 500.0])
@pytest.mark.parametrize("size", SIZES)
def test_head_gradient_is_autograd(size, gap, loss):
    problem, W = problem_at_gap(3, size, gap, loss)
    *_, gv, log_scale = find_all(problem, W)
    v = torch.tensor(problem.head, requires_grad=True)
    averages = torch.tensor((problem.attention(W)[:, :, None] * problem.tokens).sum(axis=1))
    margins = torch.tensor(problem.labels) * (averages @ v)
    values = {
        "logistic": torch.nn.functional.softplus(-margins),
        "exponential": torch.exp(-margins),
        "correlation": -margins,
    }
    values[loss].mean().backward()
    assert_same(gv, log_scale, v.grad.numpy(), 0.0, 1e-12)


def test_head_gradient_does_not_underflow():
    problem, W = problem_at_gap(3, (3, 4, 5), 3.0, "exponential", optimal=True, head=2e4)
    *_, gv, log_scale = find_all(problem, W)
    assert log_scale < -800
    assert 1e-3 < np.abs(gv).max() < 1e3


def test_scores_are_written_for_a_head():
    for seed, (n, T, d) in enumerate(SIZES):
        problem, _ = problem_at_gap(seed, (n, T, d), 1.0, "logistic")
        data = pack(problem)
        data.scores[:] = 7.0
        Wt, v = np.zeros((d, round_up(d))), np.zeros(round_up(d))
        v[:d] = problem.head
        run(Wt, v, data, allocate(n, T, d), 0, Wt.copy(), Wt.copy(), v[None].copy())
        np.testing.assert_allclose(data.scores[:, :T], problem.scores, atol=1e-14)


def test_packing_copies_and_pads_with_zeros():
    problem, _ = problem_at_gap(1, (3, 5, 6), 1.0, "logistic")
    data = pack(problem)
    assert data.X.shape == (3, 5, 8)
    assert data.Xt.shape == (3, 6, 8)
    np.testing.assert_array_equal(data.X[:, :, :6], problem.tokens)
    np.testing.assert_array_equal(data.Xt[:, :, :5], problem.tokens.swapaxes(1, 2))
    np.testing.assert_array_equal(data.z[:, :6], problem.queries)
    np.testing.assert_array_equal(data.scores[:, :5], problem.scores)
    for padding in (data.X[:, :, 6:], data.Xt[:, :, 5:], data.z[:, 6:], data.scores[:, 5:]):
        assert padding.size
        assert not padding.any()
    assert all(array.flags.writeable for array in data)
    assert not any(np.shares_memory(array, problem.tokens) for array in data)


def test_log_loss_gap_does_not_underflow_under_huge_scores():
    # e^-1000 (e^drop - 1): neither factor is a float.
    logits, scores = np.array([[0.0, -5.0]]), np.array([[1000.0, 998.0]])
    drop = 2 / (1 + math.exp(5.0))
    for loss in ("logistic", "exponential"):
        expected = math.log(math.expm1(drop)) - 1000
        assert find_log_loss_gap(logits, scores, LOSSES[loss]) == pytest.approx(expected)
    logits, scores = np.array([[-800.0, 0.0]]), np.array([[1000.0, 100.0]])
    for loss in ("logistic", "exponential"):  # e^-100 - e^-1000
        assert find_log_loss_gap(logits, scores, LOSSES[loss]) == pytest.approx(-100.0)
