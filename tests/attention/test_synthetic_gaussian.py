"""equal_scores and signal_noise: one token of each sequence matters, and W can select it."""

import math

import numpy as np
import pytest

from mirrormargin import solve_attention_svm
from mirrormargin.attention.synthetic import equal_scores, signal_noise
from mirrormargin.errors import ProblemError

SEEDS = range(20)


def is_separable(problem, selection):
    solution = solve_attention_svm(
        problem.tokens, problem.queries, selection, compiled=False, raise_on_failure=False
    )
    return solution.status == "optimal"


def largest_overlap(problem):
    """The largest cosine between two different tokens."""
    tokens = problem.tokens.reshape(-1, problem.dim)
    tokens = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.abs(tokens @ tokens.T - np.eye(len(tokens))).max()


def find_signals(problem, signal=1.0):
    """The one token of each sequence that has the norm of a signal."""
    is_signal = np.isclose(np.linalg.norm(problem.tokens, axis=2), signal, rtol=1e-12, atol=0)
    assert (is_signal.sum(axis=1) == 1).all()
    return is_signal.argmax(axis=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_scores_has_equal_non_optimal_scores(seed):
    problem = equal_scores(seed, optimal_score=2.0, other_score=-0.5)
    scores = np.sort(problem.scores, axis=1)
    np.testing.assert_allclose(scores[:, -1], 2.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores[:, :-1], -0.5, rtol=0, atol=1e-12)


def test_equal_scores_has_equal_non_optimal_scores_at_the_least_dim():
    for seed in range(100):
        scores = np.sort(equal_scores(seed, dim=32).scores, axis=1)
        np.testing.assert_allclose(scores[:, -1], 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[:, :-1], 0.0, rtol=0, atol=1e-12)


def test_equal_scores_head_has_the_least_norm():
    problem = equal_scores(0)
    tokens = problem.tokens.reshape(-1, problem.dim)
    coefficients = np.linalg.lstsq(tokens.T, problem.head, rcond=None)[0]
    np.testing.assert_allclose(tokens.T @ coefficients, problem.head, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_scores_selects_by_a_w(seed):
    problem = equal_scores(seed)
    assert is_separable(problem, problem.optimal_tokens)


def test_equal_scores_can_select_any_token_even_at_the_least_dim():
    problem = equal_scores(1, dim=32)
    selections = np.random.default_rng(0).integers(4, size=(10, 8))
    assert all(is_separable(problem, selection) for selection in selections)


@pytest.mark.parametrize("generate", [equal_scores, signal_noise])
def test_tokens_get_nearer_to_orthogonal_with_dim(generate):
    def overlap(dim):
        # The signal of a label is the same token in each sequence: two sequences have no twins.
        return largest_overlap(generate(0, num_sequences=2, dim=dim))

    assert overlap(65536) < 5 / math.sqrt(65536)
    assert overlap(65536) < overlap(1024) < overlap(16)


@pytest.mark.parametrize("generate", [equal_scores, signal_noise])
def test_queries_are_the_first_tokens(generate):
    problem = generate(0)
    np.testing.assert_array_equal(problem.queries, problem.tokens[:, 0])


def test_equal_scores_draws_positions_labels_and_noise_fairly():
    problems = [equal_scores(seed) for seed in range(200)]
    positions = np.concatenate([problem.optimal_tokens for problem in problems])
    labels = np.concatenate([problem.labels for problem in problems])
    tokens = np.concatenate([problem.tokens.ravel() for problem in problems])
    # 1600 positions of chance 1/4 and coins of deviation 1; limits are six deviations.
    np.testing.assert_allclose(np.bincount(positions, minlength=4) / 1600, 0.25, atol=0.065)
    assert abs(labels.mean()) < 0.15
    assert tokens.var() * 64 == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_signal_noise_has_the_signals_as_optimal_tokens(seed):
    problem = signal_noise(seed)
    np.testing.assert_array_equal(problem.optimal_tokens, find_signals(problem))
    np.testing.assert_allclose(problem.scores.max(axis=1), math.sqrt(0.5), rtol=1e-12)


@pytest.mark.parametrize("dim", [64, 12])
def test_signal_noise_signals_are_separable_from_the_least_dim_on(dim):
    firsts = 0
    for seed in SEEDS:
        problem = signal_noise(seed, dim=dim)
        signals = find_signals(problem)
        assert is_separable(problem, signals)
        for label in (-1, 1):
            firsts += np.count_nonzero((signals == 0) & (problem.labels == label)) > 1
    assert firsts > 0  # sequences that share their query, the case to worry about


def test_signal_noise_has_one_signal_for_each_label_and_they_are_orthogonal():
    problem = signal_noise(4, signal=2.5)
    signals = problem.tokens[np.arange(8), find_signals(problem, 2.5)]
    plus, minus = signals[problem.labels > 0], signals[problem.labels < 0]
    np.testing.assert_array_equal(plus, plus[[0] * len(plus)])
    np.testing.assert_array_equal(minus, minus[[0] * len(minus)])
    assert abs(plus[0] @ minus[0]) < 1e-14
    reference = plus[0] - minus[0]
    np.testing.assert_allclose(problem.head, reference / np.linalg.norm(reference), atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
def test_signal_noise_labels_are_balanced_and_in_random_order(n):
    labels = np.array([signal_noise(seed, num_sequences=n).labels for seed in range(40)])
    assert (abs(labels.sum(axis=1)) == n % 2).all()
    assert (labels == 1).any(axis=0).all()
    assert (labels == -1).any(axis=0).all()
    if n % 2:
        assert set(labels.sum(axis=1)) == {-1, 1}


def test_sizes_are_those_asked_for():
    for problem in (equal_scores(0, 2, 3, 7), signal_noise(0, 2, 3, 7)):
        assert problem.tokens.shape == (2, 3, 7)


def test_smallest_sizes_are_allowed():
    assert signal_noise(0, num_sequences=1, num_tokens=2, dim=2).num_sequences == 1
    assert equal_scores(0, num_sequences=1, num_tokens=2, dim=2).num_sequences == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_sequences": 0}, "num_sequences is 0: give a positive integer"),
        ({"num_tokens": 1}, "num_tokens is 1: give an integer of at least 2"),
        ({"dim": 2.5}, "dim is 2.5: give a"),
        ({"dim": 31}, "dim is 31, but a head .* 8 x 4 tokens .* at least 32: raise dim, or lower"),
        ({"optimal_score": 0.0}, "optimal_score is 0 and other_score is 0: give the optimal"),
        ({"optimal_score": math.nan}, "optimal_score is nan: give a number"),
        ({"optimal_score": "1"}, "optimal_score is '1': give a number"),
        ({"other_score": -math.inf}, "other_score is -inf: give a number"),
        ({"other_score": 1.5}, "optimal_score is 1 and other_score is 1.5: give the optimal"),
        ({"optimal_score": 10**400}, "optimal_score is 10+: give a number"),
        ({"other_score": math.nextafter(1.0, 0.0)}, "so close that rounding hides which token"),
    ],
)
def test_equal_scores_refuses_wrong_arguments(arguments, message):
    with pytest.raises(ProblemError, match=message):
        equal_scores(0, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_sequences": 0}, "num_sequences is 0: give a positive integer"),
        ({"num_tokens": 1}, "num_tokens is 1: give an integer of at least 2"),
        ({"dim": 1}, "dim is 1: give an integer of at least 2"),
        ({"signal": 0}, "signal is 0: give a number above 0"),
        ({"signal": -1.0}, "signal is -1.0: give a number above 0"),
        ({"signal": math.inf}, "signal is inf: give a number above 0"),
        ({"signal": None}, "signal is None: give a number above 0"),
    ],
)
def test_signal_noise_refuses_wrong_arguments(arguments, message):
    with pytest.raises(ProblemError, match=message):
        signal_noise(0, **arguments)
