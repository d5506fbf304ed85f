r"""Anderson mixing: a fixed-point iteration ``x <- g(x)`` that remembers its last steps.

If g is nearly linear, the differences of its last steps tell where ``g(x) - x`` would vanish:

    gamma = argmin | f - dF gamma |_2,    next x = g - dG gamma,    f = g - x,

with dF and dG the columns of differences of the last f and g. In a space of few dimensions as many
steps solve a linear equation, where the plain iteration contracts by a constant factor each time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["AndersonMixing"]

Array = NDArray[np.float64]

CUTOFF = 1e-10  # of singular values: steps that repeat each other teach nothing


class AndersonMixing:
    """The memory of an iteration.

    Args:
        depth: How many differences it holds.
    """

    def __init__(self, depth: int = 6) -> None:
        self._depth = depth
        self._steps: list[tuple[Array, Array]] = []

    def forget(self) -> None:
        self._steps.clear()

    def mix(self, x: Array, g: Array) -> Array:
        """The next x, given the last one and what the iteration makes of it."""
        self._steps = [*self._steps[-self._depth :], (g - x, g)]
        if len(self._steps) == 1:
            return g
        dF, dG = (np.diff(np.array(each).T, axis=1) for each in zip(*self._steps, strict=True))
        gamma = np.linalg.lstsq(dF, g - x, rcond=CUTOFF)[0]
        return g - dG @ gamma
