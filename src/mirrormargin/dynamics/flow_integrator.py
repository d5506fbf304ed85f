r"""Radau IIA, three stages, order five and L-stable, for  du/dtau = f(tau, w(u)).

    U_i = u + h sum_j a_ij f(tau + c_j h, W_j),    u+ = U_3.

The flow is stiff: attention reacts at once to what the slow part of W does, and for p > 2 an entry
near zero moves by dw/du = |u|^(-(p-2)/(p-1)) / (p-1). For p <= 2 the stages are found by Newton's
method in u. For p > 2 entries cross zero, where w(u) is a root and its slope infinite. There
Newton's method in u oscillates if the loss ties w down, and Newton's method in w if it does not.
Both move an entry in the same direction, so each entry takes the shorter of the two moves.

A selection that is given up late changes within e^-gap of tau, far below the spacing of floats: tau
then does not change, and only log h measures a step. Pinned by
``test_a_selection_can_change_after_three_hundred_decades``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.flow_field import FlowField, Force, StageSystem

__all__ = ["Radau"]

Array = NDArray[np.float64]

ROOT6 = 6**0.5
NODES = np.array([(4 - ROOT6) / 10, (4 + ROOT6) / 10, 1.0])
# a_ij integrates from 0 to c_i the quadratic polynomial that is 1 at c_j and 0 at the others.
COEFFICIENTS = (NODES[:, None] ** [1, 2, 3] / [1, 2, 3]) @ np.linalg.inv(np.vander(NODES)[:, ::-1])
# The embedded formula of Hairer and Wanner (Solving ODEs II, IV.8): its 1 / gamma, and weights.
MU = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
EMBEDDED = np.array([-13 - 7 * ROOT6, -13 + 7 * ROOT6, -1]) / 3
# Where the polynomial of a step is known, and for each node the three others.
KNOWN = np.concatenate([[0.0], NODES])
OTHERS = np.broadcast_to(KNOWN, (4, 4))[~np.eye(4, dtype=bool)].reshape(4, 3)

FIRST_STEP = 0.1
LARGEST_GROWTH = 8.0  # of a step
SAFETY = 0.9
MAX_STEPS = 1_000_000
MAX_IN_A_ROW = 60  # rejections
NEWTON_SHARE = 0.01  # of tol
NEWTON_ITERATIONS = 15
SLOW = 0.3  # contraction above which the system is built again
SIMILAR = 0.2  # difference of log h at which the system of an earlier step is tried
GROWTHS = 3  # how often a Newton move may be longer than the one before
ROUNDING = 1e-14
SMALLEST_NOISE = 1e-10  # logits


class Radau:
    """One trajectory, with an error of at most ``tol`` in each step.

    Attributes:
        tau: The time that has been reached.
        u: The dual weights at that time.
        w: The weights at that time.
        is_balanced: Whether the gradients of the sequences cancel so far that their rounding error,
            times e^tau, exceeds what ``tol`` allows: then no further step is accurate.
        num_steps: Accepted steps.
        num_rejected: Steps that were tried and taken back.
    """

    def __init__(self, field: FlowField, tau: float, u: Array, w: Array, tol: float) -> None:
        self.field, self.tau, self.u, self.w, self.tol = field, tau, u, w, tol
        self.num_steps = self.num_rejected = 0
        self.is_balanced = False
        self._log_h = float(np.log(FIRST_STEP))
        self._in_a_row = 0
        self._last: tuple[Array, float, float] | None = None  # u and its stages, log h, error
        self._system: tuple[StageSystem, float] | None = None  # the last one built, its log h

    def advance(self, stop: float) -> bool:
        """Take one step towards ``stop``; False if there is no way on."""
        while self._in_a_row < MAX_IN_A_ROW and not self.is_balanced:
            if self.num_steps + self.num_rejected >= MAX_STEPS:
                return False
            left, h = stop - self.tau, float(np.exp(self._log_h))
            # The last steps before a stop are equal, so that none is tiny.
            log_h = np.log(left / np.ceil(left / h)) if left < 2 * h else self._log_h
            with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
                error = self._try(float(log_h))
            if error <= 1:
                self.num_steps += 1
                self._in_a_row = 0
                if stop - self.tau <= ROUNDING * (1 + abs(stop)):
                    self.tau = stop
                return True
            self.num_rejected += 1
            self._in_a_row += 1
            shrink = SAFETY * error**-0.25 if np.isfinite(error) else 0.25
            self._log_h = float(log_h + np.log(max(shrink, 0.1)))
        return False

    def _try(self, log_h: float) -> float:
        """The error of a step as a share of tol; it is taken if that is at most one."""
        stages = self._solve_stages(log_h)
        if stages is None:
            return np.inf
        U, W, system, force = stages
        error = self._estimate_error(log_h, U, system)
        if not error <= 1:
            return error
        size = self.field.find_size(self.w)
        self.is_balanced = self.field.measure_rounding(force, size) > max(
            NEWTON_SHARE * self.tol, SMALLEST_NOISE
        )
        error = max(error, 1e-12)
        grow = np.log(min(SAFETY * error**-0.25, LARGEST_GROWTH))
        if self._last is not None:
            _, last_log_h, last_error = self._last
            grow += min(log_h - last_log_h + 0.25 * np.log(last_error / error), 0.0)
        if self._in_a_row:
            grow = min(grow, 0.0)
        # A step that a stop cut short says nothing against a longer one.
        was_cut = log_h < self._log_h and grow >= 0
        self._log_h = float(max(self._log_h, log_h + grow) if was_cut else log_h + grow)
        self._last = np.vstack([self.u, U]), log_h, max(error, 1e-3)
        self.tau, self.u, self.w = self.tau + float(np.exp(log_h)), U[2], W[2]
        return error

    def _solve_stages(self, log_h: float) -> tuple[Array, Array, StageSystem, Force] | None:
        """U and W of the stages, or None where Newton's method fails."""
        field = self.field
        size = field.find_size(self.w)
        enough = max(NEWTON_SHARE * self.tol, ROUNDING * field.reach * size)
        times = self.tau + NODES * np.exp(log_h)
        U = self._extrapolate(log_h)
        W = field.to_primal(U)
        system, last, growths = None, None, 0
        if self._system is not None and abs(log_h - self._system[1]) < SIMILAR:
            system = self._system[0]
        for _ in range(NEWTON_ITERATIONS):
            force = field.find_force(times + log_h, W)
            r = self.u + COEFFICIENTS @ force.value - U
            if not np.isfinite(r).all():
                return None
            if system is None:
                system = StageSystem(field, force, field.find_slopes(U, W), COEFFICIENTS)
                self._system = system, log_h
            V = system.solve(r)
            moved = field.to_primal(U + V)
            if field.p > 2:
                # Pinned by test_every_exponent_is_followed_for_300_decades.
                linear = W + system.slopes * V
                moved = np.where(np.abs(linear - W) < np.abs(moved - W), linear, moved)
            move = float(field.measure_energy(V, moved - W, size).max())
            W, U = moved, (field.to_dual(moved) if field.p > 2 else U + V)
            if not np.isfinite(move):
                return None
            if move <= 0.1 * enough:
                return U, W, system, force
            if last is not None:
                rate = move / last
                if rate < 1 and rate / (1 - rate) * move <= enough:
                    return U, W, system, force
                growths += rate >= 1
                if growths > GROWTHS:
                    return None
                if rate > SLOW:
                    system = None
            last = move
        return None

    def _extrapolate(self, log_h: float) -> Array:
        """The polynomial of the last step, at the stages of the next."""
        if self._last is None:
            return np.repeat(self.u[None], len(NODES), axis=0)
        values, last_log_h, _ = self._last
        at = 1 + NODES[:, None, None] * np.exp(log_h - last_log_h)
        return np.prod((at - OTHERS) / (KNOWN[:, None] - OTHERS), axis=2) @ values

    def _estimate_error(self, log_h: float, U: Array, system: StageSystem) -> float:
        """How far the embedded formula of order three ends from U_3, as a share of tol."""
        field = self.field
        size = field.find_size(self.w)
        embedded = EMBEDDED @ (U - self.u)
        w = self.w
        measured = np.inf
        # Where the force at the start has a stiff part, the estimate is filtered again.
        for _ in range(1 + (self._in_a_row > 0 or self._last is None)):
            force = field.find_force(np.array([self.tau + log_h]), w[None]).value[0]
            error = system.solve_last(force + embedded, MU)
            measured = float(field.measure_dual(error, size)) / self.tol
            if measured <= 1:
                break
            w = field.to_primal(self.u + error)
        return measured
