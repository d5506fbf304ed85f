r"""Linearly separable data, and mirror descent on it with any potential that has an inverse map.

    m = A w,  A_i = y_i x_i,    L(w) = (1/n) sum_i log(1 + e^-m_i),    u <- u - eta g,  w = map(u)

Descent with a constant rate takes e^m steps to reach the margin m. Steps that move margins by about
``REACH`` follow the same path; one of length eta stands for eta / (lr |g|) steps of rate lr, which
add up in their logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirrormargin.figures import Figure, Panel
from mirrormargin.geometry import lp_norm, signed_power

__all__ = ["draw_linear", "draw_rows", "find_gradient", "follow_flow", "make_map"]

REACH = 0.2
SHORTEST = 0.1  # of the step that would move margins by REACH if all weights grew alike
Map = Callable[[Any], Any]


def draw_rows(seed: int, n: int, d: int) -> Any:
    """y_i x_i of n samples with labels, (n, d): separable, as n < d."""
    rng = np.random.default_rng([seed, 21])
    features = rng.normal(size=(n, d)) / np.sqrt(d)
    return rng.choice([-1.0, 1.0], size=n)[:, None] * features


def make_map(p: float) -> Map:
    """The inverse mirror map of psi_p."""
    return lambda u: signed_power(u, 1 / (p - 1))


def find_gradient(A: Any, w: Any, q: float) -> tuple[Any, float]:
    """The direction of the gradient, of length one in the lq norm, and the log of its length."""
    log_slopes = -np.logaddexp(0.0, A @ w)
    top = log_slopes.max()
    gradient = -(np.exp(log_slopes - top) @ A)
    size = lp_norm(gradient, q)
    return gradient / size, float(top + np.log(size / len(A)))


def follow_flow(A: Any, to_primal: Map, q: float, decades: float, points: Any) -> tuple[Any, Any]:
    """Follow descent with the rate 1 from w = 0.

    Args:
        A: Rows y_i x_i, (n, d).
        to_primal: The inverse mirror map.
        q: Exponent of the norm that step lengths are measured in.
        decades: log10 of the last step.
        points: log10 of the steps at which to record, increasing from 0 on.

    Returns:
        log10 of the recorded steps, the first ones at or after ``points``, and w there, (R, d).
    """
    u = np.zeros(A.shape[1])
    w, m = u, np.zeros(len(A))
    log_k, eta = -np.inf, 1e-6
    last = decades * np.log(10.0)
    steps, kept = [], []
    wanted = [point * np.log(10.0) for point in points]
    while log_k < last:
        g, log_size = find_gradient(A, w, q)
        # A weight that crosses zero at p far above 2 jumps however short the step is.
        growth = REACH / max(1.0, float(np.abs(m).max())) / (q - 1)
        least = SHORTEST * growth * (np.abs(u) ** q).sum() ** (1 / q)
        while True:
            new_u = u - eta * g
            new_w = to_primal(new_u)
            new_m = A @ new_w
            if np.abs(new_m - m).max() <= REACH or eta <= least:
                break
            eta /= 2
        u, w, m = new_u, new_w, new_m
        log_k = np.logaddexp(log_k, np.log(eta) - log_size)
        eta *= 1.25
        if len(kept) < len(wanted) and log_k >= wanted[len(kept)]:
            steps.append(log_k / np.log(10.0))
            kept.append(w)
            while len(kept) < len(wanted) and log_k >= wanted[len(kept)]:
                steps.append(steps[-1])
                kept.append(w)
    return np.array(steps), np.stack(kept)


def draw_linear(*panels: Panel) -> Figure:
    """The figure that flows and normalised steps share."""
    return Figure(
        "linear",
        "Linear models against the max-margin separator of their geometry",
        "Divergence of w from the max-margin separator in the norm of its potential, and the"
        " entries of w by size; median over data sets, with the least and the largest where it is a"
        " divergence.",
        panels,
    )
