"""The problems in the plane: their closed forms, and where the papers' training ends on them."""

import math

import numpy as np
import pytest
from scipy.special import expit, softmax

from mirrormargin import is_locally_optimal, solve_attention_svm, solve_decoder_svm
from mirrormargin.attention.synthetic import joint_toy, planar_joint, planar_multi, planar_single
from mirrormargin.attention.synthetic.prompt import EPS
from mirrormargin.errors import ProblemError

STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)


def solve(problem, selection, **options):
    return solve_attention_svm(
        problem.tokens, problem.queries, selection, compiled=False, **options
    )


def mirror_step(weight, gradient, p, lr=0.1):
    """A normalized step of lp mirror descent."""
    norm = (np.abs(gradient) ** (p / (p - 1))).sum() ** ((p - 1) / p) + np.finfo(float).eps
    dual = np.sign(weight) * np.abs(weight) ** (p - 1) - lr * gradient / norm
    return np.sign(dual) * np.abs(dual) ** (1 / (p - 1))


def train_jointly(problem, W, v, p, steps):
    X, z, y = problem.tokens, problem.queries, problem.labels
    for _ in range(steps):
        s = softmax(np.einsum("itd,de,ie->it", X, W, z), axis=1)
        scores = y[:, None] * (X @ v)
        margins = (s * scores).sum(axis=1)
        slopes = -expit(-margins) / len(y)
        c = slopes[:, None] * s * (scores - margins[:, None])
        W_gradient = np.einsum("it,itd,ie->de", c, X, z)
        v_gradient = np.einsum("i,it,itd->d", slopes * y, s, X)
        W, v = mirror_step(W, W_gradient, p), mirror_step(v, v_gradient, p)
    return W, v


def train_prompt(problem, prompt, steps=300):
    """Normalized gradient descent on W, of which only the first column moves."""
    W = np.zeros((3, 3))
    W[:2, 0] = prompt
    for _ in range(steps):
        gradient = problem.gradient(W)
        W = W - 0.1 * gradient / np.linalg.norm(gradient)
    return W


@pytest.mark.parametrize(("p", "selected"), [(1.75, [1, 0]), (2.0, [1, 0]), (3.0, [0, 0])])
def test_joint_toy_selects_the_published_tokens_when_trained_jointly(p, selected):
    problem = joint_toy()
    W, v = train_jointly(problem, np.zeros((2, 2)), np.zeros(2), p, steps=200)
    assert problem.selected_tokens(W).tolist() == selected
    assert problem.attention(W).max(axis=1).min() > 0.999
    assert (problem.labels * (problem.tokens[[0, 1], selected] @ v) > 0).all()


def test_joint_toy_head_has_the_optimal_tokens_that_joint_training_selects():
    problem = joint_toy()
    assert problem.optimal_tokens.tolist() == [1, 0]
    assert problem.labels.tolist() == [1, -1]
    np.testing.assert_array_equal(problem.queries, problem.tokens[:, 0])


@pytest.mark.parametrize(("height", "prompt"), [(1.0, (4 / 3, 1 / 3)), (1.5, (5 / 4, 1 / 4))])
def test_planar_joint_has_its_closed_forms(height, prompt):
    problem = planar_joint(third=(0.5, height))
    assert problem.optimal_tokens.tolist() == [1, 1, 1]
    expected = np.column_stack([prompt, np.zeros(2)])
    np.testing.assert_allclose(solve(problem, [1, 1, 1]).W, expected, atol=1e-7)
    decoder = solve_decoder_svm(problem.tokens[:, 1], problem.labels)
    np.testing.assert_allclose(decoder.v, [0.0, 1.0], atol=1e-7)


