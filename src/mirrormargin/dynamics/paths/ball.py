r"""Minimising a function of linear images on an lp ball, to all digits that rounding leaves.

    min f(A w)   s.t.   |w|_p <= R,    rows of A in groups, f'' couples the rows of a group

f is given by its logarithm F and by derivatives with a scale taken out, for it may lie far below
the smallest float. Let ``x = w / R``, G the gradient of f by x, ``psi'(x) = sign(x) |x|^(p-1)`` and
``1/p + 1/q = 1``. A minimiser on the sphere follows from its own gradient, in two equal ways:

    psi'(x) = u,    u = -G / |G|_q,        and        x = y,    y = sign(u) |u|^(q-1).

Newton's method fails on the first where an entry is near zero and p < 2, for psi'' is infinite
there, and on the second where p > 2. So psi'' is replaced by the slopes of psi' between x and y,
which are positive, and tend to psi'' as the two meet. With S the diagonal of these slopes,

    (|G|_q S + A' f'' A) d + mu psi'(x) = |G|_q (u - psi'(x)),    <psi'(x), d> = 0

gives a step d along which F falls if the matrix is positive on the tangent; where it is not, f''
loses its negative part. Without f'' the step ends at y, and near a minimiser it is Newton's. Inside
the ball, where G must vanish, S is the identity and d is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigvalsh

from mirrormargin.geometry import lp_norm, signed_power

__all__ = ["Ball", "BallPoint", "Derivatives", "Objective", "TangentSystem", "keep_positive"]

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
ARMIJO = 1e-4
LONGEST = 64.0  # Newton steps at once: far from the minimiser F is nearly a line
PATIENCE = 10  # steps without progress
FLAT = 1e-13  # a change of F that is rounding
# Softer entries would drown the others in A S^-1 A': `test_every_exponent_is_certified`.
LEAST_SLOPE = 1e-9
JITTER = 1e-15  # of the largest entry of A A', which may be singular


class Derivatives(Protocol):
    """First and second derivatives of f by the images, both ``mantissa * exp(log_scale)``."""

    @property
    def mantissa(self) -> Array:
        """Shape (groups, rows)."""
        ...

    @property
    def log_scale(self) -> Array | float: ...

    def curvature(self) -> Array:
        """Shape (groups, rows, rows)."""
        ...


class Objective(Protocol):
    """What is minimised, as a function of the images ``a = A w``, shape (groups, rows)."""

    def log_value(self, a: Array) -> float:
        """F = log f."""
        ...

    def derive(self, a: Array) -> Derivatives: ...


@dataclass(frozen=True, eq=False)
class BallPoint:
    """A point of the ball and what is known there.

    Attributes:
        x: The point over the radius, ``|x|_p <= 1``.
        a: Its images.
        log_value: F.
        derivatives: Of f by the images.
        G: The gradient of f by x, without its scale.
        pull: ``|gradient of F by x|_q``: how far F can fall on the ball, to first order.
        is_interior: Whether ``|x|_p < 1``.
        misfit: ``|psi'(x) - u|_q`` on the sphere, pull inside it; 0 for a stationary point.
        noise: Rounding of F.
    """

    x: Array
    a: Array
    log_value: float
    derivatives: Derivatives
    G: Array
    pull: float
    is_interior: bool
    misfit: float
    noise: float

    @property
    def residual(self) -> float:
        """The misfit, or pull where all that F can fall is rounding."""
        return min(self.misfit, self.pull) if self.pull <= FLAT else self.misfit


class Ball:
    """The ball ``|w|_p <= radius`` and an objective on it.

    Args:
        objective: f, a function of the images.
        A: Rows, shape (groups, rows, unknowns).
        p: Exponent of the norm.
        radius: R.
    """

    def __init__(self, objective: Objective, A: Array, p: float, radius: float) -> None:
        self.objective, self.p, self.q, self.radius = objective, p, p / (p - 1), radius
        self._shape = A.shape[:2]
        self._A = A.reshape(-1, A.shape[2])

    def minimize(self, start: Array, tol: float, max_iter: int) -> BallPoint:
        """Go downhill from a start to a stationary point.

        Args:
            start: w, not zero; brought to the sphere from outside, but not from inside.
            tol: Misfit at which to stop.
            max_iter: Bound on the steps.
        """
        x = start / self.radius
        norm = lp_norm(x, self.p)
        is_interior = bool(norm < 1 - 1e-9)
        here = self.look(x if is_interior else x / norm, is_interior)
        best, idle = here, 0
        for _ in range(max_iter):
            if here.misfit <= tol or idle == PATIENCE:
                break
            ahead = self._step(here)
            if ahead is None:
                break
            falls = ahead.log_value < here.log_value - here.noise
            idle = 0 if falls or ahead.misfit < 0.5 * best.misfit else idle + 1
            if falls or ahead.misfit < best.misfit:
                best = ahead
            here = ahead
        return best

    def look(self, x: Array, is_interior: bool) -> BallPoint:
        """Value, gradient and misfit at a point of the unit ball."""
        return self._complete(x, is_interior, *self._measure(x))

    def _complete(self, x: Array, is_interior: bool, a: Array, F: float) -> BallPoint:
        derivatives = self.objective.derive(a)
        G = self.radius * (derivatives.mantissa.reshape(-1) @ self._A)
        size = lp_norm(G, self.q)
        pull = size * float(np.exp(min(float(derivatives.log_scale) - F, 700.0)))
        misfit = pull
        if not is_interior and size > 0:
            misfit = lp_norm(signed_power(x, self.p - 1) + G / size, self.q)
        noise = 4 * EPS * (1.0 + abs(F) + float(np.abs(a).max()))
        return BallPoint(x, a, F, derivatives, G, pull, is_interior, misfit, noise)

    def find_curvature(self, point: BallPoint) -> float:
        """Least second derivative of f along the sphere, in units of the sphere's own.

        At most 1, which is the value of a convex f, and positive at a strict local minimiser. Of
        an interior point it is 1 where f'' is not negative, else the least eigenvalue of f'' / f.
        """
        B = point.derivatives.curvature()
        if point.is_interior:
            scale = float(np.exp(float(point.derivatives.log_scale) - point.log_value))
            least = self._system(np.ones_like(point.x), None).find_least_eigenvalue(B * scale) - 1
            return 1.0 if least >= -FLAT * (1 + point.noise / EPS) else least
        slopes = (self.p - 1) * np.maximum(np.abs(point.x), 1e-100) ** (self.p - 2)
        N = lp_norm(point.G, self.q) * np.clip(slopes, LEAST_SLOPE, 1e200)
        return self._system(N, signed_power(point.x, self.p - 1)).find_least_eigenvalue(B)

    def _system(self, N: Array, normal: Array | None) -> TangentSystem:
        """``N + R^2 A' B A`` over R^2, for A takes w and not x."""
        return TangentSystem(self._A, N / self.radius**2, normal)

    def _measure(self, x: Array) -> tuple[Array, float]:
        a = self.radius * (self._A @ x).reshape(self._shape)
        return a, self.objective.log_value(a)

    def _step(self, here: BallPoint) -> BallPoint | None:
        """The next point, None where neither F nor the misfit falls."""
        leaves_sphere = not here.is_interior and float(here.G @ here.x) > 0
        d = -0.5 * here.x if leaves_sphere else self._find_direction(here)
        may_be_inside = leaves_sphere or here.is_interior

        def try_length(t: float) -> tuple[Array, bool, Array, float]:
            x = here.x + t * d
            norm = lp_norm(x, self.p)
            is_interior = may_be_inside and norm < 1
            x = x if is_interior else x / norm
            return x, is_interior, *self._measure(x)

        t, F = 1.0, here.log_value
        slope = float(here.G @ d) / lp_norm(here.G, self.q) * here.pull
        ahead = try_length(t)
        if slope > -here.noise:
            # F cannot tell this step from rounding, but the misfit can: entries near zero matter
            # to psi', and not to F, if p is near 1. `test_every_exponent_is_certified`.
            point = self._complete(*ahead)
            return point if point.misfit < here.misfit else None
        while not ahead[3] <= F + ARMIJO * t * slope + here.noise:
            t *= 0.5
            if t < EPS:
                return None
            ahead = try_length(t)
        while 1 <= t < LONGEST and ahead[3] < F + 0.75 * t * slope:
            further = try_length(2 * t)
            if not further[3] < ahead[3]:
                break
            t, ahead = 2 * t, further
        return self._complete(*ahead)

    def _find_direction(self, here: BallPoint) -> Array:
        size, B = lp_norm(here.G, self.q), here.derivatives.curvature()
        if here.is_interior:
            r, system = -here.G, self._system(np.full_like(here.x, size), None)
        else:
            psi, u = signed_power(here.x, self.p - 1), -here.G / size
            slopes = _find_slopes(here.x, signed_power(u, self.q - 1), psi, u, self.p)
            r, system = size * (u - psi), self._system(size * slopes, psi)
        r = r / self.radius**2
        d = system.solve(r, B)
        if d is None:
            d = system.solve(r, keep_positive(B))
        return np.zeros_like(r) if d is None else d


