r"""The loss as a function of the head alone, and of W alone.

    L(v, W) = (1/n) sum_i loss(m_i),    m_i = y_i <v, X_i' s_i>,    s_i = softmax(X_i W z_i).

Given W it is a convex function of the margins, which are linear in v. Given v it is a function of
the logits, which are linear in W; there the floor of v is taken off, for at the end of training W
changes the loss by a share of e^-700. Both are known by logarithm and scaled derivatives, as
:class:`~mirrormargin.dynamics.paths.ball.Ball` asks for, where the losses have long underflowed:

    log loss(m),      log(loss(m - drop) - loss(m)).

The logistic loss is softplus(-m) = log(1 + e^-m), and its difference softplus(log(e^drop - 1) +
log(-loss'(m))), in range for margins of any size: ``test_log_losses_agree_with_mpmath``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import LogitGradient, attend, find_logit_gradient, log_sum
from mirrormargin.attention.losses import LOSSES, MarginLoss

__all__ = [
    "LOG_LOSSES",
    "LogLoss",
    "LossByMargins",
    "MarginGradient",
    "RiseByLogits",
    "find_gap",
    "find_rows",
]

Array = NDArray[np.float64]

TINY = -36.0  # log of what is nothing beside 1


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


def find_gap(problem: AttentionProblem) -> RiseByLogits:
    """The gap between the loss and its floor as a function of the logits."""
    return RiseByLogits(problem.scores, LOG_LOSSES[problem.loss_name])


def find_rows(problem: AttentionProblem) -> Array:
    """A with ``A w = (x_it' W z_i)``, shape (n, T, d^2)."""
    X, z = problem.tokens, problem.queries
    return (X[:, :, :, None] * z[:, None, None, :]).reshape(*X.shape[:2], -1)


@dataclass(frozen=True)
class LogLoss:
    """A loss and its logarithms.

    Attributes:
        loss: The loss itself.
        log_value: ``log(loss(m))``, None for a loss that does not vanish at infinity.
        log_rise: ``log(loss(m - drop) - loss(m))`` of m and of the log of ``drop > 0``.
    """

    loss: MarginLoss
    log_value: Callable[[Array], Array] | None
    log_rise: Callable[[Array, Array], Array]


def _log_softplus(x: Array) -> Array:
    return np.where(x < TINY, x, np.log(np.logaddexp(0.0, np.maximum(x, TINY))))


def _log_expm1(log_x: Array) -> Array:
    """``log(e^x - 1)``: log x for a small x, x for a large one."""
    x = np.exp(np.minimum(log_x, 700.0))
    return np.where(log_x < TINY, log_x, x + np.log(-np.expm1(-np.maximum(x, np.exp(TINY)))))


LOG_LOSSES: Mapping[str, LogLoss] = MappingProxyType(
    {
        "logistic": LogLoss(
            loss=LOSSES["logistic"],
            log_value=lambda m: _log_softplus(-m),
            log_rise=lambda m, log_drop: _log_softplus(
                _log_expm1(log_drop) + LOSSES["logistic"].log_slope(m)
            ),
        ),
        "exponential": LogLoss(
            loss=LOSSES["exponential"],
            log_value=np.negative,
            log_rise=lambda m, log_drop: _log_expm1(log_drop) - m,
        ),
        "correlation": LogLoss(
            loss=LOSSES["correlation"],
            log_value=None,
            log_rise=lambda m, log_drop: log_drop,
        ),
    }
)
