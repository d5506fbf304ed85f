"""Adam's direction in compiled blocks, and gradients of weights that are held still.

    m <- b1 m + (1 - b1) g,    v <- b2 v + (1 - b2) g^2,    x = m / (c sqrt(v) + eps)

with the largest v so far under amsgrad. Functions take addresses of blocks of float32, and of a
block of the mask of a sparsity schedule, or 0 where there is none: entries where it is 0 have no
gradients.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from mirrormargin.geometry.float32_memory import (
    bits_float,
    booleans,
    compiled,
    float_bits,
    floats,
    fma,
    inlined,
    rename,
)
from mirrormargin.optim.plain import square_limit

__all__ = ["SOURCES", "adam_direction", "amsgrad_direction", "hold_block"]

SOURCES = (__file__,)

_LIMIT = np.float32(square_limit(torch.float32))
_INFINITY = np.float32(np.inf)

f32, i32 = np.float32, np.int32


@compiled
def hold_block(g_address, held_address, mask_address, num):
    g, held, mask = floats(g_address, num), floats(held_address, num), booleans(mask_address, num)
    for i in range(num):
        held[i] = _hold(g[i], mask[i])


@inlined
def _hold(g, mask):
    """g where the mask is 1, and 0 where it is 0, also of an infinite g."""
    return bits_float(i32(float_bits(g) & i32(-i32(mask))))


def _make_direction(is_held):
    """Adam's direction; of entries that are held still, where the mask is 0, without gradients."""

    @compiled
    @rename(is_held)
    def direction(
        x_address, g_address, m_address, v_address, mask_address, num, sign, beta1, rest1, beta2,
        rest2, correction, eps,
    ):  # fmt: skip
        x, g = floats(x_address, num), floats(g_address, num)
        m, v = floats(m_address, num), floats(v_address, num)
        mask = booleans(mask_address, num)
        from_mean = rest1 < f32(0.5)
        for i in range(num):
            gradient = sign * (_hold(g[i], mask[i]) if is_held else g[i])
            size = abs(gradient)
            if (size > _LIMIT) & (size < _INFINITY):
                gradient = math.copysign(_LIMIT, gradient)
            # From the nearer end, as torch's lerp: a small g after a large m keeps its digits.
            change = gradient - m[i]
            mean = fma(rest1, change, m[i]) if from_mean else fma(-beta1, change, gradient)
            square = fma(rest2 * gradient, gradient, beta2 * v[i])
            m[i] = mean
            v[i] = square
            x[i] = mean / fma(math.sqrt(square), correction, eps)

    return direction


_free_direction, _held_direction = _make_direction(False), _make_direction(True)


@inlined
def adam_direction(
    x, g, m, v, mask, num, sign, beta1, rest1, beta2, rest2, correction, eps
):  # fmt: skip
    if mask != 0:
        _held_direction(
            x, g, m, v, mask, num, sign, beta1, rest1, beta2, rest2, correction, eps
        )  # fmt: skip
    else:
        _free_direction(x, g, m, v, x, num, sign, beta1, rest1, beta2, rest2, correction, eps)


@compiled
def amsgrad_direction(
    x_address, g_address, m_address, v_address, v_max_address, mask, num, sign, beta1, rest1,
    beta2, rest2, correction, eps,
):  # fmt: skip
    x, v_max = floats(x_address, num), floats(v_max_address, num)
    adam_direction(
        x_address, g_address, m_address, v_address, mask, num, sign, beta1, rest1, beta2, rest2,
        correction, eps,
    )  # fmt: skip
    m, v = floats(m_address, num), floats(v_address, num)
    for i in range(num):
        largest = v_max[i] if v_max[i] > v[i] else v[i]
        v_max[i] = largest
        x[i] = m[i] / fma(math.sqrt(largest), correction, eps)
