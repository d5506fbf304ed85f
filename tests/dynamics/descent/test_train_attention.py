"""Training of W: against autograd with MirrorDescent, the literal twin, and what theory says."""

import itertools

import numpy as np
import pytest
from autograd_training import distance, train_by_autograd

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.attention.losses import LOSSES
from mirrormargin.dynamics.descent.record import End
from mirrormargin.dynamics.descent.reference import train_literally

EXPONENTS = [1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0]
# So large that most runs reach a lead of 20 within a hundred steps.
NORMALIZED_LR = {1.1: 0.1, 1.25: 0.1, 1.5: 0.2, 1.75: 0.5, 2.0: 1.0, 2.5: 5.0, 3.0: 20.0}
RULES = {
    "constant": lambda p: 5.0,
    "normalized": lambda p: NORMALIZED_LR.get(p, 20.0),
    "polyak": lambda p: 1.0,
}
RULE = pytest.mark.parametrize("rule", RULES)
P = pytest.mark.parametrize("p", EXPONENTS)
# The standard problem from zero, and an odd size, which needs padding, from elsewhere.
STARTS = {"zero": ((6, 8, 10), 0.0), "random": ((3, 5, 7), 0.5)}
START = pytest.mark.parametrize("start", STARTS)
FAST = {"record": 2, "target": None, "threads": 1}


def is_chaotic(rule, p):
    return rule == "polyak" and p > 3


def make_start(name):
    size, std = STARTS[name]
    d = size[2]
    return synthetic.unit_sphere(1, *size), std * np.random.default_rng(3).normal(size=(d, d))


def autograd_path(problem, p, rule, W, num_steps=100):
    path = train_by_autograd(problem, p, [W], num_steps, step_rule=rule, lr=RULES[rule](p))
    return np.array([tensors[0] for tensors in path])


def spheres(*seeds):
    return [synthetic.unit_sphere(seed) for seed in seeds]


# Against autograd.


# Polyak's long steps at p > 3 are chaotic: entries of u cross 0, where |u|^(1/(p-1)) is so steep
# that rounding shows. The next test follows these, too, one step at a time.
@pytest.mark.parametrize(
    ("rule", "p"), [pair for pair in itertools.product(RULES, EXPONENTS) if not is_chaotic(*pair)]
)
@START
def test_training_is_autograd_and_mirror_descent(start, rule, p):
    problem, W = make_start(start)
    expected = autograd_path(problem, p, rule, W)
    assert len(expected) > (12 if p == 1.1 else 20)
    record = mm.train_attention(
        problem,
        p,
        step_rule=rule,
        lr=RULES[rule](p),
        num_steps=len(expected) - 1,
        init=W,
        record=range(len(expected)),
        keep_path=True,
        target=None,
    )
    path = record.path[0, 0, 0]
    assert len(path) == len(expected)
    assert max(distance(a, b, p) for a, b in zip(path, expected, strict=True)) <= 1e-10


@P
@RULE
@START
def test_each_step_is_a_step_of_mirror_descent(start, rule, p):
    problem, W = make_start(start)
    path = autograd_path(problem, p, rule, W)
    record = mm.train_attention(
        problem, p, step_rule=rule, lr=RULES[rule](p), num_steps=1, init=path[:-1], **FAST
    )
    steps = zip(record.W[0, 0], path[1:], strict=True)
    assert max(distance(a, b, p) for a, b in steps) <= 1e-11


@pytest.mark.parametrize("loss", LOSSES)
@RULE
@pytest.mark.parametrize("size", [(1, 2, 1), (1, 6, 4), (5, 2, 3), (4, 9, 13)])
def test_training_is_autograd_for_every_loss_and_size(size, rule, loss):
    rng = np.random.default_rng(5)
    n, _, d = size
    X, z, y = rng.normal(size=size), rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    problem = AttentionProblem(X / np.sqrt(d), z / np.sqrt(d), y, rng.normal(size=d), loss)
    W = 0.3 * rng.normal(size=(d, d))
    lr = 0.3
    path = train_by_autograd(problem, 1.75, [W], 15, step_rule=rule, lr=lr)
    assert len(path) == 16
    record = mm.train_attention(
        problem, 1.75, step_rule=rule, lr=lr, num_steps=len(path) - 1, init=W, **FAST
    )
    assert distance(record.W[0, 0, 0], path[-1][0], 1.75) <= 1e-10


