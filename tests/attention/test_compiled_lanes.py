"""Eight gradients at once are eight gradients one by one, bit for bit."""

import functools

import numpy as np
import pytest
from compiled_once import compile_once

from mirrormargin.attention import AttentionProblem, compiled, compiled_lanes
from mirrormargin.attention.compiled import LOSS_CODES, allocate, pack, round_up
from mirrormargin.attention.compiled_lanes import allocate_lanes
from mirrormargin.attention.losses import LOSSES
from mirrormargin.geometry.lanes import LANES, load, make_lists, splat, store

SIZES = [(6, 8, 10), (4, 9, 8), (3, 4, 3), (5, 7, 13), (1, 5, 6), (4, 2, 5), (3, 3, 1), (2, 2, 4)]
GAPS = [0.1, 3.0, 40.0, 290.0, 310.0, 700.0, 800.0, 1e4, 1e6]
HEADS = [1.0, 50.0, 1e4, 1e250]


def make_single(version):
    def run(Wt, data, memory, loss, Gt):
        _ = version
        compiled.push_forward(Wt, data, memory)
        log_scale = compiled.find_weights(data, memory, loss)
        compiled.pull_back(data, memory, Gt)
        return log_scale

    return run


def make_together(version):
    def run(Wt, n, T, d, active, memory, one, loss, Gt, log_scales):
        _ = version
        compiled_lanes.push_forward(Wt, n, T, d, memory)
        is_active = load(active, 0) > splat(0.0)
        log_scale = compiled_lanes.find_weights(n, T, is_active, loss, memory, one)
        store(log_scales, 0, log_scale)
        compiled_lanes.pull_back(Gt, n, T, d, memory)

    return run


@functools.cache
def load_both():
    data = pack(AttentionProblem(np.ones((1, 2, 1)), [[1.0]], [1], [1.0]))
    memory, G, x = allocate(1, 2, 1), np.zeros((1, 4)), np.zeros(LANES)
    single = compile_once(make_single, G, data, memory, 0, G)
    together = compile_once(make_together, x, 0, 0, 0, x, allocate_lanes(1, 2, 1), memory, 0, x, x)
    return single, together


def find_one(problem, W):
    """G (d, d), its log-scale and s (n, T) by the loop for one problem."""
    n, T, d = problem.tokens.shape
    memory = allocate(n, T, d)
    Wt, Gt = np.zeros((d, round_up(d))), np.zeros((d, round_up(d)))
    Wt[:, :d] = W.T
    loss = LOSS_CODES[problem.loss_name]
    log_scale = load_both()[0](Wt, pack(problem), memory, loss, Gt)
    return Gt[:, :d].T, log_scale, memory.s[:, :T]


def find_eight(problems, matrices, active=None):
    """The same of eight, by the lanes: (8, d, d), (8,) and (8, n, T)."""
    n, T, d = problems[0].tokens.shape
    memory, one = allocate_lanes(n, T, d), allocate(n, T, d)
    for array in (*memory, *one):
        array[...] = 7  # what the last step left
    W, G, chosen, log_scales = make_lists(d * d, d * d, 1, 1)
    fill(memory.X, [problem.tokens for problem in problems])
    fill(memory.z, [problem.queries for problem in problems])
    fill(memory.scores, [problem.scores for problem in problems])
    fill(W, [one.T for one in matrices])
    chosen[:] = 1.0 if active is None else active
    loss = LOSS_CODES[problems[0].loss_name]
    load_both()[1](W, n, T, d, chosen, memory, one, loss, G, log_scales)
    return (
        G.reshape(d, d, LANES).transpose(2, 1, 0),
        log_scales,
        memory.s.reshape(n, T, LANES).transpose(2, 0, 1),
    )


def fill(target, arrays):
    target[:] = np.stack(arrays, axis=-1).reshape(-1)


def draw(seed, size, gap, loss, head=1.0):
    """A random problem and a W under which its smallest lead is the gap."""
    rng = np.random.default_rng(seed)
    n, T, d = size
    X, z, y = rng.normal(size=size), rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    problem = AttentionProblem(X, z, y, head * rng.normal(size=d), loss)
    W = rng.normal(size=(d, d))
    two = np.sort(problem.logits(W), axis=1)[:, -2:]
    return problem, W * (gap / (two[:, 1] - two[:, 0]).min())


