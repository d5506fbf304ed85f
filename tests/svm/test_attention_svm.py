"""solve_attention_svm: closed forms, published optima, CVXPY, and what its record promises."""

import dataclasses

import numpy as np
import pytest
import torch
from svm_problems import (
    PUBLISHED,
    Problem,
    farthest,
    narrow,
    norm,
    one_constraint,
    orthogonal,
    planted,
    published,
    rows_of,
    solve_by_cvxpy,
)

from mirrormargin.errors import ProblemError, SolverError
from mirrormargin.svm import Status, solve_attention_svm

EXPONENTS = (1.05, 1.1, 1.5, 2.0, 3.0, 10.0, 20.0)
ROUNDING = 1e-13


def assert_near(W, expected, gap, p):
    """The norms differ by the gap, the matrices by what that allows."""
    assert norm(W, p) == pytest.approx(norm(expected, p), rel=gap + ROUNDING)
    assert norm(W - expected, p) <= farthest(gap + ROUNDING, p) * norm(expected, p)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_one_constraint_has_its_closed_form(seed, p):
    problem, W = one_constraint(seed, p)
    solution = solve_attention_svm(*problem, p)
    assert_near(solution.W, W, 1e-8, p)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_constraints_without_a_common_coordinate_are_solved_alone(seed, p):
    problem, W = orthogonal(seed, p)
    solution = solve_attention_svm(*problem, p)
    assert_near(solution.W, W, 1e-8, p)


@pytest.mark.parametrize(("p", "expected"), PUBLISHED.items())
def test_published_optima_are_reached(p, expected):
    solution = solve_attention_svm(*published(), p)
    assert norm(solution.W, p) == pytest.approx(expected, rel=1e-7)
    assert solution.status is Status.OPTIMAL


# Clarabel reaches 1e-8 on these with exact power cones; smaller tolerances make it give up.
@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 7.3])
@pytest.mark.parametrize("shape", [(1, 4, 3), (3, 4, 3), (6, 3, 2), (5, 5, 4)])
def test_norm_agrees_with_cvxpy(shape, p):
    problem = planted(sum(shape), *shape)
    A = rows_of(problem)
    expected, w = solve_by_cvxpy(A, np.ones(len(A)), p)
    solution = solve_attention_svm(*problem, p)
    assert norm(solution.W, p) == pytest.approx(expected, rel=1e-7)
    assert norm(solution.w - w, p) <= farthest(1e-7, p) * expected


