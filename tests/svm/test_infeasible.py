"""Problems that nothing separates: the proof, the error that carries it, and false alarms."""

import numpy as np
import pytest
from svm_problems import Problem, narrow, norm, overdetermined, planted, rows_of, several_selected

from mirrormargin.errors import MirrorMarginError, NotSeparableError, SolverError
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm

EXPONENTS = (1.3, 2.0, 5.0)


def contradiction(seed=0):
    """The same tokens twice, and another selection the second time."""
    X, z, selection = planted(seed, n=3)
    X[2], z[2] = X[0], z[0]
    selection[2] = (selection[0] + 1) % X.shape[1]
    return Problem(X, z, selection)


def assert_proves(problem, p, solution):
    """Nonnegative multipliers of sum one cancel the rows, to 1e-12 of the largest."""
    X, _, selection = problem
    others = np.arange(X.shape[1]) != selection[:, None]
    q = p / (p - 1)
    A, duals = rows_of(problem), solution.certificate.duals
    largest = max(norm(a, q) for a in A)
    assert duals.min() >= 0
    assert duals.sum() == pytest.approx(1, abs=1e-12)
    assert (duals[~others] == 0).all()
    assert norm(duals[others] @ A, q) <= 1e-12 * largest
    assert solution.certificate.bound <= 1e-12


def assert_one_clear_line(error):
    message = str(error)
    assert "\n" not in message
    assert 40 < len(message) < 250
    assert message == message.strip()


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize(("selected", "twin"), [(0, 3), (2, 1), (3, 0)])
def test_identical_tokens_are_named(p, selected, twin):
    X, z, selection = planted(1)
    selection[2] = selected
    X[2, twin] = X[2, selected]
    with pytest.raises(
        NotSeparableError,
        match=rf"in sequence 2 the selected token {selected} equals token {twin}",
    ) as caught:
        solve_attention_svm(X, z, selection, p)
    assert caught.value.certificate.identical == (2, selected, twin)
    assert_proves(Problem(X, z, selection), p, caught.value.solution)
    assert_one_clear_line(caught.value)


def test_a_problem_of_one_repeated_token_is_named_as_such():
    with pytest.raises(NotSeparableError, match=r"in sequence 0 .* token 0 equals token 1"):
        solve_attention_svm(np.ones((1, 2, 3)), np.ones((1, 3)), [0])


def test_decoder_does_not_separate_a_feature_of_zeros():
    with pytest.raises(NotSeparableError) as caught:
        solve_decoder_svm([[1.0, 2.0], [0.0, 0.0]], [1, -1])
    assert caught.value.certificate.duals.tolist() == [0.0, 1.0]
    assert_one_clear_line(caught.value)


def test_decoder_does_not_separate_zeros_alone():
    with pytest.raises(NotSeparableError):
        solve_decoder_svm([[0.0, 0.0]], [1])


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_two_selections_of_the_same_tokens_contradict(seed, p):
    problem = contradiction(seed)
    with pytest.raises(NotSeparableError, match=r"constraints cancel .* soft margin, C=") as caught:
        solve_attention_svm(*problem, p)
    assert_proves(problem, p, caught.value.solution)
    assert_one_clear_line(caught.value)
    a, b = problem.selection[0], problem.selection[2]
    duals = caught.value.certificate.duals
    assert duals[0, b] == pytest.approx(0.5, abs=1e-6)
    assert duals[2, a] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(10))
def test_random_overdetermined_problems_are_proven_infeasible(seed, p):
    problem = overdetermined(seed)
    with pytest.raises(NotSeparableError) as caught:
        solve_attention_svm(*problem, p)
    assert_proves(problem, p, caught.value.solution)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(5))
def test_decoder_proves_random_labels_infeasible(seed, p):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(60, 4)), rng.choice([-1.0, 1.0], size=60)
    with pytest.raises(NotSeparableError) as caught:
        solve_decoder_svm(x, y, p)
    duals = caught.value.certificate.duals
    q = p / (p - 1)
    assert duals.min() >= 0
    assert duals.sum() == pytest.approx(1, abs=1e-12)
    assert norm(duals @ (x * y[:, None]), q) <= 1e-12 * max(norm(row, q) for row in x)


