"""What stories compute: parts are pure, and oracles agree."""

import numpy as np
import pytest
import torch

from mirrormargin.claims.registry import STORIES
from mirrormargin.claims.stories import multi_token, nonlinear_head
from mirrormargin.claims.stories.separable import (
    draw_rows,
    find_gradient,
    follow_flow,
    make_map,
)


def test_runs_do_not_depend_on_how_seeds_are_split():
    settings = STORIES["multi-token"].choose_settings("quick", 0) | {"d": [4], "num_seeds": 12}
    whole, pieces = (
        STORIES["multi-token"].join(
            [
                multi_token.run(settings, part)
                for part in multi_token.split(settings | {"group": group})
            ]
        )
        for group in (12, 5)
    )
    for key, array in whole.items():
        np.testing.assert_array_equal(array, pieces[key], err_msg=key)


def test_first_step_under_a_relu_head_is_that_of_autograd(monkeypatch):
    X, y, z, V, start = (torch.tensor(array) for array in multi_token._draw(3, 6))
    W = start.clone().requires_grad_()
    attention = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), dim=-1)
    outputs = torch.relu(torch.einsum("nt,ntd->nd", attention, X) @ V).sum(dim=-1)
    torch.nn.functional.softplus(-y * outputs).mean().backward()
    assert W.grad is not None
    monkeypatch.setattr(multi_token, "NUM_STEPS", 1)
    path, _ = multi_token._train(*(array.numpy()[None] for array in (X, y, z, V, start)))
    expected = start - multi_token.LR * W.grad / W.grad.norm()
    np.testing.assert_allclose(path[0, 0], expected.numpy(), atol=1e-13)


def test_with_one_token_in_each_sequence_all_predictions_are_the_same(find_evidence):
    evidence = find_evidence("multi-token")
    several = evidence["counts"] & (evidence["num_selected"] > 3)
    assert several.any()
    # With a single token in each sequence W_fin is zero, and both predictions are the same.
    single = evidence["counts"] & (evidence["num_selected"] == 3)
    np.testing.assert_allclose(
        evidence["cosine_eq"][single], evidence["cosine_one"][single], atol=1e-6
    )
    assert (evidence["cosine_eq"] >= evidence["cosine_dir"])[several, -1].all()


def test_gaps_under_a_relu_head_are_differences_of_losses():
    rng = np.random.default_rng(0)
    keys, hidden = rng.normal(size=(3, 7, 2)), rng.normal(size=(3, 7, 8))
    prompts = rng.normal(size=(5, 2))
    logits = np.einsum("ntk,ak->ant", keys, prompts)
    weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    outputs = np.maximum(np.einsum("ant,nth->anh", weights, hidden), 0).sum(axis=-1)
    best = np.maximum(hidden[:, 0], 0).sum(axis=-1)
    expected = (np.log1p(np.exp(-outputs)) - np.log1p(np.exp(-best))).mean(axis=-1)
    np.testing.assert_allclose(
        nonlinear_head._find_gaps(keys, hidden, prompts), expected, rtol=1e-10
    )


def test_linear_gradient_is_that_of_autograd():
    A = draw_rows(1, 15, 60)
    w = torch.tensor(np.random.default_rng(2).normal(size=60), requires_grad=True)
    torch.nn.functional.softplus(-torch.tensor(A) @ w).mean().backward()
    assert w.grad is not None
    direction, log_size = find_gradient(A, w.detach().numpy(), 1.5)
    np.testing.assert_allclose(np.exp(log_size) * direction, w.grad.numpy(), rtol=1e-11)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_flow_is_descent_with_a_small_rate(p):
    A, to_primal = draw_rows(1, 15, 60), make_map(p)
    log10_k, path = follow_flow(A, to_primal, p / (p - 1), 3.0, [2.0, 3.0])
    u, lr = np.zeros(60), 0.05
    for _ in range(round(10 ** log10_k[-1] / lr)):
        direction, log_size = find_gradient(A, to_primal(u), 2.0)
        u = u - lr * np.exp(log_size) * direction
    w = to_primal(u)
    assert np.linalg.norm(path[-1] - w) <= 0.03 * np.linalg.norm(w)
