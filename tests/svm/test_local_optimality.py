"""is_locally_optimal: which selections training can end at."""

import numpy as np
import pytest
from svm_problems import planted

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.errors import ProblemError, SolverError
from mirrormargin.svm import is_locally_optimal, solve_attention_svm

EXPONENTS = (1.1, 1.75, 2.0, 3.0)


def equal_scores(seed=0, n=3, T=4, d=6):
    """In each sequence one token scores 1 and all others -1; the others differ in the rest."""
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(n, T, d))
    best = rng.integers(T, size=n)
    tokens[:, :, 0] = np.where(np.arange(T) == best[:, None], 1.0, -1.0)
    return AttentionProblem(tokens, rng.normal(size=(n, d)), np.ones(n), np.eye(d)[0])


def three_tokens(scores):
    """One sequence; token 0 is selected, token 1 is its support, token 2 far behind.

    The first coordinate is the score, and the query sees all tokens' second coordinate.
    """
    x = [[scores[0], 0.0], [scores[1], -1.0], [scores[2], -100.0]]
    return AttentionProblem([x], [[0.0, 1.0]], [1], [1.0, 0.0])


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(5))
def test_optimal_tokens_above_equal_others_are_locally_optimal(seed, p):
    problem = equal_scores(seed)
    assert is_locally_optimal(problem, problem.optimal_tokens, p)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(1, 6))
def test_optimal_tokens_are_locally_optimal_wherever_they_separate(seed, p):
    problem = synthetic.unit_sphere(seed)
    assert is_locally_optimal(problem, problem.optimal_tokens, p)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.5, 0.4, 0.3), True),
        ((0.5, 0.6, 0.3), False),
        ((0.5, 0.5, 0.3), False),
        ((0.5, 0.4, 0.6), True),
    ],
    ids=["best", "support scores higher", "support scores the same", "token behind scores higher"],
)
def test_only_the_scores_of_the_support_count(p, scores, expected):
    problem = three_tokens(scores)
    support = solve_attention_svm(problem.tokens, problem.queries, [0], p).support
    assert support.tolist() == [[False, True, False]]
    assert is_locally_optimal(problem, [0], p) is expected


def test_labels_turn_the_scores_around():
    better = three_tokens((0.5, 0.4, 0.3))
    worse = AttentionProblem(better.tokens, better.queries, [-1], better.head)
    assert is_locally_optimal(better, [0])
    assert not is_locally_optimal(worse, [0])


@pytest.mark.parametrize("p", EXPONENTS)
def test_what_nothing_separates_is_not_locally_optimal(p):
    # Token 1 is the mean of the two others, so that no direction puts it first.
    problem = AttentionProblem(
        [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]], [[1.0, 0.0]], [1], [-1.0, 1.0]
    )
    assert not is_locally_optimal(problem, [1], p)


def test_a_token_that_occurs_twice_is_not_locally_optimal():
    problem = AttentionProblem(np.ones((1, 2, 2)), [[1.0, 0.0]], [1], [1.0, 0.0])
    assert not is_locally_optimal(problem, [0])


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_known_solution_gives_the_same_answer(p):
    rng = np.random.default_rng(0)
    answers = set()
    for seed in range(20):
        X, z, selection = planted(seed, n=1, T=3, d=3)
        problem = AttentionProblem(X, z, [-1], rng.normal(size=3))
        solution = solve_attention_svm(X, z, selection, p)
        answer = is_locally_optimal(problem, selection, p)
        assert is_locally_optimal(problem, selection, p, solution=solution) is answer
        lead = problem.scores[0, selection] - problem.scores
        assert answer is bool((lead[solution.support] > 0).all())
        answers.add(answer)
    assert answers == {False, True}


def test_a_known_infeasible_solution_is_false():
    X, z, selection = planted(0)
    X[0] = X[0, :1]
    problem = AttentionProblem(X, z, np.ones(4), np.ones(4))
    solution = solve_attention_svm(X, z, selection, raise_on_failure=False)
    assert is_locally_optimal(problem, selection, solution=solution) is False


def test_a_solution_without_certificate_decides_nothing():
    X, z, selection = planted(1, n=8, T=6)
    problem = AttentionProblem(X, z, np.ones(8), np.ones(4))
    solution = solve_attention_svm(X, z, selection, max_iter=1, raise_on_failure=False)
    with pytest.raises(SolverError):
        is_locally_optimal(problem, selection, solution=solution)


@pytest.mark.parametrize(
    ("selection", "p", "message"),
    [([0, 0], 2.0, "selection has shape"), ([9], 2.0, r"selection\[0\]"), ([0], 1.0, "p is 1.0")],
)
def test_wrong_arguments_are_named(selection, p, message):
    with pytest.raises(ProblemError, match=message):
        is_locally_optimal(three_tokens((3, 2, 1)), selection, p)


def test_a_solution_of_another_selection_is_refused():
    problem = three_tokens((3, 2, 1))
    other = solve_attention_svm(problem.tokens, problem.queries, [2])
    with pytest.raises(ProblemError, match="solution"):
        is_locally_optimal(problem, [0], solution=other)


def test_several_selected_tokens_are_refused():
    problem = three_tokens((0.5, 0.4, 0.3))
    with pytest.raises(ProblemError, match="selection"):
        is_locally_optimal(problem, [[True, True, False]])
