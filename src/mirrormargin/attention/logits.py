r"""Loss and derivatives as functions of the logits, in the range of floating point at every gap.

With logits ``a_i = X_i W z_i``, s_i their softmax and m_i the margin of sequence i,

    dL / da_it = (1/n) loss'(m_i) s_it (gamma_it - m_i).

Training drives s_i to one token, its leader. Then ``gamma_it - m_i`` is a difference of nearly
equal numbers, and s_it underflows. So scores are taken relative to the leader's, in which

    gamma_it - m_i = drop_i - below_it,    below_it = gamma_i,leader - gamma_it,
                                           drop_i   = sum_t s_it below_it

has no cancellation, and the largest of the weights ``|loss'(m_i)| s_it`` with ``below_it != 0`` is
taken out of all of them as a number ``exp(log_scale)``: a gradient is a mantissa and its log-scale.

Arrays may have further axes in front: logits (..., n, T) with scores that broadcast to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention.losses import MarginLoss

__all__ = ["LogitGradient", "attend", "find_log_loss_gap", "find_logit_gradient", "log_sum"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogitGradient:
    """The gradient of L by the logits, ``mantissa * exp(log_scale)``, and what it was made of.

    Attributes:
        mantissa: Shape (..., n, T), of about the size of the scores; each row sums to zero.
        log_scale: Shape (...); 0 where the gradient is exactly zero.
        attention: s, shape (..., n, T).
        centred: ``s_it (gamma_it - m_i)``, shape (..., n, T); it may underflow.
        bend: ``-loss''(m_i) / loss'(m_i)``, shape (..., n).
    """

    mantissa: Array
    log_scale: Array
    attention: Array
    centred: Array
    bend: Array

    def curvature(self) -> Array:
        """Mantissa of the second derivatives by the logits, (..., n, T, T), same log-scale.

        Each sequence has its own block, for ``dL / da_i`` depends on no other logits:

            d^2 L / da_it da_ir = delta_tr g_it - g_it s_ir - s_it g_ir - bend_i g_it centred_ir.
        """
        g, s = self.mantissa, self.attention
        mixed = g[..., :, None] * s[..., None, :]
        bent = g[..., :, None] * (self.bend[..., None] * self.centred)[..., None, :]
        return g[..., :, None] * np.eye(g.shape[-1]) - mixed - mixed.swapaxes(-1, -2) - bent


def attend(logits: Array) -> tuple[Array, Array, NDArray[np.intp]]:
    """Attention s, ``log s``, and the leaders: the first of the most attended tokens."""
    leader = logits.argmax(axis=-1)
    gaps = np.take_along_axis(logits, leader[..., None], axis=-1) - logits
    weights = np.exp(-gaps)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, -gaps - np.log(total), leader


def find_logit_gradient(logits: Array, scores: Array, loss: MarginLoss) -> LogitGradient:
    """The gradient by the logits; pinned by ``test_direction_is_right_at_every_logit_gap``."""
    s, log_s, leader = attend(logits)
    best = np.take_along_axis(np.broadcast_to(scores, s.shape), leader[..., None], axis=-1)
    below = best - scores
    drop = (s * below).sum(axis=-1)
    margins = best[..., 0] - drop
    log_weights = np.where(below != 0, loss.log_slope(margins)[..., None] + log_s, -np.inf)
    scale = log_weights.max(axis=(-1, -2))
    scale = np.where(np.isfinite(scale), scale, 0.0)
    weights = np.exp(log_weights - scale[..., None, None])
    weighted = weights * below
    mantissa = weighted - s * weighted.sum(axis=-1, keepdims=True)
    return LogitGradient(
        mantissa=mantissa / logits.shape[-2],
        log_scale=scale,
        attention=s,
        centred=s * (drop[..., None] - below),
        bend=loss.curvature(margins),
    )


def find_log_loss_gap(logits: Array, scores: Array, loss: MarginLoss) -> Array:
    """``log(L - floor)``, shape (...), floor the loss of the best scores; -inf for zero."""
    _, log_s, _ = attend(logits)
    best = scores.max(axis=-1)
    with np.errstate(divide="ignore"):
        log_drop = log_sum(log_s + np.log(best[..., None] - scores))
    return log_sum(loss.log_rise(best, log_drop)) - np.log(logits.shape[-2])


def log_sum(logs: Array) -> Array:
    """``log(sum(exp(logs)))`` over the last axis; -inf for nothing but -inf."""
    top = logs.max(axis=-1)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(logs - top[..., None]).sum(axis=-1))