def assert_same_bits(pairs):
    problems, matrices = zip(*pairs, strict=True)
    G, log_scales, s = find_eight(problems, matrices)
    for lane, (problem, W) in enumerate(pairs):
        expected = find_one(problem, W)
        for mine, other in zip((G[lane], log_scales[lane], s[lane]), expected, strict=True):
            np.testing.assert_array_equal(mine, other, err_msg=f"lane {lane}")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", SIZES)
def test_problems_of_all_gaps_side_by_side_have_the_bits_of_each_alone(size, loss):
    for start in (0, 1):
        assert_same_bits([draw(start + k, size, GAPS[start + k], loss) for k in range(LANES)])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gap", [2.0, 500.0])
def test_problems_under_all_heads_side_by_side_have_the_bits_of_each_alone(gap, loss):
    # Small, large and huge slopes: some lanes leave floating point, and their neighbours do not.
    pairs = [draw(k, (4, 5, 6), gap, loss, HEADS[k % 4]) for k in range(LANES)]
    _, log_scales, _ = find_eight(*zip(*pairs, strict=True))
    if gap == 2.0 and loss != "correlation":
        assert 0 < (log_scales != 0).sum() < LANES
    assert_same_bits(pairs)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_tokens_and_equal_scores_have_the_bits_of_each_alone(loss):
    pairs = [draw(k, (3, 5, 4), 2.0, loss) for k in range(LANES)]
    for k in (1, 4):
        given = pairs[k][0]
        X = given.tokens.copy()
        X[:] = X[:, :1]  # all tokens of a sequence
        pairs[k] = AttentionProblem(X, given.queries, given.labels, given.head, loss), pairs[k][1]
    given = pairs[6][0]
    X = given.tokens.copy()
    X[:, :, 0] = 0.5  # under this head all scores are equal
    pairs[6] = AttentionProblem(X, given.queries, given.labels, np.eye(4)[0], loss), pairs[6][1]
    problems, matrices = zip(*pairs, strict=True)
    G, log_scales, _ = find_eight(problems, matrices)
    assert not G[[1, 4, 6]].any()
    assert (log_scales[[1, 4, 6]] == 0).all()
    assert_same_bits(pairs)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_numbers_that_are_not_finite_stay_in_their_lane(loss, bad):
    pairs = [draw(k, (3, 5, 4), 2.0, loss) for k in range(LANES)]
    clean = find_eight(*zip(*pairs, strict=True))[0]
    pairs[3][1][1, 2] = bad
    found = find_eight(*zip(*pairs, strict=True))[0]
    others = [lane for lane in range(LANES) if lane != 3]
    np.testing.assert_array_equal(found[others], clean[others])
    assert not np.isfinite(found[3]).all() or bad == 1e308
    assert_same_bits(pairs)


def test_a_lane_that_does_not_count_changes_no_other():
    pairs = [draw(k, (3, 5, 4), 2.0, "logistic", HEADS[k % 4]) for k in range(LANES)]
    whole = find_eight(*zip(*pairs, strict=True))
    active = np.ones(LANES)
    active[[2, 3, 7]] = 0.0  # among them lanes whose weights leave floating point
    some = find_eight(*zip(*pairs, strict=True), active)
    for mine, other in zip(some, whole, strict=True):
        np.testing.assert_array_equal(mine[active > 0], other[active > 0])


@pytest.mark.parametrize("shift", range(1, LANES))
def test_the_position_of_a_problem_changes_no_bit(shift):
    pairs = [draw(k, (3, 5, 4), GAPS[k], "logistic", HEADS[k % 3]) for k in range(LANES)]
    here = find_eight(*zip(*pairs, strict=True))
    moved = pairs[-shift:] + pairs[:-shift]
    there = find_eight(*zip(*moved, strict=True))
    for mine, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(np.roll(mine, shift, axis=0), other)
