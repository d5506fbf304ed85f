r"""Losses of the margin, each strictly decreasing, with what training needs to stay in range.

    logistic      log(1 + e^-m)
    exponential   e^-m
    correlation   -m

Values, slopes and differences are given by their logarithms, and curvatures as a share of the
slope: they stay in the range of floating point where the loss itself does not, for margins of any
size: ``test_log_losses_agree_with_mpmath``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["LOSSES", "LossName", "MarginLoss"]

Array = NDArray[np.float64]

LossName = Literal["logistic", "exponential", "correlation"]
TINY = -36.0  # 1 + e^-36 is 1 up to rounding


@dataclass(frozen=True)
class MarginLoss:
    """A decreasing loss of the margin; each function acts on arrays entry by entry.

    Attributes:
        value: ``loss(m)``.
        log_value: ``log(loss(m))``; nan where the loss is negative.
        log_slope: ``log(-loss'(m))``.
        curvature: ``-loss''(m) / loss'(m)``.
        rise: ``loss(m - drop) - loss(m)`` for ``drop >= 0``, accurate for a tiny drop.
        log_rise: ``log(rise(m, e^log_drop))``, also where the drop or the rise underflows.
        vanishes: Whether the loss goes to 0 as the margin grows.
    """

    value: Callable[[Array], Array]
    log_value: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    rise: Callable[[Array, Array], Array]
    log_rise: Callable[[Array, Array], Array]
    vanishes: bool = True


def _logistic_value(m: Array) -> Array:
    return np.logaddexp(0.0, -m)


def _log_softplus(x: Array) -> Array:
    """log(log(1 + e^x)), which is x to all digits where e^x is nothing beside 1."""
    return np.where(x < TINY, x, np.log(np.logaddexp(0.0, np.maximum(x, TINY))))


def _correlation_log_value(m: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(-m)


def _logistic_rise(m: Array, drop: Array) -> Array:
    # log((1 + e^(drop - m)) / (1 + e^-m)); the first form cannot cancel, the second not overflow.
    near = np.log1p(np.expm1(np.minimum(drop, 1.0)) * expit(-m))
    return np.where(drop <= 1.0, near, _logistic_value(m - drop) - _logistic_value(m))


def _logistic_log_rise(m: Array, log_drop: Array) -> Array:
    # The rise is log(1 + e^x) with e^x = (e^drop - 1) / (1 + e^m).
    return _log_softplus(_log_expm1(log_drop) - np.logaddexp(0.0, m))


def _exponential_rise(m: Array, drop: Array) -> Array:
    # Again the first form cannot cancel, and the second overflows only with the rise.
    near = np.exp(-m) * np.expm1(np.minimum(drop, 1.0))
    return np.where(drop <= 1.0, near, np.exp(drop - m) - np.exp(-m))


def _log_expm1(log_x: Array) -> Array:
    """log(e^x - 1) for the x of this logarithm: log x for a small x, x for a large one."""
    x = np.exp(np.minimum(log_x, 700.0))
    return np.where(log_x < TINY, log_x, x + np.log(-np.expm1(-np.maximum(x, np.exp(TINY)))))


LOSSES: Mapping[LossName, MarginLoss] = MappingProxyType(
    {
        "logistic": MarginLoss(
            value=_logistic_value,
            log_value=lambda m: _log_softplus(-m),
            log_slope=lambda m: -np.logaddexp(0.0, m),
            curvature=expit,
            rise=_logistic_rise,
            log_rise=_logistic_log_rise,
        ),
        "exponential": MarginLoss(
            value=lambda m: np.exp(-m),
            log_value=lambda m: -m,
            log_slope=lambda m: -m,
            curvature=np.ones_like,
            rise=_exponential_rise,
            log_rise=lambda m, log_drop: _log_expm1(log_drop) - m,
        ),
        "correlation": MarginLoss(
            value=lambda m: -m,
            log_value=_correlation_log_value,
            log_slope=np.zeros_like,
            curvature=np.zeros_like,
            rise=lambda m, drop: drop,
            log_rise=lambda m, log_drop: log_drop,
            vanishes=False,
        ),
    }
)
