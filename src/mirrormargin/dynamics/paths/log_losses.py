r"""Logarithms of the losses of the margin, where the losses themselves have underflowed.

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

from mirrormargin.attention.losses import LOSSES, MarginLoss

__all__ = ["LOG_LOSSES", "LogLoss"]

Array = NDArray[np.float64]

TINY = -36.0  # log of what is nothing beside 1


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
