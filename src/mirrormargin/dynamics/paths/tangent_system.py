r"""The linear systems of Newton's method on a sphere: a diagonal plus what a few rows add.

    (N + A' B A) d + mu j = r,    <j, d> = 0,      N = diag > 0, B symmetric, in blocks

In the coordinates ``N^(1/2) d``, and with the part along j taken out of r and of the rows, N is the
identity and the condition holds by itself. With E any matrix of ``E' E = A A'``,

    M = I + E B E'

is as small as the smaller side of A and has the signs that the matrix has on the tangent. If A has
fewer rows than columns, d = r - A' y with (I + B A A') y = B A r, else E = A' and d = M^-1 r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigvalsh

__all__ = ["TangentSystem", "keep_positive"]

Array = NDArray[np.float64]

JITTER = 1e-15  # of the largest entry of A A', which may be singular


class TangentSystem:
    """The system for rows A (m, D), the diagonal N (D,) and a normal j, None for a free d.

    B has shape (groups, rows, rows), with groups * rows = m.
    """

    def __init__(self, A: Array, N: Array, normal: Array | None) -> None:
        self._root = 1 / np.sqrt(N)
        self._rows = A * self._root
        self._normal = np.zeros_like(N)
        if normal is not None:
            scaled = self._root * normal
            self._normal = scaled / np.linalg.norm(scaled)
            self._rows -= np.outer(self._rows @ self._normal, self._normal)
        m, D = A.shape
        self._gram = self._rows @ self._rows.T if m < D else None
        self._E = self._rows.T if self._gram is None else _factor(self._gram)

    def solve(self, r: Array, B: Array) -> Array | None:
        """d, None where the matrix is not positive on the tangent."""
        try:
            M = cho_factor(self._small_matrix(B), check_finite=False)
        except LinAlgError:
            return None
        r = self._root * r
        r = r - self._normal * (self._normal @ r)
        if self._gram is None:
            return self._root * cho_solve(M, r, check_finite=False)
        # Through M instead, y would be a difference of nearly equal numbers where M is large.
        system = _add_identity(_apply(B, self._gram))
        y = np.linalg.solve(system, _apply(B, (self._rows @ r)[:, None]))[:, 0]
        return self._root * (r - y @ self._rows)

    def find_least_eigenvalue(self, B: Array) -> float:
        """The least of ``I + N^(-1/2) A' B A N^(-1/2)`` on the tangent, or 1 if that is less."""
        M = self._small_matrix(B)
        return min(1.0, float(eigvalsh(M, subset_by_index=(0, 0), check_finite=False)[0]))

    def _small_matrix(self, B: Array) -> Array:
        return _add_identity(self._E @ _apply(B, self._E.T))


def keep_positive(B: Array) -> Array:
    """Blocks without their negative eigenvalues."""
    values, vectors = np.linalg.eigh(B)
    return (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)


def _apply(B: Array, columns: Array) -> Array:
    """B times columns, (m, k)."""
    groups, rows = B.shape[:2]
    return (B @ columns.reshape(groups, rows, -1)).reshape(groups * rows, -1)


def _add_identity(matrix: Array) -> Array:
    matrix.flat[:: len(matrix) + 1] += 1.0
    return matrix


def _factor(gram: Array) -> Array:
    """E with ``E' E = gram``, up to rounding of its largest entry."""
    largest = float(gram.diagonal().max())
    jitter = JITTER
    while jitter < 1 and largest > 0:
        try:
            return np.linalg.cholesky(gram + jitter * largest * np.eye(len(gram))).T
        except np.linalg.LinAlgError:
            jitter *= 10
    return np.zeros_like(gram)
