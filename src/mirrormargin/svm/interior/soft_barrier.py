r"""The dual barrier of a soft margin at p <= 2, for where the shorter path loses its way.

With u = A' lam and q = p / (p - 1) the dual of the soft margin asks for the least of

    F_mu(lam) = |u|_q^q / q - <b, lam> - mu sum_k (log lam_k + log(C - lam_k)),    0 < lam_k < C,

as mu -> 0. F_mu is convex, and Newton's method with a search along each step always reaches its
minimum, of which w = sign(u) |u|^(q-1) has a gap of at most 2 m mu. mu only ever falls, and only
after the minimum was reached. Mehrotra's path aims further, needs a third of the steps, and near
p = 1, where u is raised to high powers, may be thrown back by each of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry import signed_power
from mirrormargin.svm.interior.central_path import Path
from mirrormargin.svm.interior.iterate import TO_THE_BOUNDARY, FromDual, search_minimum
from mirrormargin.svm.interior.newton import NewtonSystem
from mirrormargin.svm.interior.program import Bounds, Program

__all__ = ["follow_barrier"]

Array = NDArray[np.float64]

SHRINK = 0.2  # of mu, once its minimum is reached
REACHED = 0.5  # the decrement of Newton's method at which it is
STALLED = 20  # steps without a smaller gap, after which rounding is what is left


def follow_barrier(program: Program, tol: float, max_iter: int, lam: Array) -> Path:
    """Follow the minima of the barrier until the gap is at most ``tol``, or rounding stops it.

    Args:
        program: A soft margin at p <= 2 without equalities, with rows of norms about one.
        tol: Target of the gap.
        max_iter: Bound on the Newton steps.
        lam: Where to start: positive multipliers of any size.
    """
    assert program.cap is not None
    constraints, b, cap, power = program.constraints, program.b, program.cap, program.q - 1
    bounds, newton = Bounds(program), NewtonSystem(constraints, program.p)
    lam = FromDual(program, (None, lam)).lam  # of a size that suits the dual, below C
    nothing, ones = np.zeros(constraints.num_unknowns), np.ones(constraints.num_unknowns)
    mu, least, since = cap, np.inf, 0
    for iteration in range(max_iter + 1):
        u = constraints.adjoint(lam)
        w = signed_power(u, power)
        y = constraints.apply(w)
        bounds.see_dual(lam, u)
        bounds.see_primal(w, y)
        if mu == cap or bounds.gap < 0.99 * least:
            least, since = bounds.gap, iteration
        if bounds.gap <= tol or iteration in (max_iter, since + STALLED):
            return Path(bounds, iteration, f"dual barrier, {newton.method}", lam)
        curvature = power * np.abs(u) ** (power - 1)
        newton.update(ones, curvature, mu / lam**2 + mu / (cap - lam) ** 2, bounds.gap)
        slope = y - b - mu / lam + mu / (cap - lam)
        _, step = newton.solve(nothing, -slope)
        length = _find_length(program, mu, lam, u, step)
        lam = lam + length * step
        if -float(slope @ step) < REACHED * mu:
            mu *= SHRINK
    raise AssertionError("unreachable")


def _find_length(program: Program, mu: float, lam: Array, u: Array, step: Array) -> float:
    """How far along a step the barrier falls, at most 1."""
    assert program.cap is not None
    cap, du = program.cap, program.constraints.adjoint(step)
    steepest = float(max((-step / lam).max(), (step / (cap - lam)).max()))
    longest = min(1.0, TO_THE_BOUNDARY / max(steepest, 1e-300))
    gain = float(program.b @ step)

    def slope(length: float) -> float:
        there = lam + length * step
        walls = float((step / there - step / (cap - there)).sum())
        return float(signed_power(u + length * du, program.q - 1) @ du) - gain - mu * walls

    return search_minimum(slope, longest, abs(gain))
