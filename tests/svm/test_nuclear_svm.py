"""solve_nuclear_svm: its optimality, against closed forms, CVXPY and its own certificates."""

import dataclasses

import cvxpy
import numpy as np
import pytest

from mirrormargin.errors import NotSeparableError, ProblemError, SolverError
from mirrormargin.svm.attention_svm import solve_attention_svm
from mirrormargin.svm.nuclear_svm import solve_nuclear_svm


def planted(seed, n=4, T=4, d=3):
    """A problem that some W separates."""
    rng = np.random.default_rng(seed)
    X, z, W = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.normal(size=(d, d))
    return X, z, np.einsum("ntd,de,ne->nt", X, W, z).argmax(axis=1)


def close_call(seed, lead, n=4, T=4, d=5):
    """All tokens trail the selected one by ``lead``, and lie on both sides of it."""
    rng = np.random.default_rng(seed)
    X, z, W = np.empty((n, T, d)), rng.normal(size=(n, d)), rng.normal(size=(d, d))
    for i in range(n):
        g = W @ z[i] / np.linalg.norm(W @ z[i])
        v = rng.normal(size=d)
        v -= (v @ g) * g
        X[i] = rng.normal(size=d) - lead * g + np.outer(np.arange(T) - 1, v)
        X[i, 1] += lead * g
    return X, z, np.ones(n, int)


def contradiction():
    """Two equal sequences with different selections."""
    X, z, _ = planted(0, n=2)
    X[1], z[1] = X[0], z[0]
    return X, z, [0, 1]


def rows(X, z, selection):
    """The constraints as a list of (sequence, token, Delta z')."""
    return [
        (i, t, np.outer(X[i, a] - X[i, t], z[i]))
        for i, a in enumerate(selection)
        for t in range(X.shape[1])
        if t != a
    ]


def combine(X, z, selection, duals):
    return sum(duals[i, t] * A for i, t, A in rows(X, z, selection))


def nuclear(W):
    return np.linalg.norm(W, "nuc")


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 4, 3), (5, 3, 4), (8, 6, 3), (4, 5, 6)])
def test_norm_agrees_with_cvxpy(shape):
    X, z, selection = planted(1, *shape)
    W = cvxpy.Variable((shape[2], shape[2]))
    leads = [cvxpy.sum(cvxpy.multiply(A, W)) for _, _, A in rows(X, z, selection)]
    objective = cvxpy.Minimize(cvxpy.normNuc(W))
    cvxpy.Problem(objective, [cvxpy.hstack(leads) >= 1]).solve("CLARABEL")
    expected = nuclear(W.value)
    solution = solve_nuclear_svm(X, z, selection)
    assert nuclear(solution.W) == pytest.approx(expected, rel=1e-5)
    assert solution.margin == pytest.approx(1 / expected, rel=1e-5)


def test_one_constraint_has_a_closed_form():
    rng = np.random.default_rng(2)
    X, z = rng.normal(size=(1, 2, 5)), rng.normal(size=(1, 5))
    delta = X[0, 1] - X[0, 0]
    size = np.linalg.norm(delta) * np.linalg.norm(z)
    solution = solve_nuclear_svm(X, z, [1])
    np.testing.assert_allclose(solution.W, np.outer(delta, z[0]) / size**2, rtol=1e-6, atol=1e-9)
    assert solution.margin == pytest.approx(size, rel=1e-9)
    assert solution.rank == 1
    assert solution.support.tolist() == [[True, False]]


def test_orthogonal_constraints_add_up_their_norms():
    # Delta_i z_i' with orthogonal Delta and z: W = sum_i Delta_i z_i' / (|Delta_i| |z_i|)^2.
    X = np.zeros((3, 2, 3))
    X[range(3), 0, range(3)] = [1.0, 2.0, 4.0]
    solution = solve_nuclear_svm(X, np.eye(3), [0, 0, 0], tol=1e-8)
    np.testing.assert_allclose(solution.W, np.diag([1.0, 0.5, 0.25]), atol=1e-7)
    assert solution.rank == 3