@pytest.mark.parametrize("p", EXPONENTS)
def test_equalities_that_leave_nothing_are_proven_infeasible(p):
    X, z, selection = several_selected(0)
    X = np.ldexp(np.round(np.ldexp(X, 20)), -20)
    # The third token is the mean of two selected ones, which attend equally, and must trail them.
    # Tokens of 20 binary places have an exact mean.
    chosen = np.flatnonzero(selection[1])
    X[1, np.flatnonzero(~selection[1])[0]] = X[1, chosen[:2]].mean(axis=0)
    solution = solve_attention_svm(X, z, selection, p, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert solution.certificate.duals[~selection].min() >= 0
    assert solution.certificate.duals[~selection].sum() == pytest.approx(1, abs=1e-12)
    assert solution.certificate.bound <= 1e-12


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6])
def test_the_scale_of_the_data_condemns_nothing(p, scale):
    X, z, selection = planted(2)
    margin = solve_attention_svm(X, z, selection, p).margin
    for tokens, queries in ((scale * X, z), (X, scale * z)):
        solution = solve_attention_svm(tokens, queries, selection, p)
        assert solution.margin == pytest.approx(scale * margin, rel=1e-8)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6])
def test_the_scale_of_the_data_pardons_nothing(p, scale):
    X, z, selection = overdetermined(3)
    for tokens, queries in ((scale * X, z), (X, scale * z)):
        problem = Problem(tokens, queries, selection)
        solution = solve_attention_svm(*problem, p, raise_on_failure=False)
        assert solution.status == "infeasible"
        assert_proves(problem, p, solution)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("lead", [1e-3, 1e-5, 1e-6])
def test_a_small_margin_is_not_called_infeasible(p, lead):
    solution = solve_attention_svm(*narrow(2, lead), p)
    assert 0.1 * lead < solution.margin < 10 * lead


@pytest.mark.parametrize("lead", [1e-9, 1e-11])
@pytest.mark.parametrize("p", EXPONENTS)
def test_a_margin_too_small_to_certify_is_admitted(p, lead):
    solution = solve_attention_svm(*narrow(2, lead), p, raise_on_failure=False)
    assert solution.status in ("margin below", "cannot certify", "max iterations")
    assert not solution.is_optimal()
    with pytest.raises(SolverError) as caught:
        solution.check()
    assert not isinstance(caught.value, NotSeparableError)
    assert_one_clear_line(caught.value)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("build", [contradiction, overdetermined])
def test_without_raising_the_record_holds_no_weights(build, p):
    problem = build(4)
    solution = solve_attention_svm(*problem, p, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert solution.W.shape == (problem.tokens.shape[2],) * 2
    assert np.isnan(solution.W).all()
    assert solution.margin == 0
    assert solution.gap == np.inf
    assert not solution.support.any()
    np.testing.assert_array_equal(solution.duals, solution.certificate.duals)
    assert not solution.is_optimal()
    assert not solution.is_optimal(0.5)
    assert solution.residuals().gap == np.inf
    assert_proves(problem, p, solution)


def test_without_raising_identical_tokens_are_in_the_certificate():
    X, z, selection = planted(5)
    X[1, (selection[1] + 2) % 4] = X[1, selection[1]]
    solution = solve_attention_svm(X, z, selection, raise_on_failure=False)
    assert solution.status == "infeasible"
    assert solution.certificate.identical == (1, selection[1], (selection[1] + 2) % 4)
    assert np.isnan(solution.W).all()


def test_errors_have_the_classes_that_a_caller_expects():
    with pytest.raises(SolverError) as caught:
        solve_attention_svm(*contradiction())
    assert isinstance(caught.value, (NotSeparableError, MirrorMarginError, RuntimeError))
    assert caught.value.certificate is caught.value.solution.certificate


@pytest.mark.parametrize("p", EXPONENTS)
def test_one_sequence_less_and_the_rest_separates(p):
    problem = contradiction(6)
    rest = Problem(*(array[:2] for array in problem))
    assert solve_attention_svm(*rest, p).is_optimal()
