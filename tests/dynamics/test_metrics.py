"""What is measured of a W, against AttentionProblem and high precision."""

import math

import mpmath
import numpy as np
import pytest
from layouts import layouts

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.losses import LOSSES
from mirrormargin.dynamics.metrics import MEASURES, measure

EXPONENTS = [1.1, 1.75, 2.0, 3.0, 10.0]


def make_problems(loss="logistic", count=3):
    return [synthetic.unit_sphere(seed, 3, 4, 5, loss=loss) for seed in range(count)]


def make_matrices(scale=1.0, count=3):
    """(P, 2, 4, d, d) of them."""
    return scale * np.random.default_rng(0).normal(size=(count, 2, 4, 5, 5))


def lead(problem, W):
    """The smallest lead of a selected token, by the definition."""
    logits = problem.logits(W)
    chosen = logits.argmax(axis=1)
    return min(
        logits[i, chosen[i]] - logits[i, t]
        for i in range(problem.num_sequences)
        for t in range(problem.num_tokens)
        if t != chosen[i]
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("p", EXPONENTS)
def test_measures_are_those_of_the_problem(p, loss):
    problems, W = make_problems(loss), make_matrices(3.0)
    found = measure(problems, W, p)
    assert set(found) == set(MEASURES)
    for place in np.ndindex(W.shape[:3]):
        problem, one = problems[place[0]], W[place]
        s, norm = problem.attention(one), float(mm.LpPotential(p).norm(one))
        chosen = problem.selected_tokens(one)
        expected = {
            "log_loss_gap": math.log(problem.loss_gap(one)),
            "norm": norm,
            "logit_gap": lead(problem, one),
            "margin": lead(problem, one) / norm,
            "attention": s.max(axis=1).mean(),
            "log_unattended": math.log((1 - s.max(axis=1)).max()),
        }
        for name, value in expected.items():
            assert found[name][place] == pytest.approx(value, rel=1e-10), name
        np.testing.assert_array_equal(found["selection"][place], chosen)
        if loss == "correlation":  # no logarithm of a negative margin
            assert math.isnan(found["log_loss"][place]) == (problem.margins(one) > 0).any()
        else:
            assert math.exp(found["log_loss"][place]) == pytest.approx(problem.loss(one))


def test_measures_do_not_underflow():
    problems, W = make_problems(), make_matrices(1e6)
    found = measure(problems, W, 2.0)
    for place in np.ndindex(W.shape[:3]):
        problem, one = problems[place[0]], W[place]
        assert found["log_loss_gap"][place] == pytest.approx(problem.log_loss_gap(one), rel=1e-12)
        with mpmath.workdps(50):
            outside = []
            for logits in problem.logits(one):
                weights = sorted(mpmath.exp(logit - logits.max()) for logit in logits)
                outside.append(mpmath.fsum(weights[:-1]) / mpmath.fsum(weights))
            expected = float(mpmath.log(max(outside)))
        assert expected < -1000
        assert found["log_unattended"][place] == pytest.approx(expected, rel=1e-11)


def test_measures_take_other_heads():
    problems, W = make_problems(), make_matrices()
    heads = np.random.default_rng(1).normal(size=(3, 2, 4, 5))
    found = measure(problems, W, 2.0, heads)
    for place in np.ndindex(W.shape[:3]):
        one = problems[place[0]]
        other = AttentionProblem(one.tokens, one.queries, one.labels, heads[place])
        assert math.exp(found["log_loss"][place]) == pytest.approx(other.loss(W[place]))
        assert found["log_loss_gap"][place] == pytest.approx(other.log_loss_gap(W[place]))


def test_blocks_change_nothing(monkeypatch):
    problems, W = make_problems(), make_matrices()
    heads = np.random.default_rng(1).normal(size=(3, 2, 4, 5))
    for given in (None, heads):
        whole = measure(problems, W, 1.5, given)
        monkeypatch.setattr("mirrormargin.dynamics.metrics.BLOCK", 100)
        blocks = measure(problems, W, 1.5, given)
        monkeypatch.undo()
        for name in MEASURES:
            np.testing.assert_array_equal(whole[name], blocks[name], err_msg=name)


def test_zero_has_no_margin_and_even_attention():
    found = measure(make_problems(count=1), np.zeros((1, 5, 5)), 1.5)
    assert found["norm"] == found["margin"] == found["logit_gap"] == 0
    assert found["attention"] == pytest.approx(0.25)
    assert found["log_unattended"] == pytest.approx(math.log(0.75))


@pytest.mark.parametrize("d", [3, 7, 13, 32])
def test_scores_are_those_of_the_problem_to_the_last_bit(d):
    # Twins among the tokens: a last bit decides whether their attention counts as a gap.
    rng = np.random.default_rng(d)
    problems, W = [], []
    for _ in range(5):
        X = rng.normal(size=(4, 9, d))
        X[:, 5:] = X[:, :4]
        head = rng.normal(size=d)
        problems.append(AttentionProblem(X, rng.normal(size=(4, d)), np.ones(4), head))
        # All queries times W are the head: the best tokens lead.
        z = problems[-1].queries
        W.append(200 * np.linalg.lstsq(z, np.tile(head, (4, 1)), rcond=None)[0].T)
    found = measure(problems, np.array(W), 2.0)["log_loss_gap"]
    expected = [problem.log_loss_gap(one) for problem, one in zip(problems, W, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, 1.1])
def test_measures_of_a_matrix_do_not_depend_on_the_others_or_on_the_layout(p):
    problem = mm.synthetic.unit_sphere(1)
    sizes = np.geomspace(0.1, 1e4, 400)[:, None, None]
    W = np.random.default_rng(2).normal(size=(1, 400, 10, 10)) * sizes
    together = measure([problem], W, p)
    for name in MEASURES:
        for k in (0, 1, 7, 398):
            alone = measure([problem], W[:, k : k + 1], p)[name]
            np.testing.assert_array_equal(alone[:, 0], together[name][:, k], err_msg=name)
        for other in layouts(W):
            np.testing.assert_array_equal(measure([problem], other, p)[name], together[name])
