"""Each twin of the linear algebra against the other: factors and matrix, gradients and Cholesky."""

import numpy as np
import pytest
from svm_problems import farthest, narrow, norm, planted, rows_of

from mirrormargin.svm import attention_svm, solve_attention_svm
from mirrormargin.svm.interior import newton
from mirrormargin.svm.interior.conjugate_gradients import KrylovNewton, Preconditioner
from mirrormargin.svm.interior.constraints import MatrixConstraints, TokenConstraints
from mirrormargin.svm.interior.newton import DirectNewton, Effort, NewtonSystem

SHAPES = [(1, 2, 1), (1, 2, 5), (4, 3, 6), (5, 6, 3), (12, 5, 2)]
KINDS = {"tokens": lambda rows: rows, "matrix": lambda rows: MatrixConstraints(rows.matrix)}

of_each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
of_each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def token_rows(shape, seed=0):
    n, T, d = shape
    rng = np.random.default_rng(seed)
    return TokenConstraints(rng.normal(size=(n, T - 1, d)), rng.normal(size=(n, d)))


def coefficients(constraints, spread=3.0, seed=1):
    """h, k, e as on a path, over some orders of magnitude, and a right-hand side f, g."""
    rng = np.random.default_rng(seed)
    m, D = constraints.num_rows, constraints.num_unknowns
    h, k, e = (10 ** rng.uniform(-spread, 0, size=size) for size in (D, D, m))
    return h, k, e, rng.normal(size=D), rng.normal(size=m)


def assembled(constraints, h, k, e):
    A = constraints.matrix
    return np.block([[np.diag(h), -k[:, None] * A.T], [A, np.diag(e)]])


def block_diagonal(constraints, c, e):
    """``A C A' + E`` without what lies between different blocks."""
    number, size, _ = constraints.blocks(c).shape
    within = np.kron(np.eye(number), np.ones((size, size)))
    A = constraints.matrix
    return within * ((A * c) @ A.T) + np.diag(e)


@of_each_shape
def test_matrix_of_the_factors_is_the_definition(shape):
    n, T, d = shape
    rows = token_rows(shape)
    tokens = np.concatenate([rows.delta, np.zeros((n, 1, d))], axis=1)
    expected = -rows_of((tokens, rows.queries, np.full(n, T - 1)))
    np.testing.assert_allclose(rows.matrix, expected, rtol=1e-15)


@of_each_shape
def test_factors_do_what_their_matrix_does(shape):
    rows = token_rows(shape)
    twin = MatrixConstraints(rows.matrix)
    rng = np.random.default_rng(2)
    w, lam = rng.normal(size=rows.num_unknowns), rng.normal(size=rows.num_rows)
    c = rng.exponential(size=rows.num_unknowns)
    close = {"rtol": 1e-12, "atol": 1e-12}
    assert (rows.num_rows, rows.num_unknowns) == twin.matrix.shape
    np.testing.assert_allclose(rows.apply(w), twin.apply(w), **close)
    np.testing.assert_allclose(rows.adjoint(lam), twin.adjoint(lam), **close)
    np.testing.assert_allclose(rows.gram(c), twin.gram(c), **close)
    np.testing.assert_allclose(rows.gram(c), (twin.matrix * c) @ twin.matrix.T, **close)
    np.testing.assert_allclose(rows.divided(3.0).matrix, twin.divided(3.0).matrix, **close)
    for exponent in (1.05, 2.0, 21.0):
        expected = [norm(row, exponent) for row in twin.matrix]
        np.testing.assert_allclose(rows.row_norms(exponent), expected, **close)
        np.testing.assert_allclose(twin.row_norms(exponent), expected, **close)


@of_each_shape
@of_each_kind
def test_float32_rows_are_the_rows_to_float32(kind, shape):
    constraints = kind(token_rows(shape))
    w = np.random.default_rng(3).normal(size=constraints.num_unknowns)
    y = constraints.single.apply(w.astype(np.float32))
    assert y.dtype == constraints.single.adjoint(y).dtype == np.float32
    np.testing.assert_allclose(y, constraints.apply(w), rtol=0, atol=1e-5)


