"""The dual barrier certifies soft margins near p = 1, where the shorter path loses its way."""

import numpy as np
import pytest

from mirrormargin.svm import solve_decoder_svm
from mirrormargin.svm.interior import solver
from mirrormargin.svm.interior.constraints import MatrixConstraints
from mirrormargin.svm.interior.program import Program, measure_gap
from mirrormargin.svm.interior.soft_barrier import follow_barrier


def make_mixed_classes(seed, n=100, d=20):
    """Two classes that nothing separates: the label is that of one noisy coordinate."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.where(x[:, 0] + rng.normal(size=n) > 0, 1, -1)


def build_program(x, y, p, C):
    rows = x * y[:, None]
    return Program(MatrixConstraints(rows), p, np.ones(len(x)), np.zeros(len(x), bool), C)


@pytest.mark.parametrize(("p", "seed"), [(1.05, 3), (1.1, 0), (1.2, 2)])
def test_a_soft_margin_near_one_is_certified_where_nothing_separates(p, seed):
    solution = solve_decoder_svm(*make_mixed_classes(seed), p, C=100.0)
    assert solution.method.startswith("dual barrier")  # if not, another problem is needed here
    assert solution.is_optimal()


def test_at_a_huge_price_the_longer_path_is_better():
    """Features of very different sizes, at a price at which the margin is all but hard."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(57, 25)) * 10.0 ** rng.uniform(-4, 4, size=25))
    solution = solve_decoder_svm(x, rng.choice([-1, 1], 57), 1.2, 1e-6, C=7e6)
    assert solution.iterations > solver.FEW_STEPS
    assert not solution.method.startswith("dual barrier")
    assert solution.is_optimal()


def test_the_barrier_ends_where_rounding_is_all_that_is_left():
    program = build_program(*make_mixed_classes(0), 1.5, 1.0)
    with np.errstate(all="ignore"):  # as in solve_program
        path = follow_barrier(program, 0.0, 500, np.ones(100))
    assert path.iterations < 200
    assert 0 < path.bounds.gap < 1e-12


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("p", [1.3, 1.5, 1.9])
@pytest.mark.parametrize("shape", [(60, 10), (12, 40)], ids=["rows", "unknowns"])
def test_the_barrier_ends_where_the_path_does(shape, p, C):
    x, y = make_mixed_classes(0, *shape)
    solution = solve_decoder_svm(x, y, p, C=C, tol=1e-9)
    assert not solution.method.startswith("dual barrier")
    program = build_program(x, y, p, C)
    path = follow_barrier(program, 1e-9, 200, np.ones(len(x)))
    assert path.bounds.w is not None
    assert path.bounds.lam is not None
    assert measure_gap(program, path.bounds.w, path.bounds.lam) <= 1e-9
    np.testing.assert_allclose(path.bounds.w, solution.w, atol=1e-3 * np.abs(solution.w).max())


def test_the_barrier_keeps_to_the_number_of_steps():
    program = build_program(*make_mixed_classes(0), 1.1, 100.0)
    path = follow_barrier(program, 1e-8, 7, np.ones(100))
    assert path.iterations == 7
    assert path.bounds.gap > 1e-8


def test_few_steps_are_left_to_the_path_and_the_rest_to_the_barrier():
    x, y = make_mixed_classes(2)
    options = {"C": 100.0, "raise_on_failure": False}
    solution = solve_decoder_svm(x, y, 1.2, max_iter=solver.FEW_STEPS + 10, **options)
    assert solution.status == "max iterations"
    assert solution.iterations == solver.FEW_STEPS + 10
