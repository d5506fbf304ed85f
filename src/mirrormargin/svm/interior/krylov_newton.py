r"""The Newton system of the interior point, solved without forming anything of size m x D.

Eliminating dw from ``h dw - k A' dl = f, A dw + e dl = g`` leaves, with ``C = k / h``,

    (A C A' + E) dl = g - A (f / h),

which preconditioned conjugate gradients solve with one product by A and one by A' each. These
products run in float32, which halves the memory they stream, around a float64 residual; where that
gains nothing, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import Constraints
from mirrormargin.svm.interior.preconditioner import Preconditioner

__all__ = ["KrylovNewton"]

Array = NDArray[np.float64]
Inner = NDArray[Any]  # float32 or float64

INNER = 1e-2  # what one round gains
MAX_ROUNDS = 8
MAX_PRODUCTS = 5_000  # in one round


class KrylovNewton:
    """Conjugate gradients for one system.

    Args:
        constraints: The rows A.
        h, k, e: Coefficients of the system.
        tol: Residual to reach, relative to the right-hand side, in the preconditioner's norm.
        double: Whether products are in float64.
        impatient: Whether to give up where a factorization would have been faster.
    """

    def __init__(
        self,
        constraints: Constraints,
        h: Array,
        k: Array,
        e: Array,
        tol: float,
        *,
        double: bool = False,
        impatient: bool = False,
    ) -> None:
        self.constraints, self.tol = constraints, tol
        self.h, self.c, self.e = h, k / h, e
        self.dtype = np.float64 if double else np.float32
        self._rows = constraints if double else constraints.single
        self._c, self._e = self.c.astype(self.dtype), e.astype(self.dtype)
        # k = 1 is the form for p > 2, where c = 1 / h has no bound.
        unbounded = bool((k == 1).all())
        self.precondition = Preconditioner(self._rows, self._c, self._e, unbounded)
        self.budget = constraints.products_per_factorization if impatient else MAX_PRODUCTS

    def solve(self, f: Array, g: Array) -> tuple[Array, Array, bool]:
        """(dw, dl), and whether the residual was reached."""
        constraints = self.constraints
        dw = start = f / self.h
        rest = g - constraints.apply(start) if f.any() else g
        dl = np.zeros_like(g)
        size = norm = self._norm(rest)
        if size == 0:
            return dw, dl, True
        for _ in range(MAX_ROUNDS):
            largest = float(np.abs(rest).max())
            inner = max(INNER, 0.5 * self.tol * size / norm)
            dl = dl + largest * self._descend((rest / largest).astype(self.dtype), inner)
            dw = start + self.c * constraints.adjoint(dl)
            rest = g - constraints.apply(dw) - self.e * dl
            norm, before = self._norm(rest), norm
            if norm <= self.tol * size:
                return dw, dl, True
            if not norm < 0.5 * before:
                break
        return dw, dl, False

    def _norm(self, rest: Array) -> float:
        """In the metric of the preconditioner, where a row counts by how active it is."""
        largest = float(np.abs(rest).max())
        if largest == 0:
            return 0.0
        r = (rest / largest).astype(self.dtype)
        return largest * max(_dot(r, self.precondition(r)), 0.0) ** 0.5

    def _descend(self, b: Inner, tol: float) -> Inner:
        """Preconditioned conjugate gradients from zero."""
        x = np.zeros_like(b)
        r = b.copy()
        z = self.precondition(r)
        direction = z.copy()
        rz = _dot(r, z)
        least = tol * tol * rz
        for _ in range(self.budget):
            u = self._rows.adjoint(direction)
            u *= self._c
            product = self._rows.apply(u)
            product += self._e * direction
            alpha = rz / _dot(direction, product)
            x += self.dtype(alpha) * direction
            r -= self.dtype(alpha) * product
            z = self.precondition(r)
            rz, before = _dot(r, z), rz
            if rz <= least:
                break
            direction *= self.dtype(rz / before)
            direction += z
        return x


def _dot(a: Inner, b: Inner) -> float:
    return float(np.dot(a, b))