def test_duals_are_a_subgradient_at_the_solution():
    X, z, selection = planted(3, n=6, T=5, d=4)
    solution = solve_nuclear_svm(X, z, selection)
    U = combine(X, z, selection, solution.duals)
    norm = nuclear(solution.W)
    assert solution.duals.min() >= 0
    assert not solution.duals[range(6), selection].any()
    assert solution.duals.sum() == pytest.approx(norm, rel=1e-12)
    assert np.linalg.norm(U, 2) == pytest.approx(1 + solution.gap, rel=1e-12)
    assert (U * solution.W).sum() == pytest.approx(norm, rel=1e-6)


def test_multipliers_off_the_support_vanish():
    solution = solve_nuclear_svm(*planted(4, n=6, T=5, d=4), tol=1e-9)
    assert 0 < solution.support.sum() < 24
    assert solution.duals[~solution.support].max() < 1e-3 * solution.duals.max()


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("scaled", ["tokens", "queries"])
def test_margin_scales_with_tokens_and_queries(scaled, factor):
    X, z, selection = planted(5)
    once = solve_nuclear_svm(X, z, selection, tol=1e-9)
    if scaled == "tokens":
        twice = solve_nuclear_svm(factor * X, z, selection, tol=1e-9)
    else:
        twice = solve_nuclear_svm(X, factor * z, selection, tol=1e-9)
    assert twice.margin == pytest.approx(factor * once.margin, rel=2e-9)


def test_rotated_tokens_rotate_the_solution():
    X, z, selection = planted(6, n=6, T=5, d=4)
    Q = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))[0]
    plain = solve_nuclear_svm(X, z, selection, tol=1e-9)
    rotated = solve_nuclear_svm(X @ Q.T, z, selection, tol=1e-9)
    np.testing.assert_allclose(rotated.W, Q @ plain.W, atol=1e-4 * np.abs(plain.W).max())


def test_nuclear_norm_is_below_that_of_the_frobenius_solution():
    X, z, selection = planted(7, n=6, T=5, d=8)
    frobenius = solve_attention_svm(X, z, selection).W
    solution = solve_nuclear_svm(X, z, selection)
    assert nuclear(solution.W) < 0.99 * nuclear(frobenius)
    assert solution.rank < np.linalg.matrix_rank(frobenius, 1e-4 * np.linalg.norm(frobenius, 2))


@pytest.mark.parametrize("seed", range(4))
def test_random_problems_end_with_a_certificate(seed):
    rng = np.random.default_rng(seed)
    for _ in range(15):
        n, T, d = (int(k) for k in rng.integers([1, 2, 2], [9, 9, 13]))
        X, z, selection = planted(rng.integers(10**6), n, T, d)
        if rng.random() < 0.3:
            selection = rng.integers(T, size=n)
        X = X * 10.0 ** rng.uniform(-6, 6)
        solution = solve_nuclear_svm(X, z, selection, raise_on_failure=False)
        if solution.status == "infeasible":
            U = combine(X, z, selection, solution.duals)
            largest = max(np.linalg.norm(A) for _, _, A in rows(X, z, selection))
            assert solution.duals.min() >= 0
            assert np.linalg.norm(U, 2) <= 1e-11 * largest * solution.duals.sum()
            assert not solution.is_optimal()
        else:
            assert solution.is_optimal()
            assert min((A * solution.W).sum() for _, _, A in rows(X, z, selection)) > 1 - 1e-9
            assert solution.rank <= min(n, d)


def test_more_rows_than_unknowns_are_solved():
    solution = solve_nuclear_svm(*planted(8, n=12, T=8, d=3))
    assert solution.is_optimal()


def test_equal_constraints_change_nothing():
    X, z, selection = planted(9)
    once = solve_nuclear_svm(X, z, selection, tol=1e-8)
    repeated = [np.concatenate([a, a, a]) for a in (X, z, selection)]
    thrice = solve_nuclear_svm(*repeated, tol=1e-8)
    assert thrice.margin == pytest.approx(once.margin, rel=2e-8)


@pytest.mark.parametrize("lead", [1e-2, 1e-4, 1e-6])
def test_a_small_margin_is_certified(lead):
    X, z, selection = close_call(10, lead)
    solution = solve_nuclear_svm(X, z, selection)
    assert solution.is_optimal()
    assert 0.01 * lead < solution.margin < 10 * lead


