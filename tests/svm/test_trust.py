"""What must never be called optimal, and what must never be called infeasible."""

import threading

import numpy as np
import pytest
from svm_problems import planted, random_exponent, random_problem
from threadpoolctl import ThreadpoolController

import mirrormargin as mm
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.threads import limit_threads
from mirrormargin.svm import is_locally_optimal, solve_attention_svm, solve_decoder_svm
from mirrormargin.svm.attention_svm import build_program
from mirrormargin.svm.interior import newton


def test_multipliers_of_the_wrong_sign_prove_nothing():
    """Those of the interpolating W close the gap exactly, and some are negative."""
    for seed in range(20):
        X, z, selection = planted(seed, n=3, T=2, d=3)
        rows = build_program(X, z, selection, 2.0, np.ones(3)).constraints.matrix
        lam = np.linalg.solve(rows @ rows.T, np.ones(3))
        if lam.min() < -0.01 and lam.max() > 0:
            break
    start = np.zeros((3, 2))
    start[np.arange(3), 1 - np.asarray(selection)] = lam
    for C in (None, 100.0):
        cold = solve_attention_svm(X, z, selection, C=C)
        warm = solve_attention_svm(X, z, selection, C=C, warm_start=start)
        assert warm.is_optimal()
        assert warm.margin == pytest.approx(cold.margin, rel=1e-6)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("lead", [1e-3, 1e-6])
def test_what_equalities_leave_open_counts_against_a_solution(p, lead):
    """W_11 = 0 must hold for W_21 = 1 / lead to be least: a small violation makes it shorter."""
    tokens = [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -lead]]]
    chosen = [[True, True, False]]
    solution = solve_attention_svm(tokens, [[1.0, 0.0]], chosen, p, raise_on_failure=False)
    true = 1 / solution.margin == pytest.approx(1 / lead, rel=1e-7)
    assert true or solution.status != "optimal"
    assert solution.is_optimal() == (solution.status == "optimal")


@pytest.mark.parametrize("p", [1.2, 1.5, 2.0, 3.0, 8.0])
def test_a_soft_margin_may_be_best_at_zero(p):
    contradiction = np.stack([np.eye(2), np.eye(2)]), np.array([[1.0, 0], [1, 0]]), [0, 1]
    solution = solve_attention_svm(*contradiction, p, C=1.0)
    np.testing.assert_allclose(solution.W, 0.0, atol=1e-6)
    assert solution.is_optimal()
    assert solution.shortfalls.sum() == pytest.approx(2.0, abs=1e-6)
    decoder = solve_decoder_svm([[1.0, 2.0], [1.0, 2.0]], [1, -1], p, C=1.0)
    np.testing.assert_allclose(decoder.v, 0.0, atol=1e-6)
    nothing = solve_decoder_svm(np.zeros((3, 2)), [1, -1, 1], p, C=1.0)
    assert nothing.is_optimal()
    assert not nothing.v.any()


@pytest.mark.parametrize("scale", [1e160, 1e-170, 1e300])
def test_numbers_out_of_range_are_named_instead_of_condemned(scale):
    X, z, selection = planted(3)
    with pytest.raises(ProblemError, match="floating point"):
        solve_attention_svm(scale * X, scale * z, selection)


@pytest.mark.parametrize("C", [1e-300, 1e-100, 1e-50, 1e-20])
@pytest.mark.parametrize("p", [1.5, 3.0, 10.0])
def test_a_tiny_price_never_makes_a_problem_infeasible(p, C):
    try:
        solution = solve_attention_svm(*planted(3), p, C=C, raise_on_failure=False)
    except ProblemError:
        return
    assert solution.status != "infeasible"
    assert solution.is_optimal() == (solution.status == "optimal")


def test_coordinates_that_no_row_sees_do_not_disturb_gradients(monkeypatch):
    X, z, selection = planted(5, n=30, T=5, d=40)
    X[:, :, 24:] = 0
    plain = solve_attention_svm(X, z, selection, 3.0)
    monkeypatch.setattr(newton, "SMALL", 0)
    monkeypatch.setattr(newton, "MAX_ROWS", 0)
    by_gradients = solve_attention_svm(X, z, selection, 3.0)
    assert "gradients" in by_gradients.method
    assert by_gradients.margin == pytest.approx(plain.margin, rel=1e-7)
    assert not by_gradients.W[24:].any()


def test_boolean_selections_are_copied():
    X, z, selection = planted(1)
    chosen = np.arange(X.shape[1]) == np.asarray(selection)[:, None]
    solution = solve_attention_svm(X, z, chosen)
    chosen[:] = False
    assert solution.selection.any(axis=1).all()


def test_a_solution_of_another_problem_says_nothing_of_local_optimality():
    one, other = mm.synthetic.unit_sphere(1), mm.synthetic.unit_sphere(2)
    chosen = one.optimal_tokens
    solution = solve_attention_svm(one.tokens, one.queries, chosen, 1.75)
    assert is_locally_optimal(one, chosen.astype(float), 1.75, solution=solution)
    for problem, p in ((other, 1.75), (one, 2.0)):
        with pytest.raises(ProblemError, match="solution is not"):
            is_locally_optimal(problem, chosen, p, solution=solution)
    soft = solve_attention_svm(one.tokens, one.queries, chosen, 1.75, C=1.0)
    with pytest.raises(ProblemError, match="solution is not"):
        is_locally_optimal(one, chosen, 1.75, solution=soft)


def _blas_threads():
    return [pool["num_threads"] for pool in ThreadpoolController().info()]


def test_solves_with_a_number_of_threads_wait_for_each_other():
    before = _blas_threads()
    seen = []

    def hold():
        with limit_threads(1):
            seen.append(_blas_threads())

    other = threading.Thread(target=hold)
    with limit_threads(1):
        other.start()
        other.join(0.2)
        assert other.is_alive()
        assert not seen
    other.join()
    assert seen
    assert _blas_threads() == before


@pytest.mark.parametrize("first", range(0, 240, 60))
def test_soft_margins_at_any_price_are_solved_up_to_p_5_and_never_misjudged(first):
    for seed in range(first, first + 60):
        p = min(random_exponent(seed), 5.0) if seed % 4 else random_exponent(seed)
        C = 10 ** np.random.default_rng(seed).uniform(-3, 3)
        solution = solve_attention_svm(*random_problem(seed), p, C=C, raise_on_failure=False)
        assert solution.is_optimal() == (solution.status == "optimal"), seed
        assert solution.status == "optimal" or p > 5, (seed, p, C, solution)