# Polyak's rule.


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_polyak_step_at_p2_is_the_classical_one(factor):
    problem, W = make_start("random")
    for _ in range(10):
        gradient = problem.gradient(W)
        gap = problem.loss(W) - problem.loss_floor
        assert gap > 1e-5
        expected = W - factor * gap / (gradient**2).sum() * gradient
        record = mm.train_attention(
            problem, 2.0, step_rule="polyak", lr=factor, num_steps=1, init=W, **FAST
        )
        np.testing.assert_allclose(record.W[0, 0, 0], expected, rtol=0, atol=1e-9)
        W = expected


@pytest.mark.parametrize("p", [1.25, 1.75, 3.0])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_polyak_step_predicts_its_share_of_the_loss_gap(p, factor):
    problem, W = make_start("random")
    record = mm.train_attention(
        problem, p, step_rule="polyak", lr=factor, num_steps=1, init=W, **FAST
    )
    decrease = (problem.gradient(W) * (W - record.W[0, 0, 0])).sum()
    assert decrease == pytest.approx(factor * problem.loss_gap(W), rel=1e-12)


def test_polyak_step_is_cut_at_max_lr():
    problem, W = make_start("random")
    record = mm.train_attention(
        problem, 1.75, step_rule="polyak", lr=1.0, num_steps=3, init=W, max_lr=1e-3, **FAST
    )
    constant = mm.train_attention(
        problem, 1.75, step_rule="constant", lr=1e-3, num_steps=3, init=W, **FAST
    )
    assert record.capped.item() == 3
    np.testing.assert_allclose(record.W, constant.W, rtol=1e-13)


def test_polyak_ends_at_the_global_selection_or_says_that_the_floor_is_out_of_reach():
    problems = spheres(1, 2, 3, 4)
    best = np.array([problem.optimal_tokens for problem in problems])[:, None, None]
    options = {"step_rule": "polyak", "lr": 1.0, "num_steps": 60, "init": mm.NormalInit(1.0, 5)}
    free = mm.train_attention(problems, [1.75, 2.0], **options, **FAST)
    bounded = mm.train_attention(problems, [1.75, 2.0], max_lr=1e100, **options, **FAST)
    for record in (free, bounded):
        is_global = (record.final_selection == best).all(axis=-1)
        assert 1 <= is_global.sum() <= 7  # both happen
        assert (record.end[is_global] == End.RUNNING).all()
        assert (record.capped[is_global] == 0).all()
        if record is free:
            assert (record.end[~is_global] == End.OUT_OF_REACH).all()
            assert (record.steps[..., -1][~is_global] < 60).all()
            assert (record.capped == 0).all()
        else:
            assert (record.capped[~is_global] > 0).all()
        assert np.isfinite(record.W).all()


def test_polyak_reaches_the_floor_far_below_floating_point():
    record = mm.train_attention(spheres(1), 2.0, step_rule="polyak", lr=1.0, num_steps=1000, **FAST)
    assert record.end.item() == End.RUNNING
    assert record.log_loss_gap[0, 0, 0, -1] < -900


# Against the literal twin, where floating point holds no gradient.


@pytest.mark.parametrize(
    ("p", "lr", "num_steps"), [(1.75, 0.2, 2000), (2.0, 1.0, 2000), (3.0, 300.0, 2500)]
)
def test_normalized_training_is_the_literal_one_far_into_underflow(p, lr, num_steps):
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    expected = last_of(train_literally(problem, p, [np.zeros((7, 7))], lrs=(lr, lr)), num_steps)
    record = mm.train_attention(problem, p, lr=lr, num_steps=num_steps, **FAST)
    assert record.logit_gap[0, 0, 0, -1] > 800
    assert distance(record.W[0, 0, 0], expected[0], p) <= 1e-8


