r"""The loss as a function of the head alone, and of W alone.

    L(v, W) = (1/n) sum_i loss(m_i),    m_i = y_i <v, X_i' s_i>,    s_i = softmax(X_i W z_i).

Given W it is a convex function of the margins, which are linear in v. Given v it is a function of
the logits, which are linear in W; there the floor of v is taken off, for at the end of training W
changes the loss by a share of e^-700. Both are known by logarithm and scaled derivatives, as
:class:`~mirrormargin.dynamics.paths.ball.Ball` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import (
    LogitGradient,
    find_log_loss_gap,
    find_logit_gradient,
    log_sum,
)
from mirrormargin.attention.losses import MarginLoss

__all__ = [
    "LossByMargins",
    "MarginGradient",
    "RiseByLogits",
    "find_gap",
    "find_rows",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MarginGradient:
    """Derivatives of the mean loss by the margins, each margin a group of its own."""

    mantissa: Array
    log_scale: float
    bend: Array

    def curvature(self) -> Array:
        return -(self.bend * self.mantissa)[:, :, None]


class LossByMargins:
    """The mean loss as a function of the margins, (n, 1)."""

    def __init__(self, loss: MarginLoss) -> None:
        self._loss = loss

    def log_value(self, a: Array) -> float:
        return float(log_sum(self._loss.log_value(a[:, 0])) - np.log(len(a)))

    def derive(self, a: Array) -> MarginGradient:
        log_slope = self._loss.log_slope(a)
        scale = float(log_slope.max())
        mantissa = -np.exp(log_slope - scale) / len(a)
        return MarginGradient(mantissa, scale, self._loss.curvature(a))


class RiseByLogits:
    """How far the mean loss is above its floor, as a function of the logits, (n, T)."""

    def __init__(self, scores: Array, loss: MarginLoss) -> None:
        self._scores, self._loss = scores, loss

    def log_value(self, a: Array) -> float:
        return float(find_log_loss_gap(a, self._scores, self._loss))

    def derive(self, a: Array) -> LogitGradient:
        return find_logit_gradient(a, self._scores, self._loss)


def find_gap(problem: AttentionProblem) -> RiseByLogits:
    """The gap between the loss and its floor as a function of the logits."""
    return RiseByLogits(problem.scores, problem.margin_loss)


def find_rows(problem: AttentionProblem) -> Array:
    """A with ``A w = (x_it' W z_i)``, shape (n, T, d^2)."""
    X, z = problem.tokens, problem.queries
    return (X[:, :, :, None] * z[:, None, None, :]).reshape(*X.shape[:2], -1)