@pytest.mark.slow
def test_nine_hundred_constraints_are_solved():
    solution = solve_nuclear_svm(*planted(11, n=100, T=10, d=50))
    assert solution.is_optimal()
    assert solution.rank < 50


def test_contradicting_selections_raise_with_a_certificate():
    X, z, selection = contradiction()
    with pytest.raises(NotSeparableError, match="2 constraints cancel") as caught:
        solve_nuclear_svm(X, z, selection)
    duals = caught.value.certificate.duals
    assert duals.min() >= 0
    assert duals.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(combine(X, z, selection, duals), 0.0, atol=1e-12)


def test_equal_tokens_are_named():
    X, z, selection = planted(12)
    selection[1], X[1, 3] = 2, X[1, 2]
    with pytest.raises(NotSeparableError, match="sequence 1 the selected token 2 equals token 3"):
        solve_nuclear_svm(X, z, selection)


def test_tokens_that_are_all_equal_are_not_separable():
    with pytest.raises(NotSeparableError, match="equals token 1") as caught:
        solve_nuclear_svm(np.ones((1, 2, 3)), np.ones((1, 3)), [0])
    assert caught.value.certificate.identical == (0, 0, 1)


def test_failure_can_be_returned():
    solution = solve_nuclear_svm(*contradiction(), raise_on_failure=False)
    assert solution.status == "infeasible"
    assert solution.margin == 0
    assert solution.rank == 0
    assert np.isnan(solution.W).all()
    assert not solution.support.any()
    assert not solution.is_optimal()


def test_too_few_iterations_raise_with_the_best_so_far():
    with pytest.raises(SolverError, match=r"stopped after 3 iterations.*raise max_iter") as caught:
        solve_nuclear_svm(*planted(13), max_iter=3)
    solution = caught.value.solution
    assert solution.status == "max iterations"
    assert solution.is_optimal(2 * solution.gap)


def test_a_gap_below_rounding_is_not_claimed():
    with pytest.raises(SolverError, match=r"rounding alone may hide .*raise tol") as caught:
        solve_nuclear_svm(*planted(14), tol=1e-16)
    assert caught.value.solution.status == "cannot certify"


def test_is_optimal_measures_anew():
    solution = solve_nuclear_svm(*planted(15))
    assert solution.is_optimal()
    assert not solution.is_optimal(1e-15)
    assert not dataclasses.replace(solution, W=0.99 * solution.W).is_optimal()
    assert not dataclasses.replace(solution, W=1.01 * solution.W.T).is_optimal()
    residuals = solution.residuals()
    assert residuals.gap == solution.gap
    assert residuals.complementarity + residuals.stationarity == pytest.approx(
        residuals.gap, rel=1e-3
    )


def test_same_threads_give_the_same_bits():
    problem = planted(16, n=20, T=10, d=12)
    one, two = solve_nuclear_svm(*problem, threads=1), solve_nuclear_svm(*problem, threads=1)
    np.testing.assert_array_equal(one.W, two.W)
    np.testing.assert_array_equal(one.duals, two.duals)


WRONG = {
    "booleans": ({"selection": np.eye(4, dtype=bool)}, r"holds booleans.*give its index"),
    "flat booleans": ({"selection": [True] * 4}, r"holds booleans.*give its index"),
    "index": ({"selection": [0, 1, 2, 4]}, r"selection\[3\] is 4: give an integer from 0 to 3"),
    "short selection": ({"selection": [0, 1]}, r"selection has shape \(2,\)"),
    "queries": ({"queries": np.ones((4, 2))}, r"queries has shape \(4, 2\).*\(4, 3\)"),
    "zero query": ({"queries": np.zeros((4, 3))}, r"queries\[0\] is all zeros"),
    "nan": ({"tokens": np.full((4, 4, 3), np.nan)}, r"tokens\[0, 0, 0\] is nan"),
    "tol": ({"tol": 0.0}, r"tol is 0.0: give a number above 0 and below 1"),
    "max_iter": ({"max_iter": 0}, r"max_iter is 0: give a positive integer"),
    "threads": ({"threads": 0}, r"threads is 0: give a positive integer"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_named(changed, message):
    X, z, selection = planted(17)
    arguments = {"tokens": X, "queries": z, "selection": selection} | changed
    with pytest.raises(ProblemError, match=message):
        solve_nuclear_svm(**arguments)
