r"""Training written literally: slow, obvious, one formula a line.

    u <- u - step G,    w <- sign(u) |u|^(1/(p-1))

for each tensor; all gradients are taken before any tensor moves. The compiled loop is compared with
this, step by step, at gradients that floating point cannot hold: they are mantissas with a
log-scale here as well, from :mod:`mirrormargin.attention.logits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import find_log_loss_gap, find_logit_gradient
from mirrormargin.optim.reference import bisect_step

__all__ = ["train_literally"]

Array = NDArray[np.float64]


def train_literally(
    problem: AttentionProblem,
    p: float,
    starts: Sequence[Array],
    *,
    parameterization: str = "W",
    step_rule: str = "normalized",
    lrs: Sequence[float] = (0.1, 0.1),
    decays: Sequence[float] = (0.0, 0.0),
    eps: float = 0.0,
    max_lr: float = np.inf,
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Yield the weights and duals before each step, without end.

    Args:
        problem: The problem; its head counts unless it is trained.
        p: Exponent.
        starts: Of the tensors: [W], [K, Q] or [W, v].
        parameterization: ``"W"``, ``"KQ"`` or ``"joint"``.
        step_rule: ``"constant"``, ``"normalized"`` or ``"polyak"``.
        lrs: Learning rate of each tensor.
        decays: lr is divided by ``(k + 1)^decay``, for each tensor.
        eps: Added to the dual norm.
        max_lr: Largest step of Polyak's rule.
    """
    w = [np.array(start, dtype=float) for start in starts]
    u = [np.sign(x) * np.abs(x) ** (p - 1) for x in w]
    k = 0
    while True:
        yield [x.copy() for x in w], [x.copy() for x in u]
        g, log_scales, log_gap = find_gradients(problem, w, parameterization)
        rates = [lr / (k + 1) ** decay for lr, decay in zip(lrs, decays, strict=True)]
        if step_rule == "constant":
            steps = [lr * np.exp(s) for lr, s in zip(rates, log_scales, strict=False)]
        elif step_rule == "normalized":
            norms = [find_norm(G, p, eps, s) for G, s in zip(g, log_scales, strict=True)]
            steps = [lr / norm if norm else 0.0 for lr, norm in zip(rates, norms, strict=False)]
        else:
            target = rates[0] * np.exp(log_gap - log_scales[0])
            most = max_lr * np.exp(log_scales[0]) if max_lr < np.inf else np.inf
            steps = [find_polyak_step(u, g, p, target, most)] * len(u)
        u = [x - step * G for x, step, G in zip(u, steps, g, strict=True)]
        w = [to_primal(x, p) for x in u]
        k += 1


def to_primal(u: Array, p: float) -> Array:
    return np.sign(u) * np.abs(u) ** (1 / (p - 1))


def find_norm(G: Array, p: float, eps: float, log_scale: float) -> float:
    """|G|_q + eps, in units of the mantissa."""
    q = p / (p - 1)
    with np.errstate(over="ignore"):
        more = eps * np.exp(-log_scale) if eps else 0.0
    return (np.abs(G) ** q).sum() ** (1 / q) + more


def find_gradients(
    problem: AttentionProblem, w: Sequence[Array], parameterization: str
) -> tuple[list[Array], list[float], float]:
    """Mantissas, their log-scales, and ``log(L - floor)``."""
    X, y, loss = problem.tokens, problem.labels, problem.margin_loss
    W = w[0] @ w[1].T if parameterization == "KQ" else w[0]
    v = w[1] if parameterization == "joint" else problem.head
    scores = y[:, None] * (X @ v) if parameterization == "joint" else problem.scores
    logits = problem.logits(W)
    found = find_logit_gradient(logits, scores, loss)
    G, log_scale = problem.pull_back(found.mantissa), float(found.log_scale)
    log_gap = float(find_log_loss_gap(logits, scores, loss))
    if parameterization == "W":
        return [G], [log_scale], log_gap
    if parameterization == "KQ":
        return [G @ w[1], G.T @ w[0]], [log_scale, log_scale], log_gap
    s = found.attention
    slopes = loss.log_slope((s * scores).sum(axis=1))
    top = float(slopes.max())
    average = (s[:, :, None] * X).sum(axis=1)
    Gv = -((y * np.exp(slopes - top))[:, None] * average).mean(axis=0)
    return [G, Gv], [log_scale, top], log_gap


def find_polyak_step(
    u: Sequence[Array], g: Sequence[Array], p: float, target: float, most: float
) -> float:
    """The root of < g, w - to_primal(u - step g) > = target."""

    def decrease(step: float) -> float:
        return sum(
            float((G * (to_primal(x, p) - to_primal(x - step * G, p))).sum())
            for x, G in zip(u, g, strict=True)
        )

    return bisect_step(decrease, target, most)
