"""Training of W and the head: against autograd, published ends, and the laws of its schedule."""

import itertools

import numpy as np
import pytest
from autograd_training import distance, train_by_autograd

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.losses import LOSSES
from mirrormargin.dynamics.descent.record import End
from mirrormargin.dynamics.descent.reference import train_literally

EXPONENTS = [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0]
# Of the published training, with W before v, in units of their lp norms.
PUBLISHED = {
    1.75: ([[-0.270, -0.147], [-0.322, 0.833]], [0.072, 0.994], 1500),
    2.0: ([[-0.316, -0.217], [-0.360, 0.851]], [0.081, 0.997], 2000),
    3.0: ([[0.478, -0.239], [-0.340, 0.943]], [-0.492, 0.959], 20000),
}
TOY = {"p": list(PUBLISHED), "lr": 0.1, "num_steps": [row[2] for row in PUBLISHED.values()]}


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("rule", ["normalized", "constant"])
@pytest.mark.parametrize("size", [(6, 8, 10), (3, 5, 7), (1, 2, 1)])
def test_joint_training_is_autograd_and_mirror_descent(size, rule, p):
    problem = synthetic.unit_sphere(4, *size)
    d = size[2]
    starts = [np.zeros((d, d)), np.zeros(d)]
    lr = 0.1 if rule == "normalized" else 3.0
    path = train_by_autograd(
        problem, p, starts, 60, parameterization="joint", step_rule=rule, lr=lr
    )
    assert len(path) > 20
    record = mm.train_joint(
        problem,
        p,
        step_rule=rule,
        lr=lr,
        num_steps=len(path) - 1,
        record=range(len(path)),
        keep_path=True,
        target=None,
    )
    # All scores are equal at zero: the first step moves v alone.
    assert not record.path[0, 0, 0, 1].any()
    assert record.head_path[0, 0, 0, 1].any()
    for k, (W, v) in enumerate(path):
        assert distance(record.path[0, 0, 0, k], W, p) <= 1e-10
        assert distance(record.head_path[0, 0, 0, k], v, p) <= 1e-10


@pytest.mark.parametrize("loss", LOSSES)
def test_joint_training_is_autograd_for_every_loss(loss):
    problem = synthetic.unit_sphere(2, 3, 5, 7, loss=loss)
    rng = np.random.default_rng(0)
    starts = [0.5 * rng.normal(size=(7, 7)), 0.5 * rng.normal(size=7)]
    path = train_by_autograd(
        problem, 1.75, starts, 40, parameterization="joint", step_rule="normalized", lr=0.1
    )
    record = mm.train_joint(
        problem, 1.75, num_steps=len(path) - 1, init=starts[0], head_init=starts[1], target=None
    )
    assert len(path) > 20
    assert distance(record.W[0, 0, 0], path[-1][0], 1.75) <= 1e-10
    assert distance(record.head[0, 0, 0], path[-1][1], 1.75) <= 1e-10


@pytest.mark.parametrize(
    ("p", "lr", "num_steps"), [(1.75, 0.3, 1500), (2.0, 3.0, 1500), (3.0, 100.0, 1500)]
)
def test_joint_training_is_the_literal_one_far_into_underflow(p, lr, num_steps):
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    starts = [np.zeros((7, 7)), np.zeros(7)]
    twin = train_literally(problem, p, starts, parameterization="joint", lrs=(lr, lr))
    W, v = next(itertools.islice(twin, num_steps, None))[0]
    record = mm.train_joint(problem, p, lr=lr, num_steps=num_steps, record=2, target=None)
    # Of the head's gradient, e^(-margin), the rest is as small.
    assert record.log_loss[0, 0, 0, -1] < -100
    assert record.logit_gap[0, 0, 0, -1] > 300
    assert distance(record.W[0, 0, 0], W, p) <= 1e-8
    assert distance(record.head[0, 0, 0], v, p) <= 1e-8


