r"""The course of a flow from its initial W to its end.

At first nothing has moved and  u = u_0 - t grad L(W_0);  from the time when the gradient has
changed, an implicit method goes on. For p > 2 from W = 0 that is early: w grows like t^(1/(p-1)).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.flow_field import FlowField
from mirrormargin.dynamics.flow_integrator import Radau
from mirrormargin.dynamics.flow_record import FlowStatus
from mirrormargin.geometry import lp_norm

__all__ = ["FlowCourse"]

Array = NDArray[np.float64]

START_SHARE = 0.02  # of tol
STILL = 0.3  # logits


class FlowCourse:
    """One flow, followed once.

    Attributes:
        w: Where it is, W as a vector: the start, and after :meth:`follow` the end.
        status: How it ended.
        num_steps: Steps of the integrator.
        num_rejected: Steps that it took back.
    """

    def __init__(self, field: FlowField, w: Array, tol: float) -> None:
        self.field, self.w, self.tol = field, w, tol
        self.u = field.to_dual(w)
        self.force, self.log_scale = field.find_initial_force(w)
        self.status = FlowStatus.FOLLOWED if self.force.any() else FlowStatus.STATIONARY
        self.num_steps = self.num_rejected = 0

    def follow(self, stops: Array, progress: Callable[[float], object]) -> Array:
        """Go to each tau of ``stops``, in order; W at those that were reached, (R, d^2)."""
        if self.status is FlowStatus.STATIONARY:
            return np.repeat(self.w[None], len(stops), axis=0)
        start = self._find_start()
        path = [self._step_explicitly(stop)[1] for stop in stops[stops <= start]]
        if len(path) < len(stops):
            radau = Radau(self.field, start, *self._step_explicitly(start), self.tol)
            for stop in stops[len(path) :]:
                while radau.tau < stop and radau.advance(stop):
                    progress(radau.tau)
                if radau.tau < stop:
                    self.status = FlowStatus.BALANCED if radau.is_balanced else FlowStatus.STUCK
                    break
                path.append(radau.w)
            self.num_steps, self.num_rejected = radau.num_steps, radau.num_rejected
            self.w = radau.w
        else:
            self.w = path[-1]
        return np.array(path).reshape(len(path), self.field.num_unknowns)

    def _find_start(self) -> float:
        """The latest tau to which the first gradient is good enough, by bisection.

        It has changed by about as much as the logits moved, and u is wrong by that share of its
        own move. Pinned by ``test_the_first_step_is_as_exact_as_the_others``.
        """
        field = self.field
        size = field.find_size(self.w)
        low, high = -700.0, 700.0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for _ in range(50):
                middle = 0.5 * (low + high)
                u, w = self._step_explicitly(middle - self.log_scale)
                moved = field.reach * lp_norm(w - self.w, field.p)
                error = field.measure_dual(u - self.u, size) * moved
                good = moved <= STILL and error <= START_SHARE * self.tol
                low, high = (middle, high) if good else (low, middle)
        return low - self.log_scale

    def _step_explicitly(self, tau: float) -> tuple[Array, Array]:
        u = self.u + self.force * np.exp(tau + self.log_scale)
        return u, self.field.to_primal(u)
