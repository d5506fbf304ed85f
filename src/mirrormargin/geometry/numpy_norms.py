r"""Norms and powers of NumPy arrays in float64, for the solvers of the lab.

    |x|_r = m (sum_i (|x_i| / m)^r)^(1/r),    m = max_i |x_i|

The largest entry is taken out first: at r = 21, the dual exponent of p = 1.05, powers leave the
range of floating point long before the norm does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lp_norm", "row_norms", "signed_power"]

Array = NDArray[Any]  # float64, or float32 in conjugate gradients


def lp_norm(x: Array, exponent: float) -> float:
    """The norm of all entries; nan or inf if an entry is.

    Example:
        >>> lp_norm(np.array([3e-200, 4e-200]), 2.0)
        5e-200
    """
    size = np.abs(x)
    largest = float(size.max())
    if not 0 < largest < np.inf:
        return largest
    return largest * float(((size / largest) ** exponent).sum()) ** (1 / exponent)


def row_norms(x: Array, exponent: float) -> Array:
    """The norms along the last axis."""
    size = np.abs(x)
    largest = size.max(axis=-1)
    safe = np.where(largest > 0, largest, 1.0)
    return largest * ((size / safe[..., None]) ** exponent).sum(axis=-1) ** (1 / exponent)


def signed_power(x: Array, exponent: float) -> Array:
    """``sign(x) |x|^exponent``, entry by entry."""
    return np.copysign(np.abs(x) ** exponent, x)