def test_joint_training_with_its_own_rates_and_decays_is_the_literal_one():
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    starts = [np.zeros((7, 7)), np.zeros(7)]
    options = {"lrs": (0.3, 0.2), "decays": (0.5, 0.25), "eps": 1e-3}
    twin = train_literally(problem, 1.75, starts, parameterization="joint", **options)
    W, v = next(itertools.islice(twin, 300, None))[0]
    record = mm.train_joint(
        problem,
        1.75,
        lr=0.3,
        head_lr=0.2,
        decay=0.5,
        head_decay=0.25,
        eps=1e-3,
        num_steps=300,
        target=None,
    )
    assert distance(record.W[0, 0, 0], W, 1.75) <= 1e-10
    assert distance(record.head[0, 0, 0], v, 1.75) <= 1e-10


# The published toy.


def test_toy_ends_in_the_published_directions_under_the_published_normalizer():
    record = mm.train_joint(synthetic.joint_toy(), eps=2.2e-16, **TOY)
    assert record.final_selection[0, :, 0].tolist() == [[1, 0], [1, 0], [0, 0]]
    for j, (W, v, _) in enumerate(PUBLISHED.values()):
        np.testing.assert_allclose(
            record.W[0, j, 0] / record.norm[0, j, 0, -1], W, rtol=0, atol=1e-3
        )
        np.testing.assert_allclose(
            record.head[0, j, 0] / record.head_norm[0, j, 0, -1], v, rtol=0, atol=1e-3
        )


def test_toy_without_eps_reaches_its_targets():
    record = mm.train_joint(synthetic.joint_toy(), **TOY)
    assert record.final_selection[0, :, 0].tolist() == [[1, 0], [1, 0], [0, 0]]
    assert (record.divergence[..., -1] < 2e-3).all()
    assert (record.head_divergence[..., -1] < 2e-3).all()


# Targets.


@pytest.mark.parametrize(
    ("third", "prompt"), [((0.5, 1.0), (4 / 3, 1 / 3)), ((0.5, 1.5), (1.0, 0.0))]
)
def test_sequences_that_do_not_support_the_decoder_are_relaxed(third, prompt):
    problem = synthetic.planar_joint(third)
    record = mm.train_joint(
        problem, init=[[0.0, 0.0], [-1.0, 0.0]], head_init=[-1.0, 0.0], lr=0.1, num_steps=5000
    )
    assert record.final_selection[0, 0, 0].tolist() == [1, 1, 1]
    np.testing.assert_allclose(record.target[0, 0, 0][:, 0], prompt, atol=1e-6)
    np.testing.assert_allclose(record.head_target[0, 0, 0], [0.0, 1.0], atol=1e-6)
    assert record.divergence[0, 0, 0, -1] < 1e-5
    assert record.head_divergence[0, 0, 0, -1] < 1e-5
    # The second column never has a gradient.
    np.testing.assert_array_equal(record.W[0, 0, 0][:, 1], [0.0, 0.0])


def test_divergences_are_those_of_the_recorded_path():
    record = mm.train_joint(
        [synthetic.joint_toy()], [1.75, 3.0], num_steps=300, keep_path=True, record=6
    )
    for place in np.ndindex(record.steps.shape):
        p, W, v = record.settings.p[place[1]], record.path[place], record.head_path[place]
        assert record.head_norm[place] == pytest.approx(float(mm.LpPotential(p).norm(v)))
        if place[3] < 2:  # W is still zero, or v as well
            continue
        D = mm.directional_divergence(record.target[place[:3]], W, p)
        assert record.divergence[place] == pytest.approx(float(D), rel=1e-9)
        D = mm.directional_divergence(record.head_target[place[:3]], v, p)
        assert record.head_divergence[place] == pytest.approx(float(D), rel=1e-9)
        problem = synthetic.joint_toy()
        own = AttentionProblem(problem.tokens, problem.queries, problem.labels, v)
        assert record.log_loss_gap[place] == pytest.approx(own.log_loss_gap(W), rel=1e-9)
        assert np.exp(record.log_loss[place]) == pytest.approx(own.loss(W), rel=1e-9)


def test_labels_that_no_head_separates_have_no_targets():
    # The same tokens twice, with both labels.
    tokens = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    problem = AttentionProblem(tokens, [[1.0, 0.0]] * 2, [1, -1], [1.0, 0.0])
    record = mm.train_joint(problem, num_steps=20, init=mm.NormalInit(), head_init=mm.NormalInit())
    assert np.isnan(record.target).all()
    assert np.isnan(record.head_divergence).all()
    assert np.isfinite(record.W).all()