@pytest.mark.parametrize("c", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("p", [1.1, 2.0, 8.0])
def test_margin_grows_with_the_tokens_and_with_the_queries(p, c):
    X, z, selection = planted(1)
    margin = solve_attention_svm(X, z, selection, p).margin
    for tokens, queries in ((c * X, z), (X, c * z)):
        scaled = solve_attention_svm(tokens, queries, selection, p)
        assert scaled.margin == pytest.approx(c * margin, rel=1e-8)


@pytest.mark.parametrize("p", [1.1, 2.0, 8.0])
def test_order_of_the_sequences_does_not_matter(p):
    X, z, selection = planted(2, n=6)
    order = np.random.default_rng(0).permutation(6)
    one = solve_attention_svm(X, z, selection, p)
    other = solve_attention_svm(X[order], z[order], selection[order], p)
    assert_near(other.W, one.W, 1e-8, p)
    np.testing.assert_array_equal(other.support, one.support[order])


@pytest.mark.parametrize("p", [1.3, 2.0, 5.0])
def test_tokens_may_be_moved_together(p):
    X, z, selection = planted(3)
    shift = np.random.default_rng(0).normal(size=(len(X), 1, X.shape[2]))
    moved = solve_attention_svm(X + shift, z, selection, p)
    assert moved.margin == pytest.approx(solve_attention_svm(X, z, selection, p).margin, rel=1e-8)


@pytest.mark.parametrize(
    "convert",
    [np.ndarray.tolist, torch.tensor, np.asfortranarray],
    ids=["list", "torch", "fortran"],
)
def test_arrays_tensors_and_lists_give_the_same_bits(convert):
    problem = planted(4)
    given = [convert(array) for array in problem]
    assert (solve_attention_svm(*given, 1.5).W == solve_attention_svm(*problem, 1.5).W).all()


def test_later_edits_of_the_input_do_not_reach_the_solution():
    problem = planted(4)
    solution = solve_attention_svm(*problem)
    for array in problem:
        array[:] = 0
    assert solution.is_optimal()


@pytest.mark.parametrize("p", EXPONENTS)
def test_record_holds_the_optimality_conditions(p):
    problem = planted(5, n=5)
    n, T, _ = problem.tokens.shape
    solution = solve_attention_svm(*problem, p)
    A, duals = rows_of(problem), solution.duals
    others = np.arange(T) != problem.selection[:, None]
    lead = np.zeros((n, T))
    lead[others] = A @ solution.W.ravel()

    assert solution.margin == pytest.approx(1 / norm(solution.W, p), rel=1e-14)
    assert lead[others].min() >= 1 - ROUNDING
    assert duals.min() >= 0
    assert (duals[~others] == 0).all()
    assert duals.sum() == pytest.approx(norm(solution.W, p) ** p, rel=1e-12)
    np.testing.assert_array_equal(solution.support, others & (lead - 1 <= 1e-4))
    assert (duals * (lead - 1)).sum() <= (solution.gap + ROUNDING) * duals.sum()
    gradient = np.sign(solution.w) * np.abs(solution.w) ** (p - 1)
    q = p / (p - 1)
    distance = norm(gradient - duals[others] @ A, q) / norm(gradient, q)
    assert distance <= min(farthest(solution.gap + ROUNDING, q), 1e-3)


@pytest.mark.parametrize("p", [1.1, 2.0, 6.0])
def test_support_ends_at_one_in_ten_thousand(p):
    tokens = -np.array([[0.0, 1.0, 1 + 0.8e-4, 1 + 1.2e-4]])[:, :, None]
    solution = solve_attention_svm(tokens, [[1.0]], [0], p)
    assert solution.support.tolist() == [[False, True, True, False]]


def test_record_tells_how_it_was_solved():
    problem = planted(5)
    solution = solve_attention_svm(*problem, 1.5, 1e-7)
    assert (solution.p, solution.tol, solution.status) == (1.5, 1e-7, "optimal")
    assert solution.certificate is None
    assert solution.iterations > 0
    assert "interior point" in solution.method
    np.testing.assert_array_equal(solution.selection, problem.selection)


@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-11])
@pytest.mark.parametrize("p", [1.1, 1.75, 3.0, 15.0])
def test_gap_is_at_most_tol(p, tol):
    solution = solve_attention_svm(*planted(6), p, tol)
    best = solve_attention_svm(*planted(6), p, 1e-12)
    assert solution.gap <= tol
    assert solution.residuals().gap <= tol
    assert solution.is_optimal()
    assert -1e-12 <= best.margin / solution.margin - 1 <= tol


def test_optimality_is_judged_by_the_tolerance_that_is_asked_for():
    solution = solve_attention_svm(*planted(6), 1.5, 1e-4)
    assert solution.gap > 1e-9
    assert solution.is_optimal(1e-4)
    assert not solution.is_optimal(0.5 * solution.gap)


@pytest.mark.parametrize("change", ["stretched", "shrunk", "turned", "duals"])
@pytest.mark.parametrize("p", [1.1, 2.0, 6.0])
def test_what_is_not_optimal_is_not_called_so(p, change):
    solution = solve_attention_svm(*planted(7), p)
    noise = np.random.default_rng(0).normal(size=solution.w.shape)
    changed = {
        "stretched": {"w": solution.w * (1 + 1e-6)},
        "shrunk": {"w": solution.w * (1 - 1e-6)},
        "turned": {"w": solution.w + 0.01 * noise * np.abs(solution.w).max()},
        "duals": {"lam": solution.lam * np.linspace(0.9, 1.1, len(solution.lam))},
    }[change]
    assert solution.is_optimal()
    assert not dataclasses.replace(solution, **changed).is_optimal()


