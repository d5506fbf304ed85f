r"""Watching a path that finds no separating w: is there one?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.central_path import follow_path
from mirrormargin.svm.interior.program import Bounds, Program, polish_cancellation

__all__ = ["SEPARABLE", "Separability"]

Array = NDArray[np.float64]

SEPARABLE = 0.3  # the gap at which a path that only asks for separability may end


class Separability:
    """Watches a path that finds no separating w, and looks for the proof that there is none.

    Whether the rows can be separated does not depend on p, and p = 2 is where that shows best.
    """

    def __init__(self, program: Program, lam: Array, max_iter: int) -> None:
        self.program, self.lam, self.max_iter = program, lam, max_iter
        self.farkas: Array | None = None
        self.iterations = 0
        self._next_try = 1e4
        self._asked = False

    def watch(self, bounds: Bounds, iteration: int, lam: Array) -> bool:
        if self.program.cap is not None or np.isfinite(bounds.upper):
            return False
        if bounds.program.p < 2:
            return self._ask_p2(bounds, iteration)
        if bounds.lower < self._next_try and iteration % 20 != 19:
            return False
        self._next_try = max(1e3 * self._next_try, bounds.lower)
        self.farkas = polish_cancellation(self.program, lam)
        return self.farkas is not None

    def _ask_p2(self, bounds: Bounds, iteration: int) -> bool:
        if self._asked or (bounds.lower < 1e4 and iteration < 15):
            return False
        self._asked = True
        left = max(self.max_iter - iteration, 1)
        path = follow_path(self.program.at(2.0), SEPARABLE, left, (None, self.lam), self.watch)
        self.iterations = path.iterations
        return path.stopped
