"""Norms without overflow or underflow:  ||x||_r = m (sum_i (|x_i| / m)^r)^(1/r),  m = max |x|.

Straight float32 sums fail long before the norm does: at r = 11, the dual exponent of p = 1.1, a
gradient of 1e-5 has |g|^r = 1e-55. So entries are divided by the largest one and added in float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mirrormargin.errors import GeometryError
from mirrormargin.geometry.arrays import as_tensors, widen

__all__ = ["lp_norm", "scaled_power_sum"]


def lp_norm(array: Any, exponent: float) -> Any:
    """The l_r norm of all entries, for any ``exponent`` r >= 1 (``math.inf`` included).

    Example:
        >>> float(lp_norm([3e-200, 4e-200], 2.0)) / 1e-200
        5.0
    """
    if not exponent >= 1:
        raise GeometryError(f"a norm needs an exponent >= 1, got {exponent!r}")
    (x,), restore = as_tensors(array)
    largest, total = scaled_power_sum(x, exponent)
    value = largest if exponent == math.inf else largest * total ** (1 / exponent)
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    return restore(torch.as_tensor(value, dtype=dtype, device=x.device))


def scaled_power_sum(x: Tensor, exponent: float) -> tuple[float, float]:
    """``(m, s)``: m = max |x|, nan or inf if x has any, and s = sum (|x| / m)^exponent."""
    if x.numel() == 0:
        return 0.0, 0.0
    magnitude = widen(x.detach()).abs()
    largest = float(magnitude.max())
    if largest == 0 or not math.isfinite(largest):
        return largest, float(largest != 0)
    return largest, float((magnitude / largest).pow(exponent).sum())
