r"""The learning rate's course: a linear rise, then constant or down a cosine.

factor(k) = (k + 1) / w                          for k < w, w = warmup * steps
            1                                    constant, afterwards
            (1 + cos(pi (k - w) / (steps - w))) / 2    cosine, afterwards
"""

from __future__ import annotations

import math

__all__ = ["find_factor"]


def find_factor(schedule: str, warmup: float, step: int, num_steps: int) -> float:
    """What the learning rate is multiplied with in step ``step``, from 0, of ``num_steps``."""
    rising = warmup * num_steps
    if step < rising:
        return min((step + 1) / rising, 1.0)
    if schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * (step - rising) / (num_steps - rising))) / 2
