r"""Conjugate gradients for the Newton system, without forming anything of size m x D.

Eliminating dw from ``h dw - k A' dl = f, A dw + e dl = g`` leaves, with ``C = k / h``,

    (A C A' + E) dl = g - A (f / h),

which preconditioned conjugate gradients solve with one product by A and one by A' each. These
products run in float32, which halves the memory they stream, around a float64 residual; where that
gains nothing, in float64.

The preconditioner M is ``K = A C A' + E`` with only the blocks of each sequence, which are inverted
exactly. Above p = 2 a few coordinates of w are close to zero and have a huge c; these columns L are
taken out of M, at the limit c0, and put back exactly by Woodbury's formula,

    P = M + A_L G A_L',    G = C_L - c0,
    P^-1 = M^-1 - M^-1 A_L (G^-1 + A_L' M^-1 A_L)^-1 A_L' M^-1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import Constraints

__all__ = ["KrylovNewton", "Preconditioner"]

Array = NDArray[np.float64]
Inner = NDArray[Any]  # float32 or float64

INNER = 1e-2  # what one round gains
MAX_ROUNDS = 8
MAX_PRODUCTS = 5_000  # in one round
MAX_COLUMNS = 512  # what Woodbury's formula may take on
OUTLYING = 4.0  # a c above this multiple of the median is worth a column
CHUNK = 4_000_000  # entries of the columns at a time


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


class Preconditioner:
    """``P^-1`` as a function of a vector.

    Args:
        constraints: The rows A, in the precision of the vectors.
        c, e: Diagonals of C and E.
        unbounded: Whether c may have entries far above all others.
    """

    def __init__(self, constraints: Constraints, c: Inner, e: Inner, unbounded: bool) -> None:
        self.constraints = constraints
        self.outlying = _outlying(c) if unbounded else np.empty(0, np.intp)
        limit = np.delete(c, self.outlying).max()
        # Coordinates that no row sees have equal, and the largest, c: they need no column.
        self.outlying = self.outlying[c[self.outlying] > 1.001 * limit]
        self.inverse = _invert_blocks(constraints.blocks(np.minimum(c, limit)), e)
        if self.outlying.size:
            extra = c[self.outlying].astype(np.float64) - float(limit)
            self._woodbury = scipy.linalg.cho_factor(self._gram() + np.diag(1 / extra))

    def __call__(self, x: Inner) -> Inner:
        y = self._apply_blocks(x)
        if not self.outlying.size:
            return y
        inner = self.constraints.adjoint(y)[self.outlying].astype(np.float64)
        w = np.zeros(self.constraints.num_unknowns, x.dtype)
        w[self.outlying] = scipy.linalg.cho_solve(self._woodbury, inner, check_finite=False)
        return y - self._apply_blocks(self.constraints.apply(w))

    def _apply_blocks(self, x: Inner) -> Inner:
        number, size, _ = self.inverse.shape
        return (self.inverse @ x.reshape(number, size, 1)).reshape(-1)

    def _gram(self) -> NDArray[np.float64]:
        """``A_L' M^-1 A_L``, some blocks of rows at a time."""
        number, size, _ = self.inverse.shape
        count = self.outlying.size
        gram = np.zeros((count, count))
        step = max(1, CHUNK // (size * count))
        for start in range(0, number, step):
            some = slice(start, start + step)
            columns = self.constraints.columns(self.outlying, some)
            solved = self.inverse[some] @ columns
            gram += columns.reshape(-1, count).T @ solved.reshape(-1, count)
        return 0.5 * (gram + gram.T)


def _outlying(c: Inner) -> NDArray[np.intp]:
    """The largest entries, if they stand out."""
    limit = OUTLYING * float(np.median(c))
    outlying = np.flatnonzero(c > limit)
    if outlying.size > MAX_COLUMNS:
        outlying = np.sort(np.argpartition(c, -MAX_COLUMNS)[-MAX_COLUMNS:])
    return outlying


def _invert_blocks(blocks: Inner, e: Inner) -> Inner:
    number, size, _ = blocks.shape
    diagonal = np.einsum("ijj->ij", blocks)
    diagonal += e.reshape(number, size)
    scale = 1 / np.sqrt(diagonal)
    blocks *= scale[:, :, None]
    blocks *= scale[:, None, :]
    # Float32 rounds a singular block to an indefinite one: a little more diagonal forbids it.
    diagonal[...] = 1 + 1e-5
    inverse = np.linalg.inv(blocks)
    inverse *= scale[:, :, None]
    inverse *= scale[:, None, :]
    return inverse