def test_planar_joint_third_sequence_leaves_the_decoders_support_when_raised():
    margins = {}
    for height in (1.0, 1.5):
        problem = planar_joint(third=(0.5, height))
        v = solve_decoder_svm(problem.tokens[:, 1], problem.labels).v
        margins[height] = problem.labels * (problem.tokens[:, 1] @ v)
    np.testing.assert_allclose(margins[1.0], [1.0, 1.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(margins[1.5], [1.0, 1.0, 1.5], atol=1e-7)
    relaxed = solve(planar_joint(third=(0.5, 1.5)), [1, 1, 1], rhs=[1, 1, 0])
    np.testing.assert_allclose(relaxed.W, [[1.0, 0.0], [0.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize(("height", "prompt"), [(1.0, (4 / 3, 1 / 3)), (1.5, (1.0, 0.0))])
def test_planar_joint_training_ends_at_the_relaxed_prompt(height, prompt):
    problem = planar_joint(third=(0.5, height))
    start = np.array([[0.0, 0.0], [-1.0, 0.0]])
    W, v = train_jointly(problem, start, np.array([-1.0, 0.0]), 2.0, steps=300)
    assert problem.selected_tokens(W).tolist() == [1, 1, 1]
    assert not W[:, 1].any()
    np.testing.assert_allclose(
        W[:, 0] / np.linalg.norm(W), prompt / np.linalg.norm(prompt), atol=0.02
    )
    np.testing.assert_allclose(v / np.linalg.norm(v), [0.0, 1.0], atol=0.02)


@pytest.mark.parametrize(
    ("third", "message"),
    [
        ([1.0], r"third has shape \(1,\): give shape \(2,\), the two coordinates"),
        (0.5, r"third has shape \(\): give shape \(2,\)"),
        ((0.5, math.nan), r"third\[1\] is nan: give finite numbers"),
        ("up", "third has dtype"),
    ],
)
def test_planar_joint_refuses_a_wrong_third_token(third, message):
    with pytest.raises(ProblemError, match=message):
        planar_joint(third)


@pytest.mark.parametrize("third_score", [0.9, 0.0, -3.0])
def test_planar_single_has_its_closed_forms(third_score):
    problem = planar_single(third_score)
    assert problem.scores.tolist() == [[1.0, 0.9, third_score]]
    for selected, prompt in ((0, (-0.1 / 1.01, 1 / 1.01)), (1, (1.0, 0.0))):
        solution = solve(problem, [selected])
        np.testing.assert_allclose(solution.W[:2, 0], prompt, atol=20 * EPS**2)
        assert abs(solution.W[2, 0]) < 5 * EPS
        assert not solution.W[:, 1:].any()
        assert solution.support.tolist() == [[False, False, True]]


@pytest.mark.parametrize(("third_score", "expected"), [(0.9, False), (0.0, True)])
def test_planar_single_second_token_is_locally_optimal_only_above_the_third(third_score, expected):
    problem = planar_single(third_score)
    assert is_locally_optimal(problem, [0], solution=solve(problem, [0]))
    assert is_locally_optimal(problem, [1], solution=solve(problem, [1])) is expected


def test_planar_single_training_ends_at_the_optimal_token_unless_the_third_is_poor():
    def ends(third_score):
        problem = planar_single(third_score)
        trained = [train_prompt(problem, (0.0, start)) for start in STARTS]
        return [int(problem.selected_tokens(W)[0]) for W in trained]

    assert set(ends(0.9)) == {0}
    assert set(ends(0.0)) == {0, 1}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("problem", "axis"),
    [(planar_single(0.9), (0, 1)), (planar_single(0.0), (0, 1)), (planar_multi(), (1, 0))],
    ids=["single", "single-poor-third", "multi"],
)
def test_first_column_of_w_follows_the_original_prompt(problem, axis, start):
    keys, scores = problem.tokens[:, :, :2], problem.scores
    prompt = start * np.array(axis)
    W = train_prompt(problem, prompt, steps=100)
    for _ in range(100):
        s = softmax(keys @ prompt, axis=1)
        margins = (s * scores).sum(axis=1, keepdims=True)
        c = -expit(-margins) * s * (scores - margins)
        gradient = np.einsum("it,itd->d", c, keys)
        prompt = prompt - 0.1 * gradient / np.linalg.norm(gradient)
    np.testing.assert_allclose(W[:2, 0], prompt, atol=1e-6)
    assert not W[:, 1:].any()


@pytest.mark.parametrize(
    ("third_score", "message"),
    [
        (1.0, "third_score is 1.0: give a number below 1"),
        (-math.inf, "third_score is -inf: give a number below 1"),
        (math.nan, "third_score is nan: give a number below 1"),
        ([0.9], r"third_score is \[0.9\]: give a number below 1"),
    ],
)
def test_planar_single_refuses_wrong_scores(third_score, message):
    with pytest.raises(ProblemError, match=message):
        planar_single(third_score)


def test_planar_multi_seed_0_has_the_published_max_margin():
    # The authors measure margins with the scores as a third coordinate, and their solver prints
    # half of the squared norm of the prompt.
    problem = planar_multi()
    tokens = problem.tokens * [1.0, 1.0, 1.0 / EPS]
    solution = solve_attention_svm(tokens, problem.queries, [0, 0, 0], compiled=False)
    assert (solution.W**2).sum() / 2 == pytest.approx(0.31319, abs=6e-6)


def test_planar_multi_seed_0_has_the_known_keys():
    keys = planar_multi().tokens[:, :, :2]
    np.testing.assert_allclose(keys[0, 0], [0.77483201, -0.23047204], atol=1e-6)
    np.testing.assert_allclose(keys[2, 6], [-0.71339607, -0.27701208], atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_planar_multi_is_separable_by_one_prompt(seed):
    problem = planar_multi(seed)
    assert problem.tokens.shape == (3, 7, 3)
    assert problem.scores.tolist() == [[1.0] + [0.5] * 6] * 3
    np.testing.assert_array_equal(problem.queries, [[1.0, 0.0, 0.0]] * 3)
    keys = problem.tokens[:, :, :2]
    queries = np.tile([1.0, 0.0], (3, 1))
    prompt = solve_attention_svm(keys, queries, [0, 0, 0], compiled=False).W[:, 0]
    assert ((keys[:, :1] - keys[:, 1:]) @ prompt).min() > 1 - 1e-6
