"""Paths inside a cone: the bound that holds for all of it, checked on points drawn from it."""

from functools import cache

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.attention.logits import find_log_loss_gap
from mirrormargin.claims.stories.cones import reach_selection
from mirrormargin.dynamics.paths import find_local_path
from mirrormargin.dynamics.paths.local_path import _find_inner_width, _RiseAboveSelection
from mirrormargin.errors import ProblemError
from mirrormargin.geometry import directional_divergence, lp_norm, signed_power

EXPONENTS = [1.5, 2.0, 3.0]


@cache
def follow(p, seed=4):
    problem = mm.synthetic.unit_sphere(seed)
    selection, kind = reach_selection(problem, p, seed)
    assert kind == "local"
    return problem, selection, find_local_path(problem, selection, p, num_radii=12)


def draw_inside(U, p, nu, rng, count):
    """Unit vectors with D(V, U) from nothing up to nu."""
    drawn = []
    psi = signed_power(U, p - 1)
    for _ in range(count):
        noise = rng.normal(size=U.shape)
        low, high, wanted = 0.0, 1.0, nu * rng.uniform() ** 2
        for _ in range(60):
            middle = (low + high) / 2
            V = U + middle * noise
            V /= lp_norm(V, p)
            low, high = (middle, high) if 1 - np.vdot(psi, V) < wanted else (low, middle)
        V = U + low * noise
        drawn.append(V / lp_norm(V, p))
    return drawn


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_path_tends_to_the_local_direction(p):
    _, selection, path = follow(p)
    assert path.divergence[-1] < 1e-12
    assert path.bound[-1] < 1e-6
    assert (path.reverse_divergence <= path.bound).all()
    assert (path.target.selection == selection).all()


@pytest.mark.parametrize("p", EXPONENTS)
def test_where_the_bound_is_inside_the_cone_the_points_are_minimisers_of_the_ball(p):
    _, _, path = follow(p)
    is_free = path.bound < path.nu
    assert is_free.any()
    assert path.is_certified[is_free].all()


@pytest.mark.parametrize("p", EXPONENTS)
def test_no_point_of_the_cone_beyond_the_bound_is_as_good_as_the_direction_itself(p):
    problem, selection, path = follow(p)
    gap = _RiseAboveSelection(problem, np.asarray(selection))
    U = path.target.W / lp_norm(path.target.W, p)
    rng = np.random.default_rng(0)
    inside = draw_inside(U, p, path.nu, rng, 60)
    best = np.take_along_axis(problem.scores, np.asarray(selection)[:, None], axis=1)
    seen = 0
    for R, bound in zip(path.radii, path.bound, strict=True):
        reached = gap.log_value(problem.logits(R * U))
        for V in inside:
            norm = rng.uniform(path.least_radius, R)
            if float(directional_divergence(V, U, p)) > bound:
                seen += 1
                assert gap.log_value(problem.logits(norm * V)) > reached
    assert seen > 50
    # Tokens of a higher score trail by more than the support in the whole cone.
    margin = path.target.margin
    for V in inside:
        logits = problem.logits(V)
        leads = np.take_along_axis(logits, np.asarray(selection)[:, None], axis=1) - logits
        assert (leads[problem.scores > best] > margin).all()


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 5.0])
def test_cones_of_the_other_family_lie_inside(p):
    rng = np.random.default_rng(1)
    U = rng.normal(size=(4, 4))
    U /= lp_norm(U, p)
    for nu in (0.1, 1e-3):
        mu = _find_inner_width(nu, p)
        assert 0 < mu < 2 * nu
        for V in draw_inside(U, p, nu, rng, 40):
            if float(directional_divergence(U, V, p)) <= mu:
                assert float(directional_divergence(V, U, p)) <= nu


def test_of_the_optimal_tokens_the_rise_is_the_gap():
    problem = mm.synthetic.unit_sphere(1)
    rng = np.random.default_rng(2)
    rise = _RiseAboveSelection(problem, problem.optimal_tokens)
    for scale in (0.1, 1.0, 10.0):
        a = scale * rng.normal(size=problem.scores.shape)
        expected = find_log_loss_gap(a, problem.scores, problem.margin_loss)
        assert rise.log_value(a) == pytest.approx(float(expected), rel=1e-12)


def test_a_rise_of_either_sign_is_that_of_the_loss():
    problem = mm.synthetic.unit_sphere(3)
    selection = np.argsort(problem.scores, axis=1)[:, -2]
    floor = problem.margin_loss.value(
        np.take_along_axis(problem.scores, selection[:, None], axis=1)
    ).mean()
    rise, rng = _RiseAboveSelection(problem, selection), np.random.default_rng(0)
    signs = set()
    best = mm.solve_attention_svm(problem.tokens, problem.queries, problem.optimal_tokens).W
    for share in np.linspace(-1.0, 3.0, 40):
        W = rng.normal(size=best.shape) + share * best
        difference = problem.loss(W) - floor
        found = rise.log_value(problem.logits(W))
        signs.add(difference > 0)
        if difference > 0:
            assert np.exp(found) == pytest.approx(difference, rel=1e-9)
        else:
            assert np.isnan(found)
    assert signs == {True, False}


def test_a_selection_that_is_not_locally_optimal_is_refused():
    problem = mm.synthetic.unit_sphere(1)
    worst = problem.scores.argmin(axis=1)
    with pytest.raises(ProblemError, match="give a locally optimal selection"):
        find_local_path(problem, worst)


def test_a_last_lead_before_the_cone_is_refused():
    problem, selection, _ = follow(2.0)
    with pytest.raises(ProblemError, match="the cone begins at a lead"):
        find_local_path(problem, selection, 2.0, last_lead=1.0)
