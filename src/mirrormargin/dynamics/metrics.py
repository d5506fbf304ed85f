r"""What is measured of a W on its way.

    log_loss         log L(W)
    log_loss_gap     log(L(W) - floor), the floor that the head allows
    norm             |W|_p
    logit_gap        min over i and t of (x_i,sel - x_it)' W z_i, t not selected
    margin           logit_gap / |W|_p, which grows to that of the max-margin solution
    attention        mean over i of the attention on the selected token, the most attended one
    log_unattended   log of the largest over i of what is not on the selected token
    selection        the selected tokens
    divergence       D(target, W), the directional divergence

All of W's stand in one array, with as many axes in front as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import attend, find_log_loss_gap, log_sum
from mirrormargin.geometry.batched import norm_each

__all__ = ["MEASURES", "measure"]

Array = NDArray[np.float64]

MEASURES = (
    "log_loss",
    "log_loss_gap",
    "norm",
    "logit_gap",
    "margin",
    "attention",
    "log_unattended",
    "selection",
)
BLOCK = 500_000  # numbers at a time: what leaves the caches costs more than what it is worth


def measure(
    problems: Sequence[AttentionProblem], W: Array, p: float, heads: Array | None = None
) -> dict[str, NDArray[Any]]:
    """All measures but the divergence; each array leads with the axes of W.

    Args:
        problems: P of them, of one shape and loss.
        W: The matrices, (P, ..., d, d).
        p: Exponent of the norm.
        heads: A head for each W, (P, ..., d), in place of the problems' own.
    """
    X, z, y, v = (
        np.stack([getattr(problem, name) for problem in problems])[:, None]
        for name in ("tokens", "queries", "labels", "head")
    )
    # One layout, whichever it came in: products of another one may differ in their last bits.
    flat = np.ascontiguousarray(W).reshape(len(problems), -1, *W.shape[-2:])
    v = v if heads is None else heads.reshape(*flat.shape[:-1])
    count = max(1, BLOCK // max(X[..., 0].size, flat[:, 0].size))
    parts = [
        _measure(X, z, y, v if heads is None else v[:, part], flat[:, part], p, problems[0])
        for part in (slice(k, k + count) for k in range(0, flat.shape[1], count))
    ]
    return {
        name: np.concatenate([part[name] for part in parts], axis=1).reshape(
            *W.shape[:-2], *parts[0][name].shape[2:]
        )
        for name in MEASURES
    }


def _measure(
    X: Array, z: Array, y: Array, v: Array, W: Array, p: float, problem: AttentionProblem
) -> dict[str, Any]:
    """Of W (P, B, d, d), with tokens (P, 1, n, T, d) and heads (P, 1 or B, d)."""
    logits = (X @ (z @ W.swapaxes(-1, -2))[..., None])[..., 0]
    scores = y[..., None] * (X @ v[:, :, None, :, None])[..., 0]
    s, log_s, leader = attend(logits)
    others = np.ones(s.shape, bool)
    np.put_along_axis(others, leader[..., None], False, axis=-1)
    lead = np.take_along_axis(logits, leader[..., None], axis=-1) - logits
    logit_gap = np.where(others, lead, np.inf).min(axis=(-1, -2))
    norm = norm_each(W, p, axes=2)
    loss = problem.margin_loss
    log_losses = loss.log_value((s * scores).sum(axis=-1))
    return {
        "log_loss": log_sum(log_losses) - np.log(problem.num_sequences),
        "log_loss_gap": find_log_loss_gap(logits, scores, loss),
        "norm": norm,
        "logit_gap": logit_gap,
        "margin": np.divide(logit_gap, norm, out=np.zeros_like(norm), where=norm > 0),
        "attention": s.max(axis=-1).mean(axis=-1),
        "log_unattended": log_sum(np.where(others, log_s, -np.inf)).max(axis=-1),
        "selection": leader,
    }