@of_each_shape
@of_each_kind
def test_adjoint_identity(kind, shape):
    constraints = kind(token_rows(shape))
    rng = np.random.default_rng(4)
    w, lam = rng.normal(size=constraints.num_unknowns), rng.normal(size=constraints.num_rows)
    for rows in (constraints, constraints.divided(1e6)):
        assert rows.apply(w) @ lam == pytest.approx(w @ rows.adjoint(lam), rel=1e-12)


@of_each_shape
@of_each_kind
def test_blocks_and_columns_are_parts_of_the_matrix(kind, shape):
    constraints = kind(token_rows(shape))
    c = np.random.default_rng(5).exponential(size=constraints.num_unknowns)
    blocks = constraints.blocks(c)
    number, size, _ = blocks.shape
    assert number * size == constraints.num_rows
    gram = constraints.gram(c).reshape(number, size, number, size)
    diagonal = gram[np.arange(number), :, np.arange(number), :]
    np.testing.assert_allclose(blocks, diagonal, rtol=1e-12, atol=1e-12)
    chosen, some = np.arange(constraints.num_unknowns)[::2], slice(number // 2, number)
    expected = constraints.matrix.reshape(number, size, -1)[some][:, :, chosen]
    np.testing.assert_allclose(constraints.columns(chosen, some), expected, rtol=1e-15)


@of_each_shape
@of_each_kind
@pytest.mark.parametrize("unbounded", [False, True], ids=["bounded", "outliers"])
def test_preconditioner_inverts_its_blocks_and_outlying_columns(kind, shape, unbounded):
    constraints = kind(token_rows(shape))
    rng = np.random.default_rng(6)
    c, e = rng.uniform(1, 2, size=constraints.num_unknowns), np.ones(constraints.num_rows)
    limited = c
    if unbounded and c.size > 4:
        outlying = rng.choice(c.size, size=c.size // 4, replace=False)
        limit = np.delete(c, outlying).max()
        c[outlying] = 10 ** rng.uniform(2, 6, size=outlying.size)
        limited = np.minimum(c, limit)
    A, x = constraints.matrix, rng.normal(size=constraints.num_rows)
    P = block_diagonal(constraints, limited, e) + (A * (c - limited)) @ A.T
    solved = Preconditioner(constraints, c, e, unbounded)(x)
    expected = np.linalg.solve(P, x)
    np.testing.assert_allclose(solved, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_norms_of_tiny_and_huge_rows_stay_in_range():
    for size in (1e-200, 1e200):
        rows = MatrixConstraints(size * np.array([[3.0, 4.0], [0.0, 0.0]]))
        np.testing.assert_allclose(rows.row_norms(2.0), [5 * size, 0.0], rtol=1e-15)
        assert rows.row_norms(21.0)[0] == pytest.approx(size * norm([3.0, 4.0], 21.0))


@of_each_shape
@of_each_kind
@pytest.mark.parametrize("exact", [False, True], ids=["cholesky", "lu"])
def test_direct_ways_solve_the_newton_system(kind, shape, exact):
    constraints = kind(token_rows(shape))
    h, k, e, f, g = coefficients(constraints)
    expected = np.linalg.solve(assembled(constraints, h, k, e), np.r_[f, g])
    dw, dl, good = DirectNewton(constraints, h, k, e, 1e-12, exact=exact).solve(f, g)
    assert good
    np.testing.assert_allclose(np.r_[dw, dl], expected, atol=1e-9 * np.abs(expected).max())


def test_only_tall_problems_are_factored_in_the_unknowns(monkeypatch):
    wide, tall = token_rows((4, 3, 6)), token_rows((12, 5, 2))
    formed = []
    gram = TokenConstraints.gram
    monkeypatch.setattr(TokenConstraints, "gram", lambda s, c: formed.append(s) or gram(s, c))
    for constraints in (wide, tall):
        DirectNewton(constraints, *coefficients(constraints)[:3], 1e-10)
    assert formed == [wide]


@pytest.mark.parametrize("shape", [*SHAPES, (40, 6, 9)], ids=str)
@of_each_kind
@pytest.mark.parametrize(("double", "tol"), [(False, 1e-3), (True, 1e-3), (True, 1e-8)])
def test_conjugate_gradients_solve_the_newton_system(kind, shape, double, tol):
    constraints = kind(token_rows(shape))
    h, k, e, f, g = coefficients(constraints, spread=1.0)
    dw, dl, good = KrylovNewton(constraints, h, k, e, tol, double=double).solve(f, g)
    assert good
    # The first equation holds to rounding, the second to tol in the preconditioner's norm.
    np.testing.assert_allclose(h * dw - k * constraints.adjoint(dl), f, rtol=0, atol=1e-9)
    rest, start = g - constraints.apply(dw) - e * dl, g - constraints.apply(f / h)
    metric = np.linalg.inv(block_diagonal(constraints, k / h, e))
    assert rest @ metric @ rest <= (1.5 * tol) ** 2 * (start @ metric @ start)


def test_conjugate_gradients_have_nothing_to_do_for_zero():
    rows = token_rows((4, 3, 6))
    h, k, e, f, g = coefficients(rows)
    dw, dl, good = KrylovNewton(rows, h, k, e, 1e-3).solve(0 * f, 0 * g)
    assert good
    assert not dw.any()
    assert not dl.any()


def test_a_system_too_hard_for_one_way_goes_on_to_the_next():
    rows = token_rows((30, 12, 20))
    system = NewtonSystem(rows, 1.5)
    h, k, _, f, g = coefficients(rows)
    e = np.full(rows.num_rows, 1e-12)
    system.update(h, k**5, e, 1e-6)
    assert system.effort < Effort.CHOLESKY
    dw, dl = system.solve(f, g)
    assert system.effort >= Effort.CHOLESKY
    assert np.abs(g - rows.apply(dw) - e * dl).max() <= 1e-6 * np.abs(g).max()


@pytest.mark.parametrize("p", [1.3, 1.5, 2.0, 3.0])
def test_gradients_and_cholesky_find_the_same_solution(p, monkeypatch):
    problem = planted(5, n=50, T=9, d=25)
    monkeypatch.setattr(newton, "SMALL", 10_000)
    factored = solve_attention_svm(*problem, p)
    monkeypatch.setattr(newton, "SMALL", 0)
    monkeypatch.setattr(newton, "MAX_ROWS", 0)
    iterated = solve_attention_svm(*problem, p)
    assert "Cholesky" in factored.method
    assert "conjugate gradients" in iterated.method
    assert iterated.is_optimal()
    assert iterated.margin == pytest.approx(factored.margin, rel=1e-8)
    assert norm(iterated.W - factored.W, p) <= farthest(1e-8, p) * norm(factored.W, p)


@pytest.mark.parametrize("p", [1.3, 2.0, 4.0])
def test_factors_and_matrix_find_the_same_solution(p, monkeypatch):
    problem = planted(6, n=5, T=5, d=6)
    dense = solve_attention_svm(*problem, p)
    monkeypatch.setattr(attention_svm, "DENSE_BELOW", 0)
    by_factors = solve_attention_svm(*problem, p)
    assert by_factors.is_optimal()
    assert by_factors.margin == pytest.approx(dense.margin, rel=1e-8)


@pytest.mark.parametrize("p", [1.2, 1.5, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("seed", range(8))
def test_a_margin_of_one_in_a_million_is_certified(seed, p):
    solution = solve_attention_svm(*narrow(seed, 1e-6), p)
    assert solution.margin < 1e-5
    assert solution.is_optimal()
