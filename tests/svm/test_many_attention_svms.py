"""solve_many: the compiled solver against the general one, its certificates, and its threads."""

import itertools

import numpy as np
import pytest

pytest.importorskip("numba", reason="compiled code needs Numba", exc_type=ImportError)
from svm_problems import PUBLISHED, farthest, norm

from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.errors import NotSeparableError, ProblemError, SolverError
from mirrormargin.svm import Status, attention_svm, solve_attention_svm
from mirrormargin.svm.attention_svm import build_program
from mirrormargin.svm.compiled import candidates
from mirrormargin.svm.inputs import Jobs, fits_kernel
from mirrormargin.svm.interior.program import measure_gap, rounding
from mirrormargin.svm.many_attention_svms import COMPILED, solve_many

EXPONENTS = [1.1, 1.5, 2.0, 3.0, 10.0]
# Few rows, as many rows as unknowns, many rows, two tokens, one sequence, one row, one unknown.
SHAPES = [(6, 8, 10), (4, 5, 4), (12, 6, 3), (7, 2, 5), (1, 6, 4), (1, 2, 2), (4, 3, 1)]


def make_problem(tokens, queries):
    n, _, d = np.shape(tokens)
    return AttentionProblem(tokens, queries, np.ones(n), np.ones(d))


def planted(seed, shape, scale=1.0):
    """A random problem, and the selection of a random W: separable."""
    rng = np.random.default_rng(seed)
    n, T, d = shape
    problem = make_problem(scale * rng.normal(size=shape), rng.normal(size=(n, d)))
    return problem, problem.selected_tokens(rng.normal(size=(d, d)))


def planted_batch(seeds, shape):
    problems, selections = zip(*(planted(seed, shape) for seed in seeds), strict=True)
    return list(problems), np.array(selections)[:, None, None, :]


def spheres(seeds):
    problems = [synthetic.unit_sphere(seed) for seed in seeds]
    return problems, np.array([problem.optimal_tokens for problem in problems])[:, None, None, :]


def places(record):
    P, E, inits = record.status.shape
    return itertools.product(range(P), range(E), range(inits))


