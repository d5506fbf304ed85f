r"""The rows of a max-margin problem as a linear operator.

A row asks that ``<w, a_k> >= b_k`` (or ``= b_k``). For the attention SVM

    w = vec(W),    a_k = vec(Delta_k z_i'),    Delta_k = x_{i,alpha} - x_{i,t},

so that m = n(T - 1) rows of D = d^2 entries are held as ``Delta`` (n, T - 1, d) and ``z`` (n, d):
applying them costs n d^2 + m d operations, and the m x D matrix is never formed unless it is small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm

__all__ = ["DENSE_ENTRIES", "Constraints", "MatrixConstraints", "TokenConstraints"]

Array = NDArray[Any]  # float64, or float32 in conjugate gradients

DENSE_ENTRIES = 20_000_000  # the largest matrix A that is formed, 160 MB
EFFICIENCY = 0.3  # speed of a product, which streams memory, against that of a factorization


class Constraints(ABC):
    """What the solvers ask of a set of rows; a new kind needs these methods and no more."""

    num_rows: int
    num_unknowns: int

    @abstractmethod
    def apply(self, w: Array) -> Array:
        """``A w``, shape (m,)."""

    @abstractmethod
    def adjoint(self, lam: Array) -> Array:
        """``A' lam``, shape (D,)."""

    @abstractmethod
    def gram(self, c: Array) -> Array:
        """``A diag(c) A'``, shape (m, m)."""

    @abstractmethod
    def row_norms(self, exponent: float) -> Array:
        """The norm of each row, shape (m,)."""

    @abstractmethod
    def divided(self, scale: float) -> Constraints:
        """The same rows, each divided by ``scale``."""

    @cached_property
    def matrix(self) -> Array:
        """A itself, shape (m, D): for small problems and for tests."""
        return self._to_matrix()

    @cached_property
    def single(self) -> Constraints:
        """The same rows in float32."""
        return self._to_single()

    @cached_property
    def row_sizes(self) -> Array:
        """Euclidean norms of the rows, 1 for a row of zeros."""
        norms = self.row_norms(2.0)
        return np.where(norms > 0, norms, 1.0)

    @abstractmethod
    def _to_matrix(self) -> Array: ...

    @abstractmethod
    def _to_single(self) -> Constraints: ...

    @abstractmethod
    def blocks(self, c: Array) -> Array:
        """Diagonal blocks of ``A diag(c) A'``, shape (number, size, size)."""

    @abstractmethod
    def columns(self, chosen: NDArray[np.intp], blocks: slice) -> Array:
        """Columns of A in the rows of some blocks, shape (blocks, size, chosen)."""

    @property
    @abstractmethod
    def products_per_factorization(self) -> int:
        """How many products ``A diag(c) A' x`` take about as long as forming and factoring it."""


class MatrixConstraints(Constraints):
    """Rows given as a matrix."""

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        self.num_rows, self.num_unknowns = matrix.shape

    def apply(self, w: Array) -> Array:
        return self._matrix @ w

    def adjoint(self, lam: Array) -> Array:
        return lam @ self._matrix

    def gram(self, c: Array) -> Array:
        # One symmetric product of a scaled copy: BLAS computes half of it.
        scaled = self._matrix * np.sqrt(c)
        return scaled @ scaled.T

    def row_norms(self, exponent: float) -> Array:
        return lp_norm(self._matrix, exponent, axis=-1)

    def divided(self, scale: float) -> MatrixConstraints:
        return MatrixConstraints(self._matrix / scale)

    def _to_matrix(self) -> Array:
        return self._matrix

    def _to_single(self) -> MatrixConstraints:
        return MatrixConstraints(self._matrix.astype(np.float32))

    def blocks(self, c: Array) -> Array:
        return (self._matrix**2 @ c)[:, None, None]

    def columns(self, chosen: NDArray[np.intp], blocks: slice) -> Array:
        return self._matrix[blocks][:, None, chosen]

    @property
    def products_per_factorization(self) -> int:
        m, D = self._matrix.shape
        return max(100, int(EFFICIENCY * min(m, D) * (1 + min(m, D) / (3 * max(m, D))) / 4))


class TokenConstraints(Constraints):
    """Rows ``Delta_k z_i'`` held by their factors.

    Args:
        delta: Shape (n, T - 1, d).
        queries: Shape (n, d).
    """

    def __init__(self, delta: Array, queries: Array) -> None:
        n, per_sequence, d = delta.shape
        self.delta = np.ascontiguousarray(delta)
        self.queries = np.ascontiguousarray(queries)
        self.num_rows = n * per_sequence
        self.num_unknowns = d * d

    def apply(self, w: Array) -> Array:
        d = self.delta.shape[2]
        keys = self.queries @ w.reshape(d, d).T
        return (self.delta @ keys[:, :, None]).reshape(-1)

    def adjoint(self, lam: Array) -> Array:
        n, per_sequence, _ = self.delta.shape
        mixed = lam.reshape(n, 1, per_sequence) @ self.delta
        return (mixed[:, 0, :].T @ self.queries).reshape(-1)

    def gram(self, c: Array) -> Array:
        r"""By the Khatri-Rao structure, n^2 d^2 + m^2 d operations instead of m^2 d^2:

        G_(i,s),(j,t) = sum_a Delta_isa Delta_jta K_ija,    K_ija = sum_b c_ab z_ib z_jb.
        """
        n, per_sequence, d = self.delta.shape
        c = c.reshape(d, d)
        G = np.empty((self.num_rows, self.num_rows))
        for i in range(n):
            end = (i + 1) * per_sequence
            K = (self.queries[: i + 1] * self.queries[i]) @ c.T
            weighted = (self.delta[: i + 1] * K[:, None, :]).reshape(end, d)
            block = self.delta[i] @ weighted.T
            G[end - per_sequence : end, :end] = block
            G[:end, end - per_sequence : end] = block.T
        return G

    def row_norms(self, exponent: float) -> Array:
        queries = lp_norm(self.queries, exponent, axis=-1)
        return (lp_norm(self.delta, exponent, axis=-1) * queries[:, None]).reshape(-1)

    def divided(self, scale: float) -> TokenConstraints:
        return TokenConstraints(self.delta / scale, self.queries)

    def _to_single(self) -> TokenConstraints:
        return TokenConstraints(self.delta.astype(np.float32), self.queries.astype(np.float32))

    def blocks(self, c: Array) -> Array:
        d = self.delta.shape[2]
        weights = self.queries**2 @ c.reshape(d, d).T
        return (self.delta * weights[:, None, :]) @ self.delta.transpose(0, 2, 1)

    def columns(self, chosen: NDArray[np.intp], blocks: slice) -> Array:
        row, column = np.divmod(chosen, self.delta.shape[2])
        return self.delta[blocks][:, :, row] * self.queries[blocks][:, None, column]

    @property
    def products_per_factorization(self) -> int:
        n, _, d = self.delta.shape
        m = self.num_rows
        factorization = n**2 * d**2 + 2 * m**2 * d + m**3 / 3
        return max(100, int(EFFICIENCY * factorization / (4 * (n * d**2 + m * d))))

    def _to_matrix(self) -> Array:
        outer = self.delta[:, :, :, None] * self.queries[:, None, None, :]
        return outer.reshape(self.num_rows, self.num_unknowns)
