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

from mirrormargin.attention.logits import LogitGradient, attend, find_logit_gradient, log_sum
from mirrormargin.dynamics.paths.log_losses import LogLoss

__all__ = ["LossByMargins", "MarginGradient", "RiseByLogits"]

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

    def __init__(self, loss: LogLoss) -> None:
        assert loss.log_value is not None
        self._loss, self._log_loss = loss, loss.log_value

    def log_value(self, a: Array) -> float:
        return float(log_sum(self._log_loss(a[:, 0])) - np.log(len(a)))

    def derive(self, a: Array) -> MarginGradient:
        log_slope = self._loss.loss.log_slope(a)
        scale = float(log_slope.max())
        mantissa = -np.exp(log_slope - scale) / len(a)
        return MarginGradient(mantissa, scale, self._loss.loss.curvature(a))


class RiseByLogits:
    """How far the mean loss is above its floor, as a function of the logits, (n, T)."""

    def __init__(self, scores: Array, loss: LogLoss) -> None:
        self._scores, self._loss = scores, loss
        self._best = scores.max(axis=1)
        with np.errstate(divide="ignore"):
            self._log_below = np.log(self._best[:, None] - scores)

    def log_value(self, a: Array) -> float:
        log_drop = log_sum(attend(a)[1] + self._log_below)
        return float(log_sum(self._loss.log_rise(self._best, log_drop)) - np.log(len(a)))

    def derive(self, a: Array) -> LogitGradient:
        return find_logit_gradient(a, self._scores, self._loss.loss)
