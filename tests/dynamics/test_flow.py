"""The flow where its answer is known, and the corners of its integrator."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

import mirrormargin as mm
from mirrormargin.dynamics.flow_field import FlowField, StageSystem
from mirrormargin.dynamics.flow_integrator import COEFFICIENTS, MU, NODES
from mirrormargin.dynamics.flow_record import FlowStatus

EXPONENTS = [1.1, 1.25, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0]
# Each flow takes about a second: the slow tests follow those of the other exponents.
FEW = [p if p in (1.25, 2.0, 3.0) else pytest.param(p, marks=pytest.mark.slow) for p in EXPONENTS]
SMALL = mm.synthetic.unit_sphere(2, 3, 4, 4)
LN10 = np.log(10)


@cache
def far(p, seed):
    return mm.mirror_flow(mm.synthetic.unit_sphere(seed), p, decades=300)


def two_tokens(loss="logistic"):
    """One sequence of two tokens, and the row ``a = vec((x_best - x_other) z')`` of its lead."""
    problem = mm.synthetic.unit_sphere(3, 1, 2, 3, loss=loss)
    best = int(problem.optimal_tokens[0])
    lead = problem.tokens[0, best] - problem.tokens[0, 1 - best]
    return problem, np.outer(lead, problem.queries[0]).reshape(-1)


def time_of_lead(problem, a, p, g):
    """log of the time at which the lead of the better token is g, from W = 0.

    u stays a multiple lam of a, so g^(p-1) = S^(p-1) lam with S = |a|_q^q, and lam grows by
    |loss'(m)| delta s (1 - s), where delta is the difference of the scores.
    """
    low, high = np.sort(problem.scores[0])
    S = (np.abs(a) ** (p / (p - 1))).sum()

    def slowness(x):  # times e^-g
        m = low + (high - low) / (1 + np.exp(-x))
        return (1 + np.exp(m)) * (2 * np.exp(-g) + np.exp(x - g) + np.exp(-x - g))

    # In lam up to a lead of one, where g^(p-2) may be singular, then in the lead.
    options = {"epsabs": 0, "epsrel": 1e-11, "limit": 500}
    start, *_ = quad(lambda lam: slowness(lam ** (1 / (p - 1))), 0, min(1, g) ** (p - 1), **options)
    edges = [1.0, *(g - np.array([100, 30, 10, 3, 0]))]
    edges = [edge for edge in edges if edge >= 1]
    rest = sum(
        quad(lambda x: slowness(x) * (p - 1) * x ** (p - 2), *pair, **options)[0]
        for pair in pairwise(edges)
    )
    return np.log((start + rest) / (high - low)) + g - (p - 1) * np.log(S)


@pytest.mark.parametrize("p", EXPONENTS)
def test_two_tokens_lead_when_they_must(p):
    problem, a = two_tokens()
    flow = mm.mirror_flow(problem, p, 300, record=[0, 1, 2, 5, 20, 100, 300])
    times = [time_of_lead(problem, a, p, g) for g in flow.logit_gap]
    np.testing.assert_allclose(times, LN10 * flow.log10_k, rtol=0, atol=2e-5)
    w = np.abs(a) ** (1 / (p - 1)) * np.sign(a)
    np.testing.assert_allclose(
        flow.W.reshape(-1) / flow.norm[-1], w / mm.LpPotential(p).norm(w), rtol=1e-6
    )
    assert flow.divergence[-1] < 1e-12


def test_a_selection_can_change_after_three_hundred_decades():
    # At p = 2 with the correlation loss, 2 g + 2 sinh(g) grows by |a|^2 delta in each unit of time.
    # From -800 it is zero, and the selection changes, within e^-800 of the time 2 sinh(800).
    problem, a = two_tokens("correlation")
    rate = a @ a * np.ptp(problem.scores[0])
    change = (800 - np.log(rate)) / LN10
    flow = mm.mirror_flow(
        problem,
        2.0,
        change + 1,
        init=(-800 * a / (a @ a)).reshape(3, 3),
        record=[100, change - 1, change - 0.1, change + 0.1, change + 1],
        tol=0.01,
    )
    t = 10.0 ** np.array([-np.inf, -1, -0.1, 0.1, 1])
    lead = np.sign(t - 1) * (800 + np.log(np.abs(t - 1)))
    np.testing.assert_allclose(flow.path.reshape(-1, 9) @ a, lead, atol=0.1)
    best = int(problem.optimal_tokens[0])
    assert flow.selection[:, 0].tolist() == [1 - best] * 3 + [best] * 2


@pytest.mark.parametrize("p", FEW)
def test_every_exponent_is_followed_for_300_decades(p):
    flow = far(p, 1)
    assert flow.status is FlowStatus.FOLLOWED
    assert (np.diff(flow.divergence[200:]) < 0).all()
    assert (np.diff(flow.selection[50:], axis=0) == 0).all()
    assert flow.num_steps < 3000
    # D falls like (log k)^-2 from p = 2 on and (log k)^-(2 (p - 1)) before: faster than proven.
    late = [200, 300]
    power = -np.diff(np.log(flow.divergence[late])) / np.diff(np.log(flow.log10_k[late]))
    assert power == pytest.approx(2 * min(p - 1, 1), abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
@pytest.mark.parametrize("p", EXPONENTS[1:-1])
def test_proven_rates_hold_on_other_problems(p, seed):
    flow = far(p, seed)
    _, rate = mm.claimed_rate(p)
    late = flow.log10_k >= 10
    log_k = LN10 * flow.log10_k[late]
    assert mm.bound_holds(log_k, flow.divergence[late], rate, (20, 50), (200, 300)).holds


@pytest.mark.parametrize("p", [1.25, 2.0, 5.0])
def test_proven_rates_hold_from_other_starts(p):
    init = np.random.default_rng(0).normal(size=(10, 10))
    flow = mm.mirror_flow(mm.synthetic.unit_sphere(1), p, 300, init=init)
    _, rate = mm.claimed_rate(p)
    late = flow.log10_k >= 10
    log_k = LN10 * flow.log10_k[late]
    assert mm.bound_holds(log_k, flow.divergence[late], rate, (20, 50), (200, 300)).holds


@pytest.mark.parametrize("p", FEW[:4] + FEW[5:7])
def test_the_divergence_is_as_good_as_promised(p):
    problem = mm.synthetic.unit_sphere(1)
    loose = mm.mirror_flow(problem, p, 100, record=0.5)
    tight = mm.mirror_flow(problem, p, 100, record=0.5, tol=1e-7)
    error = np.abs(loose.divergence / tight.divergence - 1)
    assert error.max() < 1e-5
    assert error[-10:].max() < 1e-6


@pytest.mark.parametrize("p", [1.25, 2.0, 5.0])
def test_the_first_step_is_as_exact_as_the_others(p):
    # Within the explicit step, just after it, and when the logits are about one.
    problem = mm.synthetic.unit_sphere(1)
    record = [-30.0, -12.0, -6.0, -3.0, -1.0, 0.0, 1.0]
    paths = [mm.mirror_flow(problem, p, 1, record=record, tol=tol).path for tol in (1e-5, 1e-9)]
    loose, tight = (np.sign(W) * np.abs(W) ** (p - 1) for W in paths)
    assert np.abs(loose - tight).max() < 1e-5 * max(1.0, np.abs(tight).max())
    u = -1e-30 * problem.gradient(np.zeros((10, 10)))
    np.testing.assert_allclose(tight[0], u, rtol=1e-7, atol=1e-40)


@pytest.mark.parametrize("p", [1.5, 4.0])
def test_both_forms_of_the_system_are_one(p):
    rng = np.random.default_rng(0)
    field = FlowField(SMALL, p)
    w = rng.normal(size=(3, 16))
    w += np.copysign(0.5, w)  # away from zero, where w(u) bends too much for differences
    force = field.find_force(NODES + 3.0, w)
    slopes = field.find_slopes(field.to_dual(w), w)
    r = rng.normal(size=(3, 16))
    by_rows, by_entries = (
        StageSystem(field, force, slopes, COEFFICIENTS, by_rows=choice) for choice in (True, False)
    )
    np.testing.assert_allclose(by_rows.solve(r), by_entries.solve(r), rtol=1e-9)
    np.testing.assert_allclose(
        by_rows.solve_last(r[0], MU), by_entries.solve_last(r[0], MU), rtol=1e-9
    )
    # And it is the derivative of the stage equations by u.
    u, step = field.to_dual(w), 1e-6 * rng.normal(size=(3, 16))

    def residual(U):
        return U - COEFFICIENTS @ field.find_force(NODES + 3.0, field.to_primal(U)).value

    change = (residual(u + step) - residual(u - step)) / 2
    np.testing.assert_allclose(by_rows.solve(change), step, rtol=1e-4, atol=1e-11)


def test_many_tokens_in_few_dimensions():
    flow = mm.mirror_flow(mm.synthetic.unit_sphere(1, 3, 8, 2), 3.0, 100)
    assert flow.status is FlowStatus.FOLLOWED
    assert flow.divergence[-1] < 1e-5


def test_every_loss_ends_in_the_same_direction():
    flows = [
        mm.mirror_flow(mm.synthetic.unit_sphere(1, loss=loss), 2.0, 300, record=0.1)
        for loss in ("logistic", "exponential", "correlation")
    ]
    for flow in flows[1:]:
        np.testing.assert_array_equal(flow.target, flows[0].target)
        assert flow.divergence[-1] == pytest.approx(flows[0].divergence[-1], rel=0.05)


def test_a_flow_into_a_minimum_stops_there():
    # The same sequence with both labels: what one gains the other loses.
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(1, 3, 2)), rng.normal(size=(1, 2))
    problem = mm.AttentionProblem(np.repeat(X, 2, 0), np.repeat(z, 2, 0), [1, -1], [1.0, 0.5])
    flow = mm.mirror_flow(problem, 2.0, 1000)
    assert flow.status is FlowStatus.BALANCED
    assert flow.log10_k.shape == flow.divergence.shape == flow.path.shape[:1]
    least = minimize(lambda w: problem.loss(w.reshape(2, 2)), np.zeros(4), tol=1e-14).fun
    assert problem.loss(flow.W) == pytest.approx(least, rel=1e-9)


def test_without_a_gradient_nothing_moves():
    # The head sees only the second coordinate, in which all tokens agree.
    tokens = np.dstack([np.arange(6.0).reshape(2, 3), np.ones((2, 3))])
    problem = mm.AttentionProblem(tokens, np.ones((2, 2)), [1, -1], [0.0, 1.0])
    init = np.array([[0.5, -1.0], [2.0, 0.0]])
    flow = mm.mirror_flow(problem, 3.0, 10, init=init)
    assert flow.status is FlowStatus.STATIONARY
    assert (flow.path == init).all()
    assert np.isnan(mm.mirror_flow(problem, 3.0, 10).divergence).all()


def test_a_status_tells_why_there_is_no_target():
    problem = mm.synthetic.unit_sphere(1, 3, 4, 5)
    twins = np.repeat(problem.tokens, 2, axis=1)
    twins = mm.AttentionProblem(twins, problem.queries, problem.labels, problem.head)
    flow = mm.mirror_flow(twins, 2.0, 20)
    assert flow.status is FlowStatus.NOT_SEPARABLE
    assert np.isnan(flow.divergence).all()
    assert flow.norm[-1] > 10
    blind = problem.queries.copy()
    blind[1] = 0
    blind = mm.AttentionProblem(problem.tokens, blind, problem.labels, problem.head)
    flow = mm.mirror_flow(blind, 2.0, 500)
    assert flow.status is FlowStatus.NO_TARGET
    # The sequence without a query never attends, and does not hide the gradients of the others.
    assert flow.norm[-1] > 1.9 * flow.norm[150]


def test_equal_scores_are_called_unsettled():
    problem = mm.synthetic.unit_sphere(1)
    tokens, v = problem.tokens.copy(), problem.head
    a = problem.optimal_tokens[0]
    b = (a + 1) % 8
    tokens[0, b] += v * ((tokens[0, a] - tokens[0, b]) @ v) / (v @ v)
    tied = mm.AttentionProblem(tokens, problem.queries, problem.labels, v)
    assert mm.mirror_flow(tied, 2.0, 50).status is FlowStatus.UNSETTLED


def test_the_record_is_where_it_was_asked_for():
    flow = mm.mirror_flow(SMALL, 3.0, 20, record=[-1.0, 0.5, 7.25])
    np.testing.assert_array_equal(flow.log10_k, [-1.0, 0.5, 7.25])
    assert flow.path.shape == (3, 4, 4)
    assert flow.norm[-1] < mm.LpPotential(3.0).norm(flow.W)  # W goes on to the end
    dense = mm.mirror_flow(SMALL, 3.0, 20, record=3)
    np.testing.assert_allclose(dense.log10_k, np.arange(61) / 3)
    np.testing.assert_array_equal(dense.path[-1], dense.W)
    np.testing.assert_allclose(dense.W, flow.W, rtol=1e-5)


def test_a_given_target_is_the_target():
    target = np.random.default_rng(0).normal(size=(4, 4))
    flow = mm.mirror_flow(SMALL, 1.5, 10, target=target, record=1)
    expected = [float(mm.directional_divergence(target, W, 1.5)) for W in flow.path]
    np.testing.assert_allclose(flow.divergence, expected)
    np.testing.assert_array_equal(flow.target_selection, SMALL.selected_tokens(target))


def test_measures_are_those_of_the_path():
    flow = mm.mirror_flow(SMALL, 1.5, 40, record=0.2)
    for k, W in enumerate(flow.path):
        assert flow.norm[k] == pytest.approx(float(mm.LpPotential(1.5).norm(W)))
        assert flow.log_loss_gap[k] == pytest.approx(SMALL.log_loss_gap(W))
        assert flow.selection[k].tolist() == SMALL.selected_tokens(W).tolist()
    assert flow.log_unattended[-1] == pytest.approx(-flow.logit_gap[-1], abs=2)


def test_progress_goes_from_nothing_to_all():
    calls = []
    flow = mm.mirror_flow(SMALL, 2.0, 30, progress=lambda *args: calls.append(args))
    done = [call[0] for call in calls]
    assert len(calls) == flow.num_steps
    assert done == sorted(done)
    assert calls[-1] == (30.0, 30.0)


def test_two_calls_give_the_same_bits():
    first, second = (mm.mirror_flow(SMALL, 5.0, 30) for _ in range(2))
    np.testing.assert_array_equal(first.path, second.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": "two"}, "p is 'two'"),
        ({"decades": 2e6}, r"decades is 2000000.0: give a number above 0 and at most 1e\+06"),
        ({"decades": True}, "decades is True"),
        ({"lr": np.inf}, "lr is inf"),
        ({"tol": 1e-12}, "tol is 1e-12: give a number of at least 1e-09 and at most 0.01"),
        ({"target": np.full((4, 4), np.inf)}, r"target.* is inf: give finite numbers"),
        ({"record": 0}, "record is 0"),
        ({"record": []}, "record has shape"),
        ({"record": [1.0, 6.0]}, "end by decades = 5"),
        ({"record": [np.nan]}, r"record.* is nan: give finite numbers"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(mm.ProblemError, match=message):
        mm.mirror_flow(SMALL, **{"p": 2.0, "decades": 5} | options)
