"""Numbers from the whole float32 range, and how far a result is from the exact one."""

from __future__ import annotations

import numpy as np


def whole_range(r: float) -> np.ndarray:
    """Every 4,000th float32, all special values, and where |x|^r is neither 0 nor inf."""
    patterns = np.arange(0, 0x7F800001, 4001, dtype=np.uint32).view(np.float32)
    rng = np.random.default_rng(0)
    exponents = rng.uniform(-min(151 / r, 149), min(129 / r, 128), 200_000)
    special = [0.0, 1.0, np.inf, np.nan, 1e-45, 1.1754944e-38, 3.4028235e38]
    with np.errstate(over="ignore"):
        x = np.concatenate([patterns, np.exp2(exponents), special]).astype(np.float32)
    x *= np.where(rng.random(len(x)) < 0.5, -1, 1).astype(np.float32)
    # In order of size: kernels work on blocks, and one huge value sends its block the slow way.
    return x[np.argsort(np.abs(x))]


def ulp_error(got: np.ndarray, exact: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(nearest))
    assert np.array_equal(np.isinf(got), np.isinf(nearest))
    assert np.array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(nearest) & ~np.isnan(got))
    finite = np.isfinite(nearest)
    with np.errstate(over="ignore"):
        spacing = np.spacing(np.minimum(np.abs(nearest[finite]), 3e38)).astype(np.float64)
    return float(np.max(np.abs(got[finite].astype(np.float64) - exact[finite]) / spacing))
