r"""The Newton system of the interior point, solved without forming anything of size m x D.

Eliminating dw from ``h dw - k A' dl = f, A dw + e dl = g`` leaves, with ``C = k / h``,

    (A C A' + E) dl = g - A (f / h),

which preconditioned conjugate gradients solve with one product by A and one by A' each. The
preconditioner is the block of each sequence, (T - 1) x (T - 1), inverted exactly. The products run
in float32 around a float64 residual, which halves the memory they stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.constraints import Constraints

__all__ = ["KrylovNewton"]

Array = NDArray[np.float64]
Single = NDArray[Any]  # float32

TOL = 1e-3  # the path needs no more; later steps correct what is left
INNER = 1e-2  # what one round in float32 gains
MAX_ROUNDS = 8
MAX_PRODUCTS = 5_000  # in one round


class KrylovNewton:
    """Conjugate gradients for one system.

    Args:
        constraints: The rows A.
        h, k, e: Coefficients of the system.
        impatient: Whether to give up where a factorization would have been faster.
    """

    def __init__(
        self, constraints: Constraints, h: Array, k: Array, e: Array, impatient: bool
    ) -> None:
        self.constraints = constraints
        self.single = constraints.single
        self.h, self.c, self.e = h, k / h, e
        self._c, self._e = self.c.astype(np.float32), e.astype(np.float32)
        self.precondition = self.single.block_solver(self._c, self._e)
        self.budget = constraints.products_per_factorization if impatient else MAX_PRODUCTS

    def solve(self, f: Array, g: Array, tol: float) -> tuple[Array, Array, bool]:
        """(dw, dl) with a residual of ``tol`` relative to g, and whether it was reached."""
        constraints = self.constraints
        dw = start = f / self.h
        rest = g - constraints.apply(start) if f.any() else g
        dl = np.zeros_like(g)
        size = norm = self._norm(rest)
        if size == 0:
            return dw, dl, True
        tol = max(tol, TOL)
        for _ in range(MAX_ROUNDS):
            largest = float(np.abs(rest).max())
            inner = max(INNER, 0.5 * tol * size / norm)
            dl = dl + largest * self._descend((rest / largest).astype(np.float32), inner)
            dw = start + self.c * constraints.adjoint(dl)
            rest = g - constraints.apply(dw) - self.e * dl
            norm, before = self._norm(rest), norm
            if norm <= tol * size:
                return dw, dl, True
            if not norm < 0.5 * before:
                break
        return dw, dl, False

    def _norm(self, rest: Array) -> float:
        """In the metric of the preconditioner, where a row counts by how active it is."""
        largest = float(np.abs(rest).max())
        if largest == 0:
            return 0.0
        r = (rest / largest).astype(np.float32)
        return largest * max(_dot(r, self.precondition(r)), 0.0) ** 0.5

    def _descend(self, b: Single, tol: float) -> Single:
        """Preconditioned conjugate gradients from zero."""
        x = np.zeros_like(b)
        r = b.copy()
        z = self.precondition(r)
        direction = z.copy()
        rz = _dot(r, z)
        least = tol * tol * rz
        for _ in range(self.budget):
            u = self.single.adjoint(direction)
            u *= self._c
            product = self.single.apply(u)
            product += self._e * direction
            alpha = rz / _dot(direction, product)
            x += np.float32(alpha) * direction
            r -= np.float32(alpha) * product
            z = self.precondition(r)
            rz, before = _dot(r, z), rz
            if rz <= least:
                break
            direction *= np.float32(rz / before)
            direction += z
        return x


def _dot(a: Single, b: Single) -> float:
    return float(np.dot(a, b))
