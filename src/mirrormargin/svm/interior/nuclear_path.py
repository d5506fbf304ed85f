r"""The interior point of the nuclear norm, in the direction of Nesterov and Todd.

    min tr(M) / 2,  M = [P W; W' Q] >= 0,  A W >= 1,      max sum lam,  S = [I -U; -U' I] / 2 >= 0,

with ``U = sum_k lam_k A_k``: the least trace of M is the nuclear norm of W, and S says that the
spectral norm of U is at most one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mirrormargin.svm.interior.constraints import DENSE_ENTRIES, TokenConstraints

__all__ = ["NuclearBounds", "NuclearRows", "follow_nuclear_path", "nuclear_norm", "spectral_norm"]

Array = NDArray[np.float64]

TO_THE_BOUNDARY = 0.95  # share of the longest step
JITTER = 1e-14  # times the order, on the diagonal of ones of the Newton matrix
REFINEMENTS = 3
PATIENCE = 10  # iterations without progress


def follow_nuclear_path(
    rows: NuclearRows, W: Array, lam: Array, tol: float, max_iter: int
) -> tuple[NuclearBounds, int, bool]:
    """Follow the central path ``M S = mu I, lam s = mu`` from a separating W to a small gap.

    Returns:
        The best bounds, the number of Newton steps, and whether they needed QR.
    """
    bounds = NuclearBounds(rows, W, lam)
    M, lam, s = _start(rows, W, lam)
    r = len(W)
    record, since, exact = np.inf, 0, False
    for iteration in range(max_iter + 1):
        bounds.see(M[:r, r:], lam)
        record, since = (bounds.gap, 0) if bounds.gap < 0.9 * record else (record, since + 1)
        if bounds.gap <= tol or iteration == max_iter or since > PATIENCE:
            return bounds, iteration, exact
        try:
            newton = _Newton(rows, M, lam, s, 0.01 * max(tol, 0.01 * bounds.gap), exact)
            step = newton.direction(0.0, None)
            # A full step towards mu = 0 leads to better bounds than the iterate's.
            bounds.see((M + newton.unscale(step.M))[:r, r:], np.maximum(lam + step.lam, 0.0))
            after = newton.mu_after(step, *newton.longest(step, 1.0))
            target = newton.mu * max(min(1.0, after / newton.mu) ** 3, 1e-8)
            step = newton.direction(target, step)
            primal, dual = newton.longest(step, TO_THE_BOUNDARY)
        except np.linalg.LinAlgError:
            # H, or else M or S, is singular in floating point; only against the first is QR a help.
            if exact or rows.entries > DENSE_ENTRIES:
                return bounds, iteration, exact
            exact = True
            continue
        M, s = M + primal * newton.unscale(step.M), s + primal * step.s
        lam, exact = lam + dual * step.lam, newton.exact
    raise AssertionError("unreachable")


class NuclearRows:
    """The rows ``Delta_k z_i'`` in orthonormal bases of the spans of Delta and of z.

    A part of W outside of these spans would add to its norm and to no row.
    """

    def __init__(self, constraints: TokenConstraints) -> None:
        n, per_sequence, d = constraints.delta.shape
        delta = constraints.delta.reshape(-1, d)
        self.left, self.right = _span(delta), _span(constraints.queries)
        # Queries of size one: the size of a row is all in its Delta.
        size = np.abs(constraints.queries).max(axis=1)
        self.delta = (delta * np.repeat(size, per_sequence)[:, None]) @ self.left
        self.z = (constraints.queries / size[:, None]) @ self.right
        self.shape = n, per_sequence
        self.entries = len(delta) * (self.left.shape[1] + self.right.shape[1]) ** 2 // 2

    def apply(self, W: Array) -> Array:
        """``<W, A_k>`` for each k."""
        return (self.delta * np.repeat(self.z @ W.T, self.shape[1], axis=0)).sum(axis=1)

    def adjoint(self, lam: Array) -> Array:
        """``U = sum_k lam_k A_k``."""
        mixed = (lam[:, None] * self.delta).reshape(*self.shape, -1).sum(axis=1)
        return mixed.T @ self.z

    def gram(self, V: Array) -> Array:
        r"""``H_kl = tr(F_k V F_l V)`` with ``F_k = [0 A_k; A_k' 0] / 2``, in m^2 d operations:

        2 H_kl = (Delta_k' V_11 Delta_l) (z_k' V_22 z_l) + (z_k' V_21 Delta_l) (z_l' V_21 Delta_k).
        """
        (n, per_sequence), r = self.shape, self.delta.shape[1]
        H = (0.5 * self.delta @ V[:r, :r] @ self.delta.T).reshape(n, per_sequence, n, per_sequence)
        H *= (self.z @ V[r:, r:] @ self.z.T)[:, None, :, None]
        B = (self.z @ V[r:, :r] @ self.delta.T).reshape(n, n, per_sequence)
        H += 0.5 * B[:, None, :, :] * B.transpose(1, 2, 0)[:, :, :, None]
        return H.reshape(n * per_sequence, n * per_sequence)


def _span(vectors: Array) -> Array:
    """An orthonormal basis, in columns; every vector counts alike, also a short one."""
    unit = vectors / np.abs(vectors).max(axis=1)[:, None]
    _, size, basis = scipy.linalg.svd(unit, full_matrices=False)
    return basis[size > np.finfo(np.float64).eps * max(unit.shape) * size[0]].T


class NuclearBounds:
    """The best W (with rows of at least one) and the best multipliers so far."""

    def __init__(self, rows: NuclearRows, W: Array, lam: Array) -> None:
        self.rows = rows
        self.upper, self.lower = np.inf, 0.0
        self.W, self.lam = W, lam

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1 if self.lower > 0 else np.inf

    def see(self, W: Array, lam: Array) -> None:
        least = float(self.rows.apply(W).min())
        if least > 0 and (upper := nuclear_norm(W) / least) < self.upper:
            self.upper, self.W = upper, W / least
        total = float(lam.sum())
        if total > 0 and (lower := total / spectral_norm(self.rows.adjoint(lam))) > self.lower:
            self.lower, self.lam = lower, lam


def _start(rows: NuclearRows, W: Array, lam: Array) -> tuple[Array, Array, Array]:
    """Strictly feasible M, lam and s from any separating W and any multipliers."""
    W = 1.5 * W / float(rows.apply(W).min())
    left, size, right = np.linalg.svd(W, full_matrices=False)
    stacked = np.concatenate([left, right.T])
    M = (stacked * size) @ stacked.T
    M += 0.5 * float(size.sum()) / len(M) * np.eye(len(M))
    lam = np.maximum(lam, 1e-3 * lam.max())
    lam = lam * (0.7 / spectral_norm(rows.adjoint(lam)))
    return M, lam, rows.apply(W) - 1


@dataclass(frozen=True)
class _Step:
    """A direction; those of M and S in the scaled coordinates of :class:`_Newton`."""

    M: Array
    S: Array
    lam: Array
    s: Array


class _Newton:
    """The Newton system at a point, in coordinates in which M and S are one diagonal matrix D.

    With ``G^-1 M G^-T = G' S G = D``, and ``A~`` for the rows in these coordinates, it reads

        dM - A~' dlam = R,        A~ dM + diag(s / lam) dlam = g.

    Args:
        rows, M, lam, s: The point.
        accuracy: Largest residual of the second equation, whose entries are about one.
        exact: Whether to begin with QR.
    """

    def __init__(
        self, rows: NuclearRows, M: Array, lam: Array, s: Array, accuracy: float, exact: bool
    ) -> None:
        self.rows, self.M, self.lam, self.s = rows, M, lam, s
        self.accuracy, self.exact = accuracy, exact
        S = 0.5 * np.eye(len(M)) - _dilate(rows.adjoint(lam))
        L = np.linalg.cholesky(M)
        _, self.D, transposed = np.linalg.svd(np.linalg.cholesky(S).T @ L)
        self.G = (L @ transposed.T) / np.sqrt(self.D)
        self.mu = float((self.D**2).sum() + lam @ s) / (len(M) + len(lam))
        self._factor = (_QR if exact else _Cholesky)(rows, self.G, s / lam)

    def direction(self, mu: float, correction: _Step | None) -> _Step:
        """Towards the products mu; ``correction`` gives Mehrotra's second-order term."""
        target, product = np.diag(mu - self.D**2), mu
        if correction is not None:
            both = correction.M @ correction.S
            target = target - 0.5 * (both + both.T)
            product = mu - correction.lam * correction.s
        R = 2 * target / (self.D[:, None] + self.D)
        pull = product / self.lam
        dM, dlam, missed = self._solve(R, pull)
        if missed > self.accuracy and not self.exact and self.rows.entries <= DENSE_ENTRIES:
            self._factor, self.exact = _QR(self.rows, self.G, self.s / self.lam), True
            dM, dlam, _ = self._solve(R, pull)
        ds = pull - self.s - self.s / self.lam * dlam
        return _Step(dM, -_scale(self.rows, self.G, dlam), dlam, ds)

    def _solve(self, R: Array, pull: Array) -> tuple[Array, Array, float]:
        """(dM, dlam) and the residual, which is measured on dM, not on the multiple of A~'."""
        r = self.rows.delta.shape[1]
        dM, dlam, missed = R, np.zeros_like(self.lam), np.inf
        best = dM, dlam
        for _ in range(2 + REFINEMENTS):
            W = (self.M + self.unscale(dM))[:r, r:]
            g = 1 + pull - self.s / self.lam * dlam - self.rows.apply(W)
            size = float(np.abs(g).max())
            if not size < 0.5 * missed:
                break
            missed, best = size, (dM, dlam)
            X, x = self._factor.solve(g)
            dM, dlam = dM + X, dlam + x
        return best[0], best[1], missed

    def unscale(self, X: Array) -> Array:
        """From scaled coordinates back to those of M."""
        X = self.G @ X @ self.G.T
        return 0.5 * (X + X.T)

    def longest(self, step: _Step, share: float) -> tuple[float, float]:
        """This share of how far (M, s) and (S, lam) may go and stay positive, at most 1."""
        root = np.sqrt(self.D)
        scaled = root[:, None] * root
        primal = max(-np.linalg.eigvalsh(step.M / scaled)[0], (-step.s / self.s).max())
        dual = max(-np.linalg.eigvalsh(step.S / scaled)[0], (-step.lam / self.lam).max())
        return share / max(float(primal), share), share / max(float(dual), share)

    def mu_after(self, step: _Step, primal: float, dual: float) -> float:
        D = np.diag(self.D)
        total = ((D + primal * step.M) * (D + dual * step.S)).sum()
        total += (self.s + primal * step.s) @ (self.lam + dual * step.lam)
        return float(total) / (len(D) + len(self.lam))


class _Cholesky:
    """``H + diag(e)``, H as in :meth:`NuclearRows.gram`, by its Cholesky factor: fast."""

    def __init__(self, rows: NuclearRows, G: Array, e: Array) -> None:
        self.rows, self.G = rows, G
        H = rows.gram(G @ G.T)
        # Ones on the diagonal: rows of many sizes, and equal rows, then do no harm.
        self.unit = 1 / np.sqrt(H.diagonal() + e)
        H *= self.unit[:, None]
        H *= self.unit
        H[np.diag_indices(len(H))] = 1 + JITTER * len(H)
        self.factor = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, g: Array) -> tuple[Array, Array]:
        """(A~' x, x) with ``(H + diag(e)) x = g``."""
        x = self.unit * scipy.linalg.cho_solve(self.factor, self.unit * g, check_finite=False)
        return _scale(self.rows, self.G, x), x