def assert_same_bits(first, second):
    for name in ("W", "margin", "gap", "duals", "support", "iterations"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert (first.status == second.status).all()


def not_separable(shape):
    """Two problems of this shape (at least two sequences) that no W solves, and selections."""
    problem, selection = planted(0, shape)
    twins = problem.tokens.copy()
    twins[1, 0] = twins[1, 1]
    opposite, queries = problem.tokens.copy(), problem.queries.copy()
    opposite[1], queries[1] = opposite[0], queries[0]
    chosen = np.array([selection, selection])
    chosen[0, 1] = 1
    chosen[1, :2] = 0, 1
    return [make_problem(twins, problem.queries), make_problem(opposite, queries)], chosen


# The solutions.


def test_the_kernel_certifies_the_standard_problems_alone():
    problems, selections = spheres(range(1, 101))
    record = solve_many(problems, selections, [1.75, 2.0, 3.0])
    assert (record.status == Status.OPTIMAL).all()
    assert (record.method == COMPILED).all()
    assert all(record[place].is_optimal() for place in places(record))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_element_equals_the_general_solution(shape):
    problems, selections = planted_batch(range(3), shape)
    record = solve_many(problems, selections, EXPONENTS, tol=1e-10)
    for i, j, k in places(record):
        problem, p = problems[i], EXPONENTS[j]
        expected = solve_attention_svm(
            problem.tokens, problem.queries, selections[i, 0, 0], p, tol=1e-10
        )
        W, element = record.W[i, j, k], record[i, j, k]
        assert norm(W, p) == pytest.approx(norm(expected.W, p), rel=1e-9)
        assert norm(W - expected.W, p) <= 2 * farthest(1e-10, p) * norm(expected.W, p)
        assert element.is_optimal()
        np.testing.assert_array_equal(element.W, W)
        np.testing.assert_array_equal(element.support, expected.support)
        np.testing.assert_allclose(
            element.duals, expected.duals, rtol=0, atol=1e-3 * expected.duals.max()
        )
        assert element.margin == pytest.approx(expected.margin, rel=1e-9)
        assert record.gap[i, j, k] <= 1e-10


def test_published_optima_are_reached():
    problem = synthetic.unit_sphere(1)
    record = solve_many(problem, problem.optimal_tokens, list(PUBLISHED))
    np.testing.assert_allclose(1 / record.margin[0, :, 0], list(PUBLISHED.values()), rtol=1e-7)


def test_varied_problems_hardly_ever_need_the_general_solver():
    rng = np.random.default_rng(0)
    compiled = []
    for seed in range(300):
        shape = rng.integers(1, 9), rng.integers(2, 9), rng.integers(2, 11)
        problem, selection = planted(seed, shape, scale=10 ** rng.uniform(-6, 6))
        p = 1 + 0.05 * (19 / 0.05) ** rng.random()
        record = solve_many(problem, selection, p)
        assert record[0, 0, 0].is_optimal()
        compiled.append(record.method[0, 0, 0] == COMPILED)
    assert np.mean(compiled) >= 0.99


def test_coordinates_in_which_all_tokens_agree_do_no_harm():
    problem, selection = planted(3, (4, 6, 5))
    tokens, queries = problem.tokens.copy(), problem.queries.copy()
    tokens[:, :, 2], queries[:, 4] = 1.0, 0.0
    record = solve_many(make_problem(tokens, queries), selection, [1.2, 2.0, 4.0, 12.0])
    assert (record.method == COMPILED).all()
    assert (record.W[..., 2, :] == 0).all()
    assert (record.W[..., :, 4] == 0).all()


def test_a_problem_too_large_for_the_kernel_is_solved_by_the_general_path():
    problem, selection = planted(0, (60, 8, 4))
    record = solve_many(problem, selection, 1.5)
    expected = solve_attention_svm(problem.tokens, problem.queries, selection, 1.5, threads=1)
    np.testing.assert_array_equal(record.W[0, 0, 0], expected.W)
    assert record.method[0, 0, 0] == expected.method != COMPILED


@pytest.mark.parametrize("tol", [1e-9, 0.2])
@pytest.mark.parametrize("p", [1.2, 1.75, 2.0, 3.0, 6.0])
def test_candidates_are_measured_like_single_solutions(p, tol):
    """The formulas of the gap and its rounding are written for one program, and for a batch."""
    problems, chosen = planted_batch(range(4), (3, 5, 4))
    jobs = Jobs(
        np.stack([problem.tokens for problem in problems]),
        np.stack([problem.queries for problem in problems]),
        np.arange(4),
        chosen.reshape(4, 3),
        np.full(4, p),
    )
    found = candidates.solve_jobs(jobs, tol, 200, threads=1)
    assert (found.gap <= tol).all()
    for j, problem in enumerate(problems):
        program = build_program(problem.tokens, problem.queries, jobs.chosen[j], p, np.ones(3))
        w, lam = found.W[j].reshape(-1), found.lam[j].reshape(-1)
        assert found.gap[j] == pytest.approx(measure_gap(program, w, lam), rel=1e-12, abs=1e-14)
        assert found.rounding[j] == pytest.approx(rounding(program, w, lam), rel=1e-6, abs=1e-15)


def lie(w, lam):
    """A kernel that claims a gap of zero for whatever it is told to offer."""

    def kernel(p, tol, max_iter, A, At, factor, rows, unknowns, *rest):
        unknowns[candidates.at.BEST_W] = w
        rows[candidates.at.BEST_LAM] = lam
        return 1, 0.0, 0

    return kernel


@pytest.mark.parametrize(("w", "lam"), [(np.nan, 1.0), (1.0, np.nan), (0.0, 0.0), (1.0, -1.0)])
def test_what_the_kernel_offers_is_not_believed(monkeypatch, w, lam):
    monkeypatch.setattr(candidates, "load_kernel", lambda: lie(w, lam))
    problems, selections = planted_batch(range(2), (3, 4, 3))
    record = solve_many(problems, selections, [1.5, 3.0])
    assert (record.method != COMPILED).all()
    assert all(record[place].is_optimal() for place in places(record))


# The axes.


def test_selections_broadcast_from_the_right():
    problems, best = planted_batch(range(3), (3, 4, 6))
    p = [1.5, 2.0]
    one, two = best[0, 0, 0], best[:2, 0, 0]
    for selections, inits in [(one, 1), (two, 2), (best, 1), (two[None, None], 2)]:
        record = solve_many(problems, selections, p, raise_on_failure=False)
        assert record.W.shape == (3, 2, inits, 6, 6)
        assert record.duals.shape == record.support.shape == (3, 2, inits, 3, 4)
        for name in ("margin", "gap", "iterations", "status", "method", "certificates"):
            assert getattr(record, name).shape == (3, 2, inits)
        np.testing.assert_array_equal(
            record.selections, np.broadcast_to(selections, (3, 2, inits, 3))
        )
        np.testing.assert_array_equal(record.p, p)


def test_each_place_holds_its_own_solution():
    problems, best = planted_batch(range(2), (3, 4, 6))
    selections = np.broadcast_to(best, (2, 2, 2, 3)).copy()
    selections[1, 1, 1, 2] = (selections[1, 1, 1, 2] + 1) % 4
    record = solve_many(problems, selections, [3.0, 1.5])
    for i, j, k in places(record):
        alone = solve_many(problems[i], selections[i, j, k], [3.0, 1.5][j])
        np.testing.assert_allclose(record.W[i, j, k], alone.W[0, 0, 0], rtol=1e-12)
        np.testing.assert_array_equal(record[i, j, k].selection, selections[i, j, k])
        assert record[i, j, k].p == [3.0, 1.5][j]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_has_the_bits_of_its_solutions_alone(shape, monkeypatch):
    monkeypatch.setattr(attention_svm, "fits_kernel", fits_kernel)
    problems, best = planted_batch(range(4), shape)
    exponents = [2.0, 1.5, 3.0, 1.1, 1.75]
    record = solve_many(problems, best, exponents)
    for i, j, k in places(record):
        alone = solve_many(problems[i], best[i, 0, 0], exponents[j])
        for name in ("W", "margin", "gap", "duals", "support", "iterations"):
            one, other = getattr(record, name)[i, j, k], getattr(alone, name)[0, 0, 0]
            np.testing.assert_array_equal(one, other, err_msg=name)
        X, z = problems[i].tokens, problems[i].queries
        single = solve_attention_svm(X, z, best[i, 0, 0], exponents[j])
        np.testing.assert_array_equal(single.W, record.W[i, j, k])


def test_what_occurs_several_times_is_solved_once(monkeypatch):
    solved = []
    solve_jobs = candidates.solve_jobs

    def solve(jobs, *rest):
        solved.append(len(jobs))
        return solve_jobs(jobs, *rest)

    monkeypatch.setattr(candidates, "solve_jobs", solve)
    problems, best = planted_batch(range(2), (3, 4, 6))
    record = solve_many(problems, np.repeat(best, 5, axis=2), [2.0, 3.0, 2.0])
    assert solved == [4]
    np.testing.assert_array_equal(record.W[:, 0], record.W[:, 2])
    assert (record.W[:, :, :1] == record.W).all()


def test_many_jobs_are_done_in_blocks(monkeypatch):
    problems, selections = planted_batch(range(7), (2, 3, 4))
    expected = solve_many(problems, selections, [1.5, 3.0])
    monkeypatch.setattr(candidates, "BLOCK", 4 * 2 * 3 * 4)
    assert_same_bits(solve_many(problems, selections, [1.5, 3.0]), expected)


def test_several_places_at_once_are_refused():
    problem, selection = planted(0, (2, 3, 3))
    record = solve_many(problem, selection)
    with pytest.raises(TypeError):
        record[:, 0, 0]  # pyright: ignore[reportArgumentType]


# Failures.


def test_what_cannot_be_separated_is_reported_beside_the_others():
    shape = (3, 4, 5)
    hopeless, chosen = not_separable(shape)
    solvable, selections = planted_batch(range(1, 3), shape)
    problems = [solvable[0], *hopeless, solvable[1]]
    selections = np.concatenate([selections[:1], chosen[:, None, None], selections[1:]])
    record = solve_many(problems, selections, [1.5, 2.0, 4.0], raise_on_failure=False)
    assert (record.status[[0, 3]] == Status.OPTIMAL).all()
    assert (record.status[[1, 2]] == Status.INFEASIBLE).all()
    assert all(record[i, j, 0].is_optimal() for i in (0, 3) for j in range(3))
    assert np.isnan(record.W[1:3]).all()
    assert (record.margin[1:3] == 0).all()
    assert np.isinf(record.gap[1:3]).all()
    assert not record.support[1:3].any()
    assert record.certificates[1, 0, 0].identical == (1, 1, 0)
    for i, j in itertools.product((1, 2), range(3)):
        element = record[i, j, 0]
        assert element.certificate is not None
        assert element.certificate.bound <= 1e-12
        assert element.duals.sum() == pytest.approx(1)
        np.testing.assert_array_equal(element.duals, element.certificate.duals)
        assert not element.is_optimal()


def test_the_error_names_the_first_failure_and_carries_all_solutions():
    shape = (3, 4, 5)
    hopeless, chosen = not_separable(shape)
    good, selection = planted(1, shape)
    selections = np.array([selection, chosen[1], chosen[0]])[:, None, None]
    with pytest.raises(
        NotSeparableError, match=r"^problem 1, p = 1.5, selection 0: nothing"
    ) as caught:
        solve_many([good, hopeless[1], hopeless[0]], selections, [1.5, 2.0])
    record = caught.value.solution
    assert record[0, 1, 0].is_optimal()
    assert caught.value.certificate is record.certificates[1, 0, 0]
    assert solve_many(good, selection).certificate is None


def test_too_few_steps_are_an_error():
    problems, selections = planted_batch(range(2), (4, 5, 6))
    with pytest.raises(SolverError, match=r"problem 0, p = 3, selection 0: .*max_iter") as caught:
        solve_many(problems, selections, 3.0, max_iter=4)
    assert (caught.value.solution.status == Status.MAX_ITERATIONS).all()


def test_numbers_out_of_range_do_not_cost_the_other_solutions():
    problem, selection = planted(0, (2, 3, 3), scale=1e-30)
    with pytest.raises(SolverError, match=r"^problem 0, p = 20, .*floating point") as caught:
        solve_many(problem, selection, [2.0, 20.0])
    record = caught.value.solution
    assert record.status.ravel().tolist() == ["optimal", "cannot certify"]
    assert record[0, 0, 0].is_optimal()
    assert np.isnan(record.W[0, 1]).all()


def test_one_solution_of_many_shares_no_memory_with_the_others():
    problem, selection = planted(0, (2, 3, 3))
    record = solve_many(problem, [selection, selection], 2.0)
    before = record.W.copy(), record.duals.copy()
    record[0, 0, 0].W[:] = 7
    record[0, 0, 0].duals[:] = 7
    np.testing.assert_array_equal(record.W, before[0])
    np.testing.assert_array_equal(record.duals, before[1])


# Threads.


def test_the_bits_do_not_depend_on_the_number_of_threads():
    shape = (3, 4, 5)
    hopeless, chosen = not_separable(shape)
    problems, selections = planted_batch(range(20), shape)
    # Failures in between, after which a thread must not solve differently.
    problems[5:5], problems[12:12] = hopeless, hopeless
    selections = np.insert(selections, [5], chosen[:, None, None], axis=0)
    selections = np.insert(selections, [12], chosen[:, None, None], axis=0)
    first, *others = (
        solve_many(problems, selections, EXPONENTS, threads=threads, raise_on_failure=False)
        for threads in (1, 1, 2, 3, None)
    )
    for other in others:
        assert_same_bits(other, first)


def test_an_error_in_a_thread_is_raised(monkeypatch):
    def kernel(*work):
        raise MemoryError("no memory left")

    monkeypatch.setattr(candidates, "load_kernel", lambda: kernel)
    problems, selections = planted_batch(range(4), (2, 3, 3))
    with pytest.raises(MemoryError, match="no memory left"):
        solve_many(problems, selections, threads=2)


# Arguments.


PROBLEM, SELECTION = planted(0, (3, 4, 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, SELECTION), "problems is a int"),
        (([], SELECTION), "problems is empty"),
        (([PROBLEM, 1], SELECTION), r"problems\[1\] is a int"),
        (([PROBLEM, planted(0, (3, 4, 6))[0]], SELECTION), r"problems\[1\] has tokens of shape"),
        ((make_problem(PROBLEM.tokens, [[1] * 5, [0] * 5, [1] * 5]), SELECTION), r"queries\[1\]"),
        ((PROBLEM, [0, 1]), r"selections has shape \(2,\)"),
        (([PROBLEM] * 3, np.zeros((2, 1, 1, 3), int)), r"does not broadcast to \(3, 1, 1, 3\)"),
        ((PROBLEM, np.zeros((1, 1, 1, 1, 3), int)), "does not broadcast"),
        ((PROBLEM, np.zeros((0, 3), int)), "is empty"),
        ((PROBLEM, [0, 1, 4]), r"selections\[0, 0, 0, 2\] is 4: give an integer from 0 to 3"),
        ((PROBLEM, [0, -1, 0]), "from 0 to 3"),
        ((PROBLEM, [0, 0.5, 0]), r"selections\[0, 0, 0, 1\] is 0.5: give an integer"),
        ((PROBLEM, [True, False, True]), "selections holds booleans: give integers"),
        ((PROBLEM, SELECTION, 1.0), "p is 1.0"),
        ((PROBLEM, SELECTION, [2.0, np.nan]), "p is nan"),
        ((PROBLEM, SELECTION, []), "p has shape"),
        ((PROBLEM, SELECTION, [[2.0]]), "p has shape"),
        ((PROBLEM, SELECTION, 2.0, 0.0), "tol is 0.0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ProblemError, match=message):
        solve_many(*arguments)


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 1.5}, {"max_iter": 0}])
def test_wrong_options_are_named(options):
    with pytest.raises(ProblemError, match=f"{next(iter(options))} is"):
        solve_many(PROBLEM, SELECTION, **options)