@pytest.mark.parametrize("p", [1.75, 2.0])
def test_polyak_training_is_the_literal_one_far_into_underflow(p):
    # Ever longer steps amplify what rounding does: one step at a time, from a run's own way.
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    options = {"step_rule": "polyak", "lr": 1.0, "target": None}
    record = mm.train_attention(
        problem, p, num_steps=900, record=range(0, 901, 50), keep_path=True, **options
    )
    assert record.logit_gap[0, 0, 0, -1] > 800
    starts = record.path[0, 0, 0, 1:]
    steps = mm.train_attention(problem, p, num_steps=1, init=starts, record=2, **options)
    for W, found in zip(starts, steps.W[0, 0], strict=True):
        twin = train_literally(problem, p, [W], step_rule="polyak", lrs=(1.0, 1.0))
        assert distance(found - W, last_of(twin, 1)[0] - W, 2.0) <= 1e-8


@pytest.mark.parametrize("eps", [1e-16, 1e-3])
def test_training_with_eps_is_the_literal_one(eps):
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    twin = train_literally(problem, 1.75, [np.zeros((7, 7))], eps=eps, lrs=(0.1, 0.1))
    record = mm.train_attention(problem, 1.75, num_steps=800, eps=eps, **FAST)
    assert distance(record.W[0, 0, 0], last_of(twin, 800)[0], 1.75) <= 1e-8


def last_of(steps, num_steps):
    """The weights after this number of steps."""
    return next(itertools.islice(steps, num_steps, None))[0]


# What theory says.


def test_eps_freezes_training_and_zero_does_not():
    problems = spheres(*range(1, 21))
    options = {"p": [1.75, 2.0], "num_steps": [1500, 2000], **FAST}
    frozen = mm.train_attention(problems, eps=2.2e-16, **options)
    free = mm.train_attention(problems, **options)
    mean = frozen.norm[:, :, 0, -1].mean(axis=0)
    # Where the published runs stand: gradients have the size of eps then.
    assert mean == pytest.approx([161, 117], rel=0.05)
    assert (mean < 0.65 * free.norm[:, :, 0, -1].mean(axis=0)).all()
    assert (frozen.logit_gap[:, :, 0, -1] < 40).all()
    assert (free.logit_gap[:, :, 0, -1].mean(axis=0) > [150, 50]).all()


@pytest.mark.parametrize("p", [1.25, 1.5, 2.0, 3.0, 10.0])
def test_norm_grows_no_faster_than_the_steps_allow(p):
    # |u|_q <= lr k is |W|_p^(p-1).
    record = mm.train_attention(spheres(1, 2, 3), p, num_steps=300, record=30, target=None)
    bound = (0.1 * record.steps) ** (1 / (p - 1))
    assert (record.norm <= bound * (1 + 1e-12)).all()


def test_norm_at_p2_is_near_its_bound_in_the_end():
    record = mm.train_attention(spheres(1, 3, 4), 2.0, num_steps=2000, **FAST)
    assert (record.norm[..., -1] >= 0.9 * 200).all()


def test_training_ends_in_the_direction_of_the_max_margin_solution():
    record = mm.train_attention(spheres(1, 3), [1.75, 2.0, 3.0], num_steps=[1500, 4000, 20000])
    assert (record.divergence[..., -1] < 0.006).all()
    for i, j in np.ndindex(2, 3):
        problem, p = record.problems[i], record.settings.p[j]
        solution = mm.solve_attention_svm(
            problem.tokens, problem.queries, record.final_selection[i, j, 0], p
        )
        np.testing.assert_allclose(record.target[i, j, 0], solution.W, atol=1e-5)
        assert record.margin[i, j, 0, -1] < solution.margin
        assert record.margin[i, j, 0, -1] == pytest.approx(solution.margin, rel=0.2)


# Ends.


