"""Margins of 1e-9 to 1e-14 of the constraints: solved, refuted by a proof, or bounded."""

from fractions import Fraction

import numpy as np
import pytest
from svm_problems import Problem, narrow, overdetermined, planted, rows_of, several_selected

from mirrormargin.errors import MarginBelowError, NotSeparableError, SolverError
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm, solve_many, solve_nuclear_svm
from mirrormargin.svm.interior import solver
from mirrormargin.svm.interior.exact_decision import decide_exactly
from mirrormargin.svm.interior.exact_rows import ExactRows
from mirrormargin.svm.interior.infeasibility import prove_with_error_bounds
from mirrormargin.svm.interior.program import Program

EXPONENTS = (1.3, 2.0, 5.0)
LEADS = (1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14)


def exact_rows(problem):
    """A in fractions, one list for each row."""
    X, z, selection = problem
    return [
        [
            (Fraction(float(a)) - Fraction(float(c))) * Fraction(float(q))
            for a, c in zip(X[i, selection[i]], X[i, t], strict=True)
            for q in z[i]
        ]
        for i in range(len(X))
        for t in range(X.shape[1])
        if t != selection[i]
    ]


def least_lead(problem, W):
    w = [Fraction(float(x)) for x in np.ravel(W)]
    return min(sum(a * x for a, x in zip(row, w, strict=True)) for row in exact_rows(problem))


def wedge(lead, rotated=None):
    """Rows (1, 0), (lead, 1), (lead, -1): for lead > 0 the margin is lead, in every norm.

    For lead <= 0 nothing separates: the last two add up to (2 lead, 0).
    """
    delta = np.array([[1.0, 0.0], [lead, 1.0], [lead, -1.0]])
    if rotated is not None:
        delta = delta @ np.linalg.qr(np.random.default_rng(rotated).normal(size=(2, 2)))[0]
    tokens = np.concatenate([np.zeros((1, 2)), -delta])[None]
    return Problem(tokens, np.array([[1.0, 0.0]]), np.array([0]))


def assert_exact_proof(problem, certificate):
    """The multipliers of the certificate cancel the given rows without a rest."""
    assert certificate.proof == "rational numbers"
    _, _, selection = problem
    T = problem.tokens.shape[1]
    index = [(i, t) for i, a in enumerate(selection) for t in range(T) if t != a]
    lam = [certificate.multipliers.get(i, Fraction(0)) for i in index]
    assert min(lam) >= 0
    assert sum(lam) == 1
    assert sum(value != 0 for value in lam) == len(certificate.multipliers)
    columns = zip(*exact_rows(problem), strict=True)
    assert not any(sum(x * a for x, a in zip(lam, column, strict=True)) for column in columns)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("lead", LEADS)
def test_a_known_tiny_margin_that_float64_holds_is_certified(lead, p):
    problem = wedge(lead)
    solution = solve_attention_svm(*problem, p)
    assert solution.status == "optimal"
    assert solution.is_optimal()
    assert solution.margin == pytest.approx(lead, rel=1e-8)
    assert float(least_lead(problem, solution.W)) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("lead", LEADS)
