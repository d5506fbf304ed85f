r"""From a program to a certified answer: scaling, starting points, separability, certificates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from mirrormargin.svm.certificate import INFEASIBLE_BELOW, cancellation, polish_cancellation
from mirrormargin.svm.interior_point import RAISE, Path, follow_path
from mirrormargin.svm.program import Bounds, Program, lp_norm

__all__ = ["Outcome", "Status", "measure_gap", "rounding", "solve_program"]

Array = NDArray[np.float64]

SEPARABLE = 0.3  # the gap at which a path that only asks for separability may end


class Status(str, Enum):
    """How a solve ended; compares equal to its text."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    MARGIN_BELOW = "margin below"
    MAX_ITERATIONS = "max iterations"
    CANNOT_CERTIFY = "cannot certify"

    __str__ = str.__str__


@dataclass(frozen=True)
class Outcome:
    """What the solver found for a program.

    ``w`` is feasible and ``lam`` fits its size, ``psi_p'(w) = A' lam``; both are None where no w
    separates, and ``farkas`` then holds the multipliers that bound the margin.
    """

    status: Status
    iterations: int
    method: str
    gap: float
    w: Array | None = None
    lam: Array | None = None
    farkas: Array | None = None


def solve_program(program: Program, tol: float, max_iter: int, start: Array | None) -> Outcome:
    """Solve to a gap of at most ``tol``, or prove that nothing separates.

    Args:
        program: What to solve.
        tol: Largest gap of an optimal solution.
        max_iter: Bound on the Newton steps.
        start: Multipliers to start from, None for the default.
    """
    row_norms = program.constraints.row_norms(2.0)
    scale = float(row_norms[row_norms > 0].mean())
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        return _solve_scaled(program, scale, row_norms / scale, tol, max_iter, start)


def _solve_scaled(
    program: Program,
    scale: float,
    row_norms: Array,
    tol: float,
    max_iter: int,
    start: Array | None,
) -> Outcome:
    scaled = _divide(program, scale)
    lam = 1 / np.maximum(row_norms, 1e-9)
    if start is not None:
        lam = np.maximum(start, 1e-3 * start.max())
    lam[program.equality] = 0.0
    separability = _Separability(scaled)
    inner = 0.5 * tol
    if program.p <= 2:
        path = follow_path(scaled, inner, max_iter, (None, lam), separability.watch)
        iterations = path.iterations
        if program.p < 2 and not (path.stopped or path.bounds.gap <= inner):
            path, iterations = _lower_exponent(scaled, inner, max_iter, lam, iterations)
    else:
        first = follow_path(
            scaled.at(2.0), min(SEPARABLE, 1.0), max_iter, (None, lam), separability.watch
        )
        path, iterations = first, first.iterations
        if first.bounds.w is not None and first.bounds.lam is not None:
            # Entries of about one: |w|^20 then stays in range.
            largest = float(np.abs(first.bounds.w).max())
            scale, scaled = scale / largest, _divide(scaled, 1 / largest)
            path = follow_path(
                scaled,
                inner,
                max_iter - iterations,
                (first.bounds.w / largest, first.bounds.lam),
            )
            iterations += path.iterations
    iterations += separability.iterations
    return _conclude(program, scale, tol, max_iter, path, iterations, separability.farkas)


def _lower_exponent(
    program: Program, tol: float, max_iter: int, lam: Array, iterations: int
) -> tuple[Path, int]:
    """The longer way for p near 1: from p = 2 down, each path starting where the last one was."""
    power = 1 / RAISE  # q - 1, which is 1 at p = 2
    while True:
        last = power * RAISE >= program.q - 1
        power = program.q - 1 if last else power * RAISE
        step = program if last else program.at(1 + 1 / power)
        path = follow_path(step, tol if last else SEPARABLE, max_iter, (None, lam))
        iterations += path.iterations
        lam = path.lam
        if last:
            return path, iterations


def _divide(program: Program, scale: float) -> Program:
    cap = None if program.cap is None else program.cap * scale**program.p
    return replace(program, constraints=program.constraints.divided(scale), cap=cap)


class _Separability:
    """Watches a path that finds no separating w, and looks for the proof that there is none.

    Whether the rows can be separated does not depend on p, and p = 2 is where that shows best.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.farkas: Array | None = None
        self.iterations = 0
        self._next_try = 1e4
        self._asked = False

    def watch(self, bounds: Bounds, iteration: int, lam: Array) -> bool:
        if self.program.cap is not None or np.isfinite(bounds.upper):
            return False
        if bounds.program.p < 2:
            return self._ask_p2(bounds, iteration, lam)
        if bounds.lower < self._next_try and iteration % 20 != 19:
            return False
        self._next_try = max(1e3 * self._next_try, bounds.lower)
        self.farkas = polish_cancellation(self.program, lam)
        return self.farkas is not None

    def _ask_p2(self, bounds: Bounds, iteration: int, lam: Array) -> bool:
        if self._asked or (bounds.lower < 1e4 and iteration < 15):
            return False
        self._asked = True
        row_norms = self.program.constraints.row_norms(2.0)
        lam = 1 / np.maximum(row_norms, 1e-9)
        lam[self.program.equality] = 0.0
        path = follow_path(self.program.at(2.0), SEPARABLE, 100, (None, lam), self.watch)
        self.iterations = path.iterations
        return path.stopped


def _conclude(
    program: Program,
    scale: float,
    tol: float,
    max_iter: int,
    path: Path,
    iterations: int,
    farkas: Array | None,
) -> Outcome:
    """Undo the scaling, and measure with the original rows."""
    bounds, method = path.bounds, path.method
    if farkas is not None:
        return Outcome(Status.INFEASIBLE, iterations, method, np.inf, farkas=farkas)
    lam = bounds.lam if bounds.lam is not None else path.lam
    if bounds.w is None:
        unit = lam / float(program.b @ lam)
        bound = cancellation(program, unit)
        status = Status.INFEASIBLE if bound <= INFEASIBLE_BELOW else Status.MAX_ITERATIONS
        if INFEASIBLE_BELOW < bound < 1e-6:
            status = Status.MARGIN_BELOW
        return Outcome(status, iterations, method, np.inf, farkas=unit)
    w = bounds.w / scale
    if program.cap is None:
        w = w / float(program.constraints.apply(w)[program.b == 1].min())
        lam = lam * (lp_norm(w, program.p) ** program.p / float(program.b @ lam))
    else:
        lam = lam / scale**program.p
    gap = measure_gap(program, w, lam)
    if gap + rounding(program, w) <= tol:
        status = Status.OPTIMAL
    elif iterations >= max_iter:
        status = Status.MAX_ITERATIONS
    else:
        status = Status.CANNOT_CERTIFY
    return Outcome(status, iterations, method, gap, w, lam)


def measure_gap(program: Program, w: Array, lam: Array) -> float:
    """The gap between w and lam, computed from the rows; inf if w is not feasible."""
    bounds = Bounds(program)
    bounds.see_primal(w, program.constraints.apply(w))
    bounds.see_dual(lam, program.constraints.adjoint(lam))
    return bounds.gap


def rounding(program: Program, w: Array) -> float:
    """What rounding may hide of the gap: eps times the largest ``|a_k|_q |w|_p``."""
    largest = float(program.constraints.row_norms(program.q).max())
    return float(np.finfo(np.float64).eps) * largest * lp_norm(w, program.p)