# Schedules.


@pytest.mark.parametrize("seed", [0, 1])
def test_norms_follow_their_schedule(seed):
    record = mm.train_joint(
        synthetic.signal_noise(seed),
        lr=0.5,
        decay=1.0,
        head_decay=2 / 3,
        num_steps=20_000,
        record=[2000],
        target=None,
    )
    k = np.arange(1, 20_001)
    for step, column in ((2000, 1), (20_000, 2)):
        # From zero, a norm is at most the sum of the steps.
        bounds = 0.5 * (1 / k[:step]).sum(), 0.5 * (k[:step] ** (-2 / 3)).sum()
        norms = record.norm[0, 0, 0, column], record.head_norm[0, 0, 0, column]
        for norm, bound in zip(norms, bounds, strict=True):
            assert 0.85 * bound < norm < bound
    # |W| grows like 0.5 log k, and |v| like 1.5 k^(1/3).
    growth = np.diff(record.norm[0, 0, 0, 1:]).item()
    assert growth == pytest.approx(0.5 * np.log(10), rel=0.1)
    ratio = record.head_norm[0, 0, 0, 2] / record.head_norm[0, 0, 0, 1]
    assert ratio == pytest.approx(10 ** (1 / 3), rel=0.05)


def test_loss_falls_exponentially_in_the_cube_root_of_the_steps():
    steps = np.array([1000, 8000, 27_000, 64_000])
    record = mm.train_joint(
        synthetic.signal_noise(0),
        lr=0.5,
        decay=1.0,
        head_decay=2 / 3,
        num_steps=64_000,
        record=steps,
        target=None,
    )
    slopes = np.diff(record.log_loss[0, 0, 0, 1:]) / np.diff(np.cbrt(steps))
    assert (slopes < -0.4).all()
    assert np.ptp(slopes) < 0.15 * np.abs(slopes).max()


# Starts and ends.


def test_starts_of_both_may_be_many_or_one():
    problem = synthetic.joint_toy()
    several = mm.NormalInit(1.0, seeds=range(3))
    options = {"num_steps": 10, "record": 2, "target": None}
    assert mm.train_joint(problem, init=several, **options).W.shape == (1, 1, 3, 2, 2)
    both = mm.train_joint(problem, init=several, head_init=several, **options)
    assert both.head.shape == (1, 1, 3, 2)
    heads = mm.train_joint(problem, init=np.eye(2), head_init=np.eye(2), **options)
    assert heads.head.shape == (1, 1, 2, 2)
    one = mm.train_joint(problem, init=np.eye(2), head_init=[0.0, 1.0], **options)
    np.testing.assert_array_equal(one.head[0, 0, 0], heads.head[0, 0, 1])
    np.testing.assert_array_equal(one.W[0, 0, 0], heads.W[0, 0, 1])


def test_the_head_of_the_problem_plays_no_role():
    problem = synthetic.joint_toy()
    other = AttentionProblem(problem.tokens, problem.queries, problem.labels, [5.0, -3.0])
    first, second = (mm.train_joint(each, num_steps=50) for each in (problem, other))
    np.testing.assert_array_equal(first.W, second.W)
    np.testing.assert_array_equal(first.log_loss, second.log_loss)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("rule", ["constant", "normalized"])
def test_learning_rates_far_too_large_are_finite_or_diverged(rule, p):
    for loss in LOSSES:
        record = mm.train_joint(
            synthetic.joint_toy(loss=loss), p, step_rule=rule, lr=1e300, num_steps=30, target=None
        )
        finite = np.isfinite(record.W).all() and np.isfinite(record.head).all()
        assert finite or record.end.item() == End.DIVERGED
        assert not np.isnan(record.W).any()
        assert not np.isnan(record.head).any()


def test_labels_that_cancel_stand_still():
    # Both gradients are zero at zero: the sequences pull v in opposite directions.
    tokens = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    problem = AttentionProblem(tokens, [[1.0, 0.0]] * 2, [1, -1], [1.0, 0.0])
    record = mm.train_joint(problem, num_steps=20, target=None)
    assert record.end.item() == End.ZERO_GRADIENT
    assert not record.W.any()
    assert not record.head.any()