def _find_slopes(x: Array, y: Array, psi: Array, u: Array, p: float) -> Array:
    """Of psi' between x, where it is psi, and y, where it is u."""
    is_far = np.abs(y - x) > 1e-6 * np.maximum(np.abs(x), np.abs(y))
    secant = (u - psi) / np.where(is_far, y - x, 1.0)
    tangent = (p - 1) * np.maximum(0.5 * np.abs(x + y), 1e-100) ** (p - 2)
    return np.clip(np.where(is_far, secant, tangent), LEAST_SLOPE, 1e200)


class TangentSystem:
    r"""The linear systems of Newton's method on a sphere: a diagonal plus what a few rows add.

        (N + A' B A) d + mu j = r,    <j, d> = 0,      N = diag > 0, B symmetric, in blocks

    In the coordinates ``N^(1/2) d``, and with the part along j taken out of r and of the rows, N is
    the identity and the condition holds by itself. With E any matrix of ``E' E = A A'``,

        M = I + E B E'

    is as small as the smaller side of A and has the signs that the matrix has on the tangent. If A
    has fewer rows than columns, d = r - A' y with (I + B A A') y = B A r, else E = A' and
    d = M^-1 r.

    Args:
        A: Rows, shape (m, D).
        N: Diagonal, shape (D,).
        normal: j, None for a free d.

    The blocks B have shape (groups, rows, rows), with groups * rows = m.
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
