"""unit_sphere: the problem that a seed names must never change."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from mirrormargin.attention import synthetic
from mirrormargin.errors import ProblemError


def frobenius_max_margin(problem):
    """min |W|_F with <W, (x_opt - x_t) z'> >= 1, by non-negative least squares.

    Rows a_k of the constraints A W >= 1 give E = [A'; 1'] and f = (0, ..., 0, 1); the residual
    r of min |E u - f|, u >= 0, points along the solution: W = -r[:-1] / r[-1].
    """
    rows = [
        np.outer(X[best] - X[t], z).ravel()
        for X, z, best in zip(problem.tokens, problem.queries, problem.optimal_tokens, strict=True)
        for t in range(problem.num_tokens)
        if t != best
    ]
    A = np.array(rows)
    E = np.vstack([A.T, np.ones(len(A))])
    f = np.append(np.zeros(A.shape[1]), 1.0)
    residual = E @ nnls(E, f)[0] - f
    W = -residual[:-1] / residual[-1]
    assert (A @ W).min() > 1 - 1e-9
    return W


def test_seed_1_has_the_known_max_margin_norm():
    W = frobenius_max_margin(synthetic.unit_sphere(1))
    assert np.linalg.norm(W) == pytest.approx(2.660156915, abs=1e-6)


def test_seed_1_has_the_known_entries():
    problem = synthetic.unit_sphere(1)
    expected_head = [0.29672247, 0.11975826, 0.02767214, 0.27876043]
    np.testing.assert_allclose(problem.head[:4], expected_head, atol=1e-6)
    assert problem.labels.tolist() == [-1, -1, -1, -1, 1, 1]
    np.testing.assert_allclose(
        problem.tokens[0, 0, :3], [0.88108331, -0.03381715, 0.07396672], atol=1e-6
    )
    np.testing.assert_allclose(
        problem.queries[5, -3:], [0.35399154, 0.63212872, -0.35108966], atol=1e-6
    )
    assert problem.optimal_tokens.tolist() == [3, 2, 6, 2, 6, 2]


def test_same_seed_gives_the_same_bits():
    one, two = synthetic.unit_sphere(5), synthetic.unit_sphere(5)
    for name in ("tokens", "queries", "labels", "head"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_different_seeds_give_different_problems():
    assert not np.array_equal(synthetic.unit_sphere(5).head, synthetic.unit_sphere(6).head)


def test_global_random_state_is_neither_read_nor_changed():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    synthetic.unit_sphere(1)
    assert torch.equal(torch.randn(3), expected)


def test_torch_defaults_do_not_change_the_problem():
    expected = synthetic.unit_sphere(3)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            given = synthetic.unit_sphere(3)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(given.tokens, expected.tokens)
    np.testing.assert_array_equal(given.labels, expected.labels)


def test_vectors_lie_on_the_unit_sphere_and_hold_float32_values():
    problem = synthetic.unit_sphere(0, num_sequences=3, num_tokens=4, dim=5)
    assert problem.tokens.shape == (3, 4, 5)
    for array in (problem.head, problem.tokens, problem.queries):
        np.testing.assert_allclose(np.linalg.norm(array, axis=-1), 1.0, atol=1e-6)
        np.testing.assert_array_equal(array, array.astype(np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed is -1: give an integer from 0 to"),
        ({"seed": 2**64}, r"seed is 18446744073709551616: give an integer from 0 to"),
        ({"seed": 1.0}, r"seed is 1.0: give a"),
        ({"seed": None}, r"seed is None: give an integer"),
        ({"seed": 1, "num_sequences": 0}, r"num_sequences is 0: give a positive integer"),
        ({"seed": 1, "num_tokens": 1}, r"num_tokens is 1: give an integer of at least 2"),
        ({"seed": 1, "dim": 0}, r"dim is 0: give a positive integer"),
        ({"seed": 1, "dim": "10"}, r"dim is '10': give a positive integer"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ProblemError, match=message):
        synthetic.unit_sphere(**arguments)
