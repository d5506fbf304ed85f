"""Training as one would write it with torch: autograd, MirrorDescent, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import mirrormargin as mm

LOSSES = {
    "logistic": lambda m: torch.nn.functional.softplus(-m),
    "exponential": lambda m: torch.exp(-m),
    "correlation": lambda m: -m,
}


def train_by_autograd(
    problem: mm.AttentionProblem,
    p: float,
    starts: Sequence[np.ndarray],
    num_steps: int,
    *,
    parameterization: str = "W",
    max_gap: float = 20.0,
    **options: Any,
) -> list[list[np.ndarray]]:
    """The tensors W, (K, Q) or (W, v) before each step and after the last.

    It ends early where the smallest lead of a selected token is beyond ``max_gap``, or all margins
    beyond 40, where the loss and its derivative are about to underflow.
    """
    X, z, y = (torch.tensor(getattr(problem, name)) for name in ("tokens", "queries", "labels"))
    params = [torch.nn.Parameter(torch.tensor(start, dtype=torch.float64)) for start in starts]
    optimizer = mm.MirrorDescent([{"params": params, "p": p}], **options)
    path = [_values(params)]
    for _ in range(num_steps):
        W = params[0] @ params[1].T if parameterization == "KQ" else params[0]
        v = params[1] if parameterization == "joint" else torch.tensor(problem.head)
        logits = (X @ (z @ W.T)[:, :, None])[:, :, 0]
        two = logits.detach().sort(dim=1).values[:, -2:]
        if (two[:, 1] - two[:, 0]).min() > max_gap:
            break
        scores = y[:, None] * (X @ v)
        leader = logits.detach().argmax(dim=1, keepdim=True)
        best = scores.gather(1, leader)
        # The margin is sum(s * scores). From the leader's score, softmax's derivative does not
        # cancel: at a lead of 20 it would have lost nine digits.
        margins = best[:, 0] - (torch.softmax(logits, dim=1) * (best - scores)).sum(dim=1)
        if margins.min() > 40:
            break
        optimizer.zero_grad()
        LOSSES[problem.loss_name](margins).mean().backward()
        # Polyak's rule gets the loss above its floor, to all digits, and 0 as the floor.
        optimizer.step(loss=problem.loss_gap(W.detach().numpy()))
        path.append(_values(params))
    return path


def _values(params: list[torch.nn.Parameter]) -> list[np.ndarray]:
    return [param.detach().numpy().copy() for param in params]


def distance(found: np.ndarray, expected: np.ndarray, p: float) -> float:
    """Largest difference relative to the largest entry: of weights, or of duals if p > 2.

    There weights near zero have lost their digits, since |u|^(1/(p-1)) is steep.
    """
    if p > 2:
        found, expected = (np.sign(x) * np.abs(x) ** (p - 1) for x in (found, expected))
    size = np.abs(expected).max()
    return float(np.abs(found - expected).max() / size) if size else float(np.abs(found).max())