@pytest.mark.parametrize("lam", [-1e-9, -1.0])
def test_a_negative_multiplier_is_not_optimal(lam):
    solution = solve_attention_svm(*planted(7, n=6))
    changed = np.where(solution.lam < 1e-6, lam, solution.lam)
    assert (changed < 0).any()
    assert not dataclasses.replace(solution, lam=changed).is_optimal()


@pytest.mark.parametrize("p", EXPONENTS)
def test_own_solution_is_no_slower_a_start(p):
    problem = planted(8, n=8, T=6, d=6)
    cold = solve_attention_svm(*problem, p)
    for start in (cold, cold.duals, torch.tensor(cold.duals)):
        warm = solve_attention_svm(*problem, p, warm_start=start)
        assert warm.is_optimal()
        assert warm.iterations <= cold.iterations


@pytest.mark.parametrize("p", [1.1, 2.0, 6.0])
def test_a_poor_start_gives_the_same_answer(p):
    problem = planted(9)
    cold = solve_attention_svm(*problem, p)
    poor = np.random.default_rng(0).exponential(size=cold.duals.shape) ** 8
    assert_near(solve_attention_svm(*problem, p, warm_start=poor).W, cold.W, 1e-8, p)


@pytest.mark.parametrize("p", [1.1, 2.0, 6.0])
def test_too_few_iterations_are_an_error_with_what_was_reached(p):
    problem = planted(10, n=8, T=6)
    with pytest.raises(
        SolverError, match=r"stopped after .* iterations .*raise max_iter"
    ) as caught:
        solve_attention_svm(*problem, p, max_iter=2)
    returned = solve_attention_svm(*problem, p, max_iter=2, raise_on_failure=False)
    for solution in (caught.value.solution, returned):
        assert solution.status == "max iterations"
        assert not solution.is_optimal()


def test_what_floating_point_hides_is_not_certified():
    problem = narrow(0, 1e-6)
    solution = solve_attention_svm(*problem, 2.0, 1e-13, raise_on_failure=False)
    assert solution.residuals().rounding > 1e-13
    assert solution.status == "cannot certify"
    with pytest.raises(SolverError, match=r"rounding alone may hide .*raise tol"):
        solution.check()


@pytest.mark.parametrize("threads", [None, 1])
@pytest.mark.parametrize("shape", [(4, 4, 4), (30, 6, 12), (60, 8, 4)])
@pytest.mark.parametrize("p", [1.2, 2.0, 5.0])
def test_same_input_gives_the_same_bits(p, shape, threads):
    one, other = (solve_attention_svm(*planted(11, *shape), p, threads=threads) for _ in range(2))
    assert one.W.tobytes() == other.W.tobytes()
    assert one.duals.tobytes() == other.duals.tobytes()


def test_wrong_shape_of_a_start_is_named():
    problem = planted(12)
    start = solve_attention_svm(*planted(12, T=5))
    with pytest.raises(ProblemError, match=r"warm_start has shape \(4, 5\).*\(4, 4\)"):
        solve_attention_svm(*problem, warm_start=start)


def test_a_larger_set_of_constraints_has_no_larger_margin():
    X, z, selection = planted(13, n=6)
    fewer = solve_attention_svm(*Problem(X[:4], z[:4], selection[:4]), 1.5)
    assert solve_attention_svm(X, z, selection, 1.5).margin <= fewer.margin * (1 + 1e-8)


def test_a_solution_prints_on_one_line():
    text = repr(solve_attention_svm(*planted(7), 1.5))
    assert text.startswith("AttentionSVM(p=1.5, status='optimal', margin=")
    assert "\n" not in text
    assert len(text) < 200