def test_what_is_missed_by_as_little_is_proved_infeasible(lead, p):
    problem = wedge(-lead)
    with pytest.raises(NotSeparableError, match="3 constraints cancel exactly, as ") as caught:
        solve_attention_svm(*problem, p)
    assert_near_proof(problem, caught.value.certificate, Fraction(lead))
    # The same rows in one plane of many: there error bounds have nothing to stand on.
    X, z, selection = problem
    wide = Problem(np.concatenate([X, X[..., ::-1]], axis=2), np.ones((1, 4)), selection)
    wide.tokens[:, :, 2:] *= 2.0
    solution = solve_attention_svm(*wide, p, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert_exact_proof(wide, solution.certificate)


def assert_near_proof(problem, certificate, lead):
    """(2 lead, 1, 1) cancels the rows of the wedge, and the float64 multipliers are near it."""
    exact = np.array([2 * lead, 1, 1]) / (2 + 2 * lead)
    columns = zip(*exact_rows(problem), strict=True)
    assert not any(sum(x * a for x, a in zip(exact, column, strict=True)) for column in columns)
    duals = certificate.duals[0, 1:]
    share = max(certificate.change, 1e-15)
    assert (np.abs(duals / exact.astype(float) - 1) <= 1.01 * share).all()


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("lead", LEADS)
def test_a_tiny_margin_in_no_special_direction_is_solved(lead, p):
    """W rounded to float64 leaves a gap of about 1e-16 / lead, and that much is certified."""
    problem = narrow(2, lead)
    tol = max(1e-8, 30e-16 / lead)
    solution = solve_attention_svm(*problem, p, tol)
    assert solution.is_optimal()
    assert 0.1 * lead < solution.margin < 10 * lead
    assert least_lead(problem, solution.W) > 0
    assert solution.gap <= tol


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_a_problem_that_separates_is_never_called_infeasible(seed, lead, p):
    problem = narrow(seed, lead)
    solution = solve_attention_svm(*problem, p, raise_on_failure=False)
    assert solution.status in ("optimal", "cannot certify", "max iterations")
    assert least_lead(problem, solution.W) > 0
    for method in (solve_many_of, solve_nuclear_of):
        other = method(problem, p)
        assert other.status != "infeasible"
        assert least_lead(problem, other.W) > 0


def solve_many_of(problem, p):
    from mirrormargin.attention import AttentionProblem

    X, z, selection = problem
    members = AttentionProblem(X, z, np.ones(len(X)), np.ones(X.shape[2]))
    return solve_many(members, selection, p, raise_on_failure=False)[0, 0, 0]


def solve_nuclear_of(problem, p):
    return solve_nuclear_svm(*problem, raise_on_failure=False)


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_decoder_of_tiny_margin_is_certified(p):
    solution = solve_decoder_svm([[1.0, 0.0], [1e-13, 1.0], [1e-13, -1.0]], [1, 1, 1], p)
    assert solution.margin == pytest.approx(1e-13, rel=1e-8)
    with pytest.raises(NotSeparableError) as caught:
        solve_decoder_svm([[1.0, 0.0], [-1e-13, 1.0], [-1e-13, -1.0]], [1, 1, 1], p)
    assert caught.value.certificate.proof is not None
    assert caught.value.certificate.duals == pytest.approx([1e-13, 0.5, 0.5], rel=1e-3)


def opposite(seed):
    X, z, selection = planted(seed, n=3)
    X[2], z[2] = X[0], 0.5 * z[0]
    selection[2] = (selection[0] + 1) % X.shape[1]
    return Problem(X, z, selection)


def duplicated(seed):
    problem = opposite(seed)
    return Problem(*(np.concatenate([array, array]) for array in problem))


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("build", [opposite, duplicated])
@pytest.mark.parametrize("seed", range(3))
def test_opposite_and_repeated_rows_have_an_exact_proof(seed, build, p):
    problem = build(seed)
    solution = solve_attention_svm(*problem, p, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert_exact_proof(problem, solution.certificate)


def test_a_row_of_zeros_is_its_own_proof():
    X, z, selection = planted(3)
    X[1, (selection[1] + 1) % 4] = X[1, selection[1]]
    solution = solve_attention_svm(X, z, selection, raise_on_failure=False)
    assert solution.certificate.multipliers == {(1, (selection[1] + 1) % 4): 1}
    assert_exact_proof(Problem(X, z, selection), solution.certificate)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_many_constraints_are_refuted_by_error_bounds(seed, p):
    solution = solve_attention_svm(*overdetermined(seed), p, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert solution.certificate.proof == "error bounds"
    assert 0 < solution.certificate.change < 1e-3


def test_error_bounds_prove_nothing_of_what_separates():
    """Multipliers that cancel rows to 1e-12 are no proof: these rows separate."""
    problem = wedge(1e-13, rotated=0)
    A = rows_of(problem)
    constraints = solve_decoder_svm(A, np.ones(3), raise_on_failure=False).program.constraints
    program = Program(constraints, 2.0, np.ones(3), np.zeros(3, bool))
    lam = np.array([1e-13, 0.5, 0.5])
    assert np.linalg.norm(lam @ A) < 1e-12
    assert prove_with_error_bounds(program, lam) is None


@pytest.mark.parametrize("p", EXPONENTS)
def test_neither_solution_nor_proof_is_a_margin_below_a_bound(p):
    problem = narrow(2, 0.0)
    with pytest.raises(MarginBelowError, match=r"^the margin is below .* nor a proof") as caught:
        solve_attention_svm(*problem, p)
    error = caught.value
    assert isinstance(error, SolverError)
    assert not isinstance(error, NotSeparableError)
    assert error.solution.status == "margin below"
    assert error.bound < 1e-14
    assert error.certificate.proof is None
    assert "\n" not in str(error)
    # The bound is |A' lam|_q of multipliers that sum to one, with room for rounding.
    q = p / (p - 1)
    A, lam = rows_of(problem), error.certificate.duals
    rows = lam[np.arange(4) != problem.selection[:, None]]
    assert rows.sum() == pytest.approx(1)
    size = np.linalg.norm(rows @ A, q) / max(np.linalg.norm(a, q) for a in A)
    assert size <= error.bound


def test_a_mean_that_is_rounded_refutes_nothing():
    """A token at the rounded mean of two that attend equally may trail them by the rounding."""
    X, z, selection = several_selected(0)
    chosen = np.flatnonzero(selection[1])
    X[1, np.flatnonzero(~selection[1])[0]] = X[1, chosen[:2]].mean(axis=0)
    for p in EXPONENTS:
        solution = solve_attention_svm(X, z, selection, p, raise_on_failure=False)
        assert solution.status in ("margin below", "cannot certify")
        with pytest.raises(SolverError) as caught:
            solution.check()
        assert not isinstance(caught.value, NotSeparableError)


def test_solve_many_raises_the_error_of_a_tiny_margin():
    from mirrormargin.attention import AttentionProblem

    X, z, selection = narrow(2, 0.0)
    problem = AttentionProblem(X, z, np.ones(4), np.ones(4))
    with pytest.raises(MarginBelowError, match=r"^problem 0, p = 2, selection 0: the margin is"):
        solve_many(problem, selection)


def test_ordinary_problems_never_ask_for_exact_arithmetic(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("exact arithmetic")

    for name in ("decide", "find_exact_rows", "measure_exactly", "scale_to_lead"):
        monkeypatch.setattr(solver, name, refuse)
    for p in EXPONENTS:
        for compiled in (True, False):
            assert solve_attention_svm(*planted(4), p, compiled=compiled).status == "optimal"


@pytest.mark.parametrize("seed", range(20))
def test_the_exact_decision_is_the_shortest_w_or_a_proof(seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, size=(int(rng.integers(2, 9)), 3)).astype(float)
    A = A[A.any(axis=1)]
    rows, m = ExactRows.of_matrix(A), len(A)
    decision = decide_exactly(rows, np.ones(m), np.zeros(m, bool), [])
    assert decision is not None
    lam = [decision.multipliers.get(k, Fraction(0)) for k in range(m)]
    assert min(lam) >= 0
    u = [sum(x * Fraction(a) for x, a in zip(lam, column, strict=True)) for column in A.T]
    y = [sum(a * Fraction(b) for a, b in zip(u, row, strict=True)) for row in A]
    if decision.separates:  # Karush, Kuhn and Tucker, without a tolerance
        assert min(y) == 1
        assert all(x == 0 or value == 1 for x, value in zip(lam, y, strict=True))
    else:
        assert sum(lam) == 1
        assert not any(u)
