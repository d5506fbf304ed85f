r"""The mirror flow in logarithmic time, and the linear systems of its implicit steps.

    du/dtau = f(tau, w) = -e^tau grad L(w),    w = sign(u) |u|^(1/(p-1)),    tau = log t.

Where training has settled, e^tau grad L is about |u| / tau: the gradient's log-scale and tau cancel
before the exponential is taken, so f is in range at t = 10^3000 as it is at t = 1. By u it changes
as  df/du = -e^tau A' B A D  with logits A w, their curvature B, one block for each sequence, and
D = diag(dw/du). Only rows with weight count in B: in the end the support and the selected tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import LogitGradient, find_logit_gradient
from mirrormargin.geometry import lp_norm, signed_power

__all__ = ["FlowField", "Force", "StageSystem"]

Array = NDArray[np.float64]

getrf, getrs = get_lapack_funcs(("getrf", "getrs"), dtype=np.float64)
EPS = float(np.finfo(np.float64).eps)
WEIGHTLESS = 1e-10
"""Rows below this share of the largest weight are left out of B: they only slow Newton down."""
FLATTEST = 1e-14
"""For p > 2, du/dw is at least this share of its largest entry, for it is 0 at w = 0."""


@dataclass(frozen=True)
class Force:
    """h f at several points, and what its derivative is made of.

    Attributes:
        value: ``h f = -h e^tau grad L``, shape (S, d^2).
        gradient: The gradient of L by the logits.
        scale: What its mantissa was multiplied with, shape (S,).
    """

    value: Array
    gradient: LogitGradient
    scale: Array


class FlowField:
    """f, the mirror maps, and the units in which errors are measured; W is flat, (..., d^2)."""

    def __init__(self, problem: AttentionProblem, p: float) -> None:
        self.problem, self.p, self.q = problem, p, p / (p - 1)
        self.num_unknowns = problem.dim**2
        # A sequence with a query of zeros never moves W, and must not set the gradient's scale.
        self._scores = problem.scores * (np.abs(problem.queries).max(axis=1, keepdims=True) > 0)
        # |A w|_inf <= reach |w|_p: turns lengths of W into logits, the unit of every error.
        tokens, queries = (lp_norm(x, self.q, axis=-1) for x in (problem.tokens, problem.queries))
        norms = tokens * queries[:, None]
        self._row_norms, self.reach = norms, float(norms.max())

    def to_dual(self, w: Array) -> Array:
        return w if self.p == 2 else signed_power(w, self.p - 1)

    def to_primal(self, u: Array) -> Array:
        return u if self.p == 2 else signed_power(u, 1 / (self.p - 1))

    def find_slopes(self, u: Array, w: Array) -> Array:
        """dw/du, from whichever of the two gives it without a negative power."""
        p = self.p
        if p <= 2:
            return np.abs(u) ** ((2 - p) / (p - 1)) / (p - 1)
        steepness = np.abs(w) ** (p - 2)
        least = FLATTEST * steepness.max(axis=-1, keepdims=True) + 1e-290
        return 1 / ((p - 1) * np.maximum(steepness, least))

    def find_force(self, log_time: Array, w: Array) -> Force:
        """h f at S points at once, ``log_time = tau + log h`` (S,) and w (S, d^2)."""
        gradient = self._find_gradient(w)
        scale = np.exp(log_time + gradient.log_scale)
        return Force(-self.pull_back(gradient.mantissa * scale[:, None, None]), gradient, scale)

    def find_initial_force(self, w: Array) -> tuple[Array, float]:
        """``(mantissa, log_scale)`` of ``-grad L`` at one point."""
        gradient = self._find_gradient(w[None])
        return -self.pull_back(gradient.mantissa)[0], float(gradient.log_scale[0])

    def _find_gradient(self, w: Array) -> LogitGradient:
        problem, d = self.problem, self.problem.dim
        products = w.reshape(-1, d, d) @ problem.queries.T
        logits = (problem.tokens @ products.transpose(2, 1, 0)).transpose(2, 0, 1)
        return find_logit_gradient(logits, self._scores, problem.margin_loss)

    def pull_back(self, logit_gradients: Array) -> Array:
        """``problem.pull_back`` of S gradients at once, (S, n, T) to (S, d^2)."""
        sums = logit_gradients.transpose(1, 0, 2) @ self.problem.tokens
        return (sums.transpose(1, 2, 0) @ self.problem.queries).reshape(-1, self.num_unknowns)

    def find_size(self, w: Array) -> float:
        """|w|_p, but at least what moves a logit by one: below, errors need not be relative."""
        return max(float(lp_norm(w, self.p)), 1 / self.reach)

    def measure_dual(self, du: Array, size: float) -> Array:
        """An error of u in logits: ``|w|_p |du|_q / |u|_q``, times what such a W does to them.

        D changes by at most ``|W~ - W_mm~|_p |du|_q / |u|_q``: this norm is the one that counts,
        and it asks little of an entry that crosses zero, where for p > 2 no w is well known.
        """
        return self.reach * lp_norm(du, self.q, axis=-1) * size ** (2 - self.p)

    def measure_rounding(self, force: Force, size: float) -> float:
        """What the rounding of the gradient at the last point can do to u, as an error of u."""
        sizes = np.abs(force.gradient.mantissa[-1]) * self._row_norms
        gross = float(sizes.sum() * force.scale[-1])
        return EPS * gross * self.reach * size ** (2 - self.p)

    def measure_energy(self, du: Array, dw: Array, size: float) -> Array:
        """A move in logits, sensitive to both u and w: the root of ``<du, dw>`` in that unit."""
        return self.reach * np.sqrt(np.abs(du * dw).sum(axis=-1) * size ** (2 - self.p))


class StageSystem:
    r"""``V_i + sum_j a_ij A' B_j A D_j V_j = r_i`` for the stages of one implicit step.

    B has the scale of the force, ``h e^tau`` included. The system is solved for
    ``y_j = B_j A D_j V_j``, one unknown for each weighted row and stage, or for V itself, whichever
    is smaller. Pinned by ``test_both_forms_of_the_system_are_one``.
    """

    def __init__(
        self,
        field: FlowField,
        force: Force,
        slopes: Array,
        coefficients: Array,
        by_rows: bool | None = None,
    ) -> None:
        problem = field.problem
        weights = np.abs(force.gradient.mantissa)
        weighted = weights > WEIGHTLESS * weights.max(axis=(1, 2), keepdims=True)
        i, t = np.nonzero(weighted.any(axis=0))
        rows = problem.tokens[i, t][:, :, None] * problem.queries[i][:, None, :]
        self.A = rows.reshape(len(i), field.num_unknowns)
        blocks = force.gradient.curvature()[:, i[:, None], t[:, None], t]
        self.B = blocks * (i[:, None] == i) * force.scale[:, None, None]
        self.slopes, self.coefficients = slopes, coefficients
        self.by_rows = len(i) <= field.num_unknowns if by_rows is None else by_rows
        a = coefficients[:, None, :, None]
        if self.by_rows:
            self.blocks = self.B @ ((self.A * slopes[:, None, :]) @ self.A.T)
            matrix = a * self.blocks[:, :, None, :]
        else:
            self.blocks = (self.A.T @ self.B @ self.A) * slopes[:, None, :]
            matrix = a * self.blocks.transpose(1, 0, 2)[None]
        size = matrix.shape[0] * matrix.shape[1]
        matrix = matrix.reshape(size, size)
        matrix.flat[:: size + 1] += 1
        self._factors = getrf(matrix)[:2]
        self._last_factors: dict[float, tuple[Array, NDArray[np.int32]]] = {}

    def solve(self, r: Array) -> Array:
        """V, shape (S, d^2)."""
        if not self.by_rows:
            return _solve(self._factors, r.reshape(-1)).reshape(r.shape)
        y = (self.B @ ((self.slopes * r) @ self.A.T)[:, :, None])[:, :, 0]
        y = _solve(self._factors, y.reshape(-1)).reshape(y.shape)
        return r - (self.coefficients @ y) @ self.A

    def solve_last(self, r: Array, mu: float) -> Array:
        """``(mu + A' B A D) V = r`` with A, B and D of the last stage, V of shape (d^2)."""
        if mu not in self._last_factors:
            matrix = self.blocks[-1].copy()
            matrix.flat[:: len(matrix) + 1] += mu
            self._last_factors[mu] = getrf(matrix)[:2]
        factors = self._last_factors[mu]
        if not self.by_rows:
            return _solve(factors, r)
        y = self.B[-1] @ (self.A @ (self.slopes[-1] * r))
        return (r - _solve(factors, y) @ self.A) / mu


def _solve(factors: tuple[Array, NDArray[np.int32]], r: Array) -> Array:
    return getrs(*factors, r)[0]
