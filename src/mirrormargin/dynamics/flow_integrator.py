r"""Radau IIA, three stages, order five and L-stable, for  du/dtau = f(tau, w(u)).

    U_i = u + h sum_j a_ij f(tau + c_j h, W_j),    u+ = U_3.

The flow is stiff: attention reacts at once to what the slow part of W does, and for p > 2 an entry
near zero moves by dw/du = |u|^(-(p-2)/(p-1)) / (p-1). Newton's method is therefore exact in u for
p <= 2. For p > 2 entries cross zero, where w(u) is a root: Newton in u oscillates there when
the loss holds w, and Newton in w when it does not. Both moves go the same way, so each entry takes
the shorter one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.flow_field import FlowField, StageSystem

__all__ = ["Radau"]

Array = NDArray[np.float64]

ROOT6 = 6**0.5
NODES = np.array([(4 - ROOT6) / 10, (4 + ROOT6) / 10, 1.0])
# Exact for polynomials of degree 2: a_ij integrates the j-th Lagrange polynomial from 0 to c_i.
COEFFICIENTS = (NODES[:, None] ** [1, 2, 3] / [1, 2, 3]) @ np.linalg.inv(np.vander(NODES)[:, ::-1])
# The embedded formula of Hairer and Wanner (Solving ODEs II, IV.8): its 1 / gamma, and weights.
MU = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
EMBEDDED = np.array([-13 - 7 * ROOT6, -13 + 7 * ROOT6, -1]) / 3

# Where the polynomial of a step is known, and for each place the three others.
KNOWN = np.concatenate([[0.0], NODES])
OTHERS = np.broadcast_to(KNOWN, (4, 4))[~np.eye(4, dtype=bool)].reshape(4, 3)

NEWTON_SHARE = 0.01  # of tol
NEWTON_ITERATIONS = 15
SLOW = 0.1  # contraction above which the system is built anew
GROWTHS = 3  # how often a Newton move may be longer than the one before
MAX_STEPS = 1_000_000
ROUNDING = 1e-14


class Radau:
    """One trajectory: where it is, and how to go on with an error below ``tol`` in each step.

    Attributes:
        tau, u, w: Where it is.
        num_steps: Accepted steps.
        num_rejected: Steps that were tried and taken back.
    """

    def __init__(self, field: FlowField, tau: float, u: Array, w: Array, tol: float) -> None:
        self.field, self.tau, self.u, self.w, self.tol = field, tau, u, w, tol
        self.num_steps = self.num_rejected = 0
        self._h = 0.1
        self._rejected = False
        self._last: tuple[Array, float, float] | None = None  # u and its stages, h, error
        self._force = field.find_force(np.array([tau]), w[None]).value[0]

    def advance(self, stop: float) -> bool:
        """Take one step towards ``stop``; False if there is no way on.

        No step is too short: a selection that is given up at a late tau changes within e^-gap of
        it, far below the spacing of floats, while tau stands still. Pinned by
        ``test_a_selection_can_change_after_fifty_decades``.
        """
        left = stop - self.tau
        while self.num_steps + self.num_rejected < MAX_STEPS and self._h > 1e-280:
            # The last steps before a stop are equal, so that none is tiny.
            h = left / np.ceil(left / self._h) if left < 2 * self._h else self._h
            with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
                error = self._try(h)
            if error <= 1:
                self.num_steps += 1
                if stop - self.tau <= ROUNDING * (1 + abs(stop)):
                    self.tau = stop
                return True
            self.num_rejected += 1
            self._rejected = True
            self._h = h * (0.25 if np.isinf(error) else max(0.1, 0.9 * error**-0.25))
        return False

    def _try(self, h: float) -> float:
        """The error of a step of length h as a share of tol; the step is taken if at most one."""
        stages = self._solve_stages(h)
        if stages is None:
            return np.inf
        U, W, system = stages
        error = self._estimate_error(h, U, system)
        if not error <= 1:
            return error if error < np.inf else np.inf
        factor = min(0.9 * max(error, 1e-12) ** -0.25, 8.0)
        if self._last is not None:
            _, last_h, last_error = self._last
            trend = h / last_h * (last_error / max(error, 1e-12)) ** 0.25
            factor *= min(1.0, trend)
        if self._rejected:
            factor = min(factor, 1.0)
        if not (h < self._h and factor >= 1):  # a step cut by a stop says little about the next
            self._h = h * factor
        self._h = max(self._h, h * factor)
        self._rejected = False
        self._last = np.vstack([self.u, U]), h, max(error, 1e-3)
        self.tau, self.u, self.w = self.tau + h, U[2], W[2]
        self._force = self.field.find_force(np.array([self.tau]), self.w[None]).value[0]
        return error

    def _solve_stages(self, h: float) -> tuple[Array, Array, StageSystem] | None:
        """U and W of the stages, or None where Newton's method fails."""
        field = self.field
        size = field.find_size(self.w)
        enough = max(NEWTON_SHARE * self.tol, ROUNDING * field.reach * size)
        times = self.tau + NODES * h
        U = self._extrapolate(h)
        W = field.to_primal(U)
        system, last, growths = None, None, 0
        for _ in range(NEWTON_ITERATIONS):
            force = field.find_force(times, W)
            r = self.u + h * (COEFFICIENTS @ force.value) - U
            if not np.isfinite(r).all():
                return None
            if system is None:
                system = StageSystem(field, force, field.find_slopes(U, W), h, COEFFICIENTS)
            V = system.solve(r)
            moved = field.to_primal(U + V)
            if field.p > 2:
                # Pinned by test_entries_that_cross_zero.
                linear = W + system.slopes * V
                moved = np.where(np.abs(linear - W) < np.abs(moved - W), linear, moved)
            move = float(field.measure_energy(V, moved - W, size).max())
            W, U = moved, (field.to_dual(moved) if field.p > 2 else U + V)
            if not np.isfinite(move):
                return None
            if move <= 0.1 * enough:
                return U, W, system
            if last is not None:
                rate = move / last
                if rate < 1 and rate / (1 - rate) * move <= enough:
                    return U, W, system
                growths += rate >= 1
                if growths > GROWTHS:
                    return None
                if rate > SLOW:
                    system = None
            last = move
        return None

    def _extrapolate(self, h: float) -> Array:
        """The polynomial of the last step, beyond it."""
        if self._last is None:
            return np.repeat(self.u[None], 3, axis=0)
        values, last_h, _ = self._last
        at = 1 + NODES[:, None, None] * (h / last_h)
        weights = np.prod((at - OTHERS) / (KNOWN[:, None] - OTHERS), axis=2)
        return weights @ values

    def _estimate_error(self, h: float, U: Array, system: StageSystem) -> float:
        field = self.field
        size = field.find_size(self.w)
        embedded = EMBEDDED @ (U - self.u)
        error = system.solve_last(h * self._force + embedded, MU)
        measured = float(field.measure_dual(error, size)) / self.tol
        if measured > 1 and (self._rejected or self._last is None):
            # Where f at the start has a stiff part, the estimate is filtered once more.
            start = field.to_primal(self.u + error)
            force = field.find_force(np.array([self.tau]), start[None]).value[0]
            error = system.solve_last(h * force + embedded, MU)
            measured = float(field.measure_dual(error, size)) / self.tol
        return measured
