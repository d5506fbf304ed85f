r"""An approximate inverse of ``K = A C A' + E`` for conjugate gradients.

M is K with only the blocks of each sequence, which are inverted exactly. Above p = 2 a few
coordinates of w are close to zero and have a huge c; these columns L are taken out of M, at the
limit c0, and put back exactly by the formula of Woodbury,

    P = M + A_L G A_L',    G = C_L - c0,
    P^-1 = M^-1 - M^-1 A_L (G^-1 + A_L' M^-1 A_L)^-1 A_L' M^-1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import Constraints

__all__ = ["Preconditioner"]

Inner = NDArray[Any]  # float32 or float64

MAX_COLUMNS = 512  # what Woodbury's formula may take on
OUTLYING = 4.0  # a c above this multiple of the median is worth a column
CHUNK = 4_000_000  # entries of the columns at a time


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