class _QR:
    """The same by a QR factor of ``[A~'; diag(e)^(1/2)]``, which squares no condition number.

    It is ten times slower or more, and what a margin below about 1e-4 of the rows asks for; pinned
    by ``test_a_small_margin_is_certified``.
    """

    def __init__(self, rows: NuclearRows, G: Array, e: Array) -> None:
        r = rows.delta.shape[1]
        self.shape = G.shape
        self.upper = i, j = np.triu_indices(len(G))
        # The rows are symmetric: half of their entries, weighted to keep the inner product.
        self.weight = np.where(i == j, 1.0, np.sqrt(2.0))
        left, right = G[:r].T @ rows.delta.T, np.repeat(G[r:].T @ rows.z.T, rows.shape[1], axis=1)
        half = (left[i] * right[j] + left[j] * right[i]) * (0.5 * self.weight[:, None])
        self.Q, self.R = np.linalg.qr(np.concatenate([half, np.diag(np.sqrt(e))]))

    def solve(self, g: Array) -> tuple[Array, Array]:
        """(dX, x) as :meth:`_Cholesky.solve`; ``dX = A~' x`` comes from Q, with more digits."""
        v = scipy.linalg.solve_triangular(self.R, g, trans=1, check_finite=False)
        X = np.zeros(self.shape)
        X[self.upper] = self.Q[: len(self.weight)] @ v / self.weight
        return X + np.triu(X, 1).T, scipy.linalg.solve_triangular(self.R, v, check_finite=False)


def _scale(rows: NuclearRows, G: Array, lam: Array) -> Array:
    """``A~' lam = G' [0 U; U' 0] G / 2``."""
    return G.T @ _dilate(rows.adjoint(lam)) @ G


def _dilate(U: Array) -> Array:
    """``[0 U; U' 0] / 2``."""
    r = len(U)
    X = np.zeros((sum(U.shape), sum(U.shape)))
    X[:r, r:] = 0.5 * U
    X[r:, :r] = 0.5 * U.T
    return X


def nuclear_norm(W: Array) -> float:
    return float(np.linalg.svd(W, compute_uv=False).sum())


def spectral_norm(U: Array) -> float:
    return float(np.linalg.svd(U, compute_uv=False)[0])
