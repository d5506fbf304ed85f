"""Training losses by step, compared: who reaches another's loss first?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NEVER", "compare_steps", "find_first_steps", "smooth"]

Array = NDArray[np.float64]
NEVER = 2.0  # shares of the steps: one that never gets there took more steps than there were


def smooth(loss: Array) -> Array:
    """Each value of (S, R) with those before it, a tenth of the course: single rows are noisy."""
    width = max(1, loss.shape[-1] // 10)
    total = np.cumsum(np.pad(loss, ((0, 0), (1, 0))), axis=-1)
    start = np.maximum(np.arange(loss.shape[-1]) + 1 - width, 0)
    end = np.arange(loss.shape[-1]) + 1
    return (total[:, end] - total[:, start]) / (end - start)


def find_first_steps(steps: NDArray[np.int64], loss: Array, reference: Array) -> Array:
    """The first step at which each smoothed loss is at most the reference's last one.

    Args:
        steps: (R,).
        loss: (S, R).
        reference: (S, R), seed by seed.

    Returns:
        (S,), nan where it never is.
    """
    reached = smooth(loss) <= smooth(reference)[:, -1:]
    first = steps[reached.argmax(axis=1)].astype(np.float64)
    return np.where(reached.any(axis=1), first, np.nan)


def compare_steps(steps: NDArray[np.int64], loss: Array, reference: Array) -> Array:
    """Steps to the reference's last loss as a share of the reference's own, (S,); or NEVER."""
    first = find_first_steps(steps, loss, reference)
    return np.nan_to_num(first / find_first_steps(steps, reference, reference), nan=NEVER)