def test_equal_scores_end_with_a_zero_gradient():
    problem = AttentionProblem([[[1.0, 1.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], [0.0, 1.0])
    for rule in RULES:
        record = mm.train_attention(problem, [1.5, 2.0], step_rule=rule, num_steps=10, **FAST)
        assert (record.end == End.ZERO_GRADIENT).all()
        assert (record.steps == 0).all()
        assert not record.W.any()
        assert record.describe_ends()["zero_gradient"] == 2


@P
@pytest.mark.parametrize("lr", [1e3, 1e100, 1e300, 1.7e308])
@pytest.mark.parametrize("num_steps", [1, 50])
def test_a_learning_rate_far_too_large_is_finite_or_diverged(p, lr, num_steps):
    record = mm.train_attention(
        spheres(1, 2), p, step_rule="constant", lr=lr, num_steps=num_steps, **FAST
    )
    for place in np.ndindex(record.end.shape):
        finite = np.isfinite(record.W[place]).all() and np.isfinite(record.norm[place]).all()
        assert finite or record.end[place] == End.DIVERGED
        assert finite or not np.isnan(record.W[place]).any()
    if p < 2 and lr > 1e299:
        assert (record.end == End.DIVERGED).all()


def test_a_step_beyond_floating_point_ends_as_diverged():
    # A slope e^800 times lr.
    problem = AttentionProblem([[[1.0], [3.0]]], [[1.0]], [-1], [1000.0], "exponential")
    record = mm.train_attention(problem, 2.0, step_rule="constant", num_steps=5, **FAST)
    assert record.end.item() == End.DIVERGED
    assert not record.W.any()


def test_runs_that_end_repeat_their_last_step():
    record = mm.train_attention(
        spheres(1),
        [1.5],
        step_rule="constant",
        lr=1e300,
        num_steps=10,
        record=range(11),
        target=None,
    )
    assert record.steps[0, 0, 0].tolist() == [0] + [1] * 10


# K and Q.


@pytest.mark.parametrize("p", [1.25, 1.75, 2.0, 3.0])
@RULE
@pytest.mark.parametrize("rank", [7, 3, 1])
def test_factors_train_as_with_autograd(p, rule, rank):
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    rng = np.random.default_rng(0)
    starts = [0.5 * rng.normal(size=(7, rank)) for _ in range(2)]
    lr = 0.3 if rule == "polyak" else 0.1
    path = train_by_autograd(problem, p, starts, 30, parameterization="KQ", step_rule=rule, lr=lr)
    assert len(path) > 12
    record = mm.train_attention(
        problem,
        p,
        step_rule=rule,
        lr=lr,
        num_steps=len(path) - 1,
        init=np.stack(starts),
        parameterization="KQ",
        rank=rank,
        **FAST,
    )
    assert record.factors.shape == (1, 1, 1, 2, 7, rank)
    for found, expected in zip(record.factors[0, 0, 0], path[-1], strict=True):
        assert distance(found, expected, p) <= 1e-10
    K, Q = record.factors[0, 0, 0]
    np.testing.assert_allclose(record.W[0, 0, 0], K @ Q.T, rtol=1e-14)


@pytest.mark.parametrize(("p", "lr", "num_steps"), [(1.75, 0.01, 2100), (2.0, 0.02, 2500)])
def test_factors_train_as_literally_far_into_underflow(p, lr, num_steps):
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    rng = np.random.default_rng(0)
    starts = [0.5 * rng.normal(size=(7, 7)) for _ in range(2)]
    twin = train_literally(problem, p, starts, parameterization="KQ", lrs=(lr, lr))
    record = mm.train_attention(
        problem,
        p,
        lr=lr,
        num_steps=num_steps,
        init=np.stack(starts),
        parameterization="KQ",
        **FAST,
    )
    assert record.logit_gap[0, 0, 0, -1] > 750
    for found, expected in zip(record.factors[0, 0, 0], last_of(twin, num_steps), strict=True):
        assert distance(found, expected, p) <= 1e-8


def test_a_zero_factor_moves_and_two_stand_still():
    problem = synthetic.unit_sphere(1, 3, 5, 7)
    init = np.zeros((2, 2, 7, 7))
    init[1, 0] = 1.0
    record = mm.train_attention(problem, 2.0, init=init, num_steps=5, parameterization="KQ", **FAST)
    assert record.end[0, 0].tolist() == [End.ZERO_GRADIENT, End.RUNNING]
    assert record.W[0, 0, 1].any()
