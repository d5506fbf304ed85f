"""Soft margins, relaxed sequences, several selected tokens and the decoder, against CVXPY."""

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from svm_problems import norm, overdetermined, planted, rows_of, several_selected, solve_by_cvxpy

from mirrormargin.errors import NotSeparableError
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm

EXPONENTS = (1.5, 2.0, 3.0)
ROUNDING = 1e-12


def soft_objective(solution, C):
    """Computed anew from W: the sum of its power and the price of what it falls short."""
    return norm(solution.w, solution.p) ** solution.p / solution.p + C * solution.shortfalls.sum()


def program_of(X, z, selection, rhs=None):
    """(A, b, equality) by the definition, against the first selected token of each sequence."""
    n, T, _ = X.shape
    first = selection.argmax(axis=1)
    others = np.arange(T) != first[:, None]
    b = np.where(selection, 0.0, 1.0 if rhs is None else np.asarray(rhs, float)[:, None])
    return rows_of((X, z, first)), b[others], selection[others]


@pytest.mark.parametrize("C", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("build", [planted, overdetermined])
def test_soft_margin_agrees_with_cvxpy(build, p, C):
    problem = build(1)
    A = rows_of(problem)
    expected, _ = solve_by_cvxpy(A, np.ones(len(A)), p, C=C)
    solution = solve_attention_svm(*problem, p, C=C)
    assert solution.is_optimal()
    assert soft_objective(solution, C) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("C", [1e-4, 0.1, 3.0, 1e3])
def test_soft_multipliers_stay_in_their_box(p, C):
    problem = overdetermined(2)
    solution = solve_attention_svm(*problem, p, C=C)
    assert solution.gap <= 1e-8
    assert solution.duals.min() >= 0
    assert solution.duals.max() <= C
    others = np.arange(4) != problem.selection[:, None]
    unpaid = (C - solution.duals)[others] * solution.shortfalls[others]
    assert solution.shortfalls.max() > 0
    assert unpaid.sum() <= (solution.gap + ROUNDING) * soft_objective(solution, C)


@pytest.mark.parametrize("p", EXPONENTS)
def test_where_nothing_separates_a_soft_margin_has_an_answer(p):
    problem = overdetermined(3)
    with pytest.raises(NotSeparableError):
        solve_attention_svm(*problem, p)
    solution = solve_attention_svm(*problem, p, C=1.0)
    assert solution.status == "optimal"
    assert solution.shortfalls.max() > 0


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_price_above_every_multiplier_gives_the_hard_margin(p):
    problem = planted(4)
    hard = solve_attention_svm(*problem, p)
    soft = solve_attention_svm(*problem, p, C=2 * hard.duals.max())
    assert soft.margin == pytest.approx(hard.margin, rel=1e-6)
    assert soft.shortfalls.max() <= 1e-6
    np.testing.assert_array_equal(soft.support, hard.support)


@pytest.mark.parametrize("p", EXPONENTS)
def test_identical_tokens_cost_their_price_under_a_soft_margin(p):
    X, z, selection = planted(5)
    twin = (selection[0] + 1) % 4
    X[0, twin] = X[0, selection[0]]
    C = 2.0
    solution = solve_attention_svm(X, z, selection, p, C=C)
    A = rows_of((X, z, selection))
    rest = A[A.any(axis=1)]
    expected, _ = solve_by_cvxpy(rest, np.ones(len(rest)), p, C=C)
    assert solution.shortfalls[0, twin] == 1.0
    assert soft_objective(solution, C) == pytest.approx(expected + C, rel=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_relaxed_sequences_agree_with_cvxpy(seed, p):
    X, z, selection = planted(seed, n=5)
    rhs = np.array([1, 0, 1, 0, 0])
    A, b = rows_of((X, z, selection)), np.repeat(rhs, 3).astype(float)
    expected, _ = solve_by_cvxpy(A, b, p)
    solution = solve_attention_svm(X, z, selection, p, rhs=rhs)
    y = A @ solution.w
    q = p / (p - 1)
    sizes = np.array([norm(a, q) for a in A]) * norm(solution.w, p)
    assert solution.is_optimal()
    assert norm(solution.W, p) == pytest.approx(expected, rel=1e-7)
    assert y[b == 1].min() >= 1 - ROUNDING
    assert (y[b == 0] / sizes[b == 0]).min() >= -1e-9
    assert solution.margin >= solve_attention_svm(X, z, selection, p).margin * (1 - 1e-8)


def test_a_relaxed_sequence_may_hold_identical_tokens():
    X, z, selection = planted(6)
    X[0] = X[0, :1]
    solution = solve_attention_svm(X, z, selection, 1.5, rhs=[0, 1, 1, 1])
    alone = solve_attention_svm(X[1:], z[1:], selection[1:], 1.5)
    assert solution.margin == pytest.approx(alone.margin, rel=1e-8)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", [0, 1, 6, 8])
def test_several_selected_tokens_agree_with_cvxpy(seed, p):
    X, z, selection = several_selected(seed)
    A, b, equality = program_of(X, z, selection)
    expected, _ = solve_by_cvxpy(A, b, p, equality)
    solution = solve_attention_svm(X, z, selection, p)
    assert solution.is_optimal()
    assert norm(solution.W, p) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("p", EXPONENTS)
def test_selected_tokens_attend_equally_and_lead_by_one(p):
    X, z, selection = several_selected(3)
    solution = solve_attention_svm(X, z, selection, p)
    logits = np.einsum("ntd,de,ne->nt", X, solution.W, z)
    for row, chosen in zip(logits, selection, strict=True):
        np.testing.assert_allclose(row[chosen], row[chosen][0], rtol=0, atol=1e-8)
        assert row[chosen].min() - row[~chosen].max() >= 1 - 1e-8
    assert (solution.duals[~selection] >= 0).all()
    first = selection.argmax(axis=1)
    assert (solution.duals[np.arange(len(X)), first] == 0).all()


@pytest.mark.parametrize("p", EXPONENTS)
def test_booleans_with_single_tokens_are_the_integers(p):
    X, z, selection = planted(7)
    integers = solve_attention_svm(X, z, selection, p)
    for convert in (np.array, np.ndarray.tolist, torch.tensor):
        booleans = solve_attention_svm(X, z, convert(np.arange(4) == selection[:, None]), p)
        assert booleans.W.tobytes() == integers.W.tobytes()


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("C", [None, 0.1, 10.0])
def test_all_variants_together_agree_with_cvxpy(p, C):
    X, z, selection = several_selected(8)
    rhs = [1, 1, 0, 1]
    A, b, equality = program_of(X, z, selection, rhs)
    expected, _ = solve_by_cvxpy(A, b, p, equality, C)
    solution = solve_attention_svm(X, z, selection, p, rhs=rhs, C=C)
    assert solution.is_optimal()
    reached = norm(solution.W, p) if C is None else soft_objective(solution, C)
    assert reached == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("variant", ["soft", "relaxed", "several"])
def test_a_variant_starts_from_its_own_solution(p, variant):
    X, z, selection = several_selected(9)
    changed = {"soft": {"C": 0.3}, "relaxed": {"rhs": [0, 1, 1, 0]}, "several": {}}[variant]
    cold = solve_attention_svm(X, z, selection, p, **changed)
    warm = solve_attention_svm(X, z, selection, p, **changed, warm_start=cold)
    assert warm.is_optimal()
    assert warm.margin == pytest.approx(cold.margin, rel=1e-6)


def samples(seed, n=12, d=5):
    """Features that a random head classifies, and its labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.where(x @ rng.normal(size=d) > 0, 1, -1)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 9.0])
@pytest.mark.parametrize("seed", range(3))
def test_decoder_agrees_with_cvxpy(seed, p):
    x, y = samples(seed)
    expected, _ = solve_by_cvxpy(x * y[:, None], np.ones(len(x)), p)
    solution = solve_decoder_svm(x, y, p)
    assert solution.is_optimal()
    assert norm(solution.v, p) == pytest.approx(expected, rel=1e-7)
    assert solution.margin == pytest.approx(1 / norm(solution.v, p), rel=1e-14)
    assert (y * (x @ solution.v)).min() >= 1 - ROUNDING
    assert solution.duals.shape == solution.support.shape == (len(x),)


@pytest.mark.parametrize("C", [0.05, 2.0, None])
def test_decoder_at_p2_agrees_with_libsvm(C):
    # Scikit-learn's machine has an intercept; each sample with its negative keeps that at zero,
    # and makes two rows of one, so that the price of the pair is twice the price of a row.
    x, y = samples(4, n=20)
    machine = SVC(kernel="linear", C=1e9 if C is None else C / 2, tol=1e-10)
    machine.fit(np.concatenate([x, -x]), np.concatenate([y, -y]))
    solution = solve_decoder_svm(x, y, 2.0, 1e-12, C=C)
    assert machine.intercept_[0] == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(solution.v, machine.coef_[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
def test_decoder_has_a_soft_margin(p):
    x, y = samples(5)
    y[:3] *= -1
    expected, _ = solve_by_cvxpy(x * y[:, None], np.ones(len(x)), p, C=0.5)
    solution = solve_decoder_svm(x, y, p, C=0.5)
    short = np.maximum(1 - y * (x @ solution.v), 0).sum()
    assert solution.is_optimal()
    assert norm(solution.v, p) ** p / p + 0.5 * short == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
def test_decoder_starts_from_its_own_solution(p):
    x, y = samples(6)
    cold = solve_decoder_svm(x, y, p)
    for start in (cold, cold.duals):
        warm = solve_decoder_svm(torch.tensor(x), y.tolist(), p, warm_start=start, threads=1)
        assert warm.is_optimal()
        assert warm.margin == pytest.approx(cold.margin, rel=1e-8)


def test_decoder_separates_what_the_attention_svm_separates():
    # All queries are the first unit vector: only the first column of W meets the tokens.
    x, y = samples(7, d=4)
    tokens = np.stack([x * y[:, None], np.zeros_like(x)], axis=1)
    queries = np.zeros_like(x)
    queries[:, 0] = 1.0
    attention = solve_attention_svm(tokens, queries, np.zeros(len(x), int), 1.5)
    np.testing.assert_allclose(attention.W[:, 0], solve_decoder_svm(x, y, 1.5).v, atol=1e-4)
    assert not attention.W[:, 1:].any()
