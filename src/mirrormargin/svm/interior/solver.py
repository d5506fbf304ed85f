r"""From a program to a certified answer: scaling, starting points, separability, certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import refuse_overflow
from mirrormargin.errors import ProblemError
from mirrormargin.geometry import lp_norm, signed_power
from mirrormargin.svm.interior.central_path import Path, follow_path
from mirrormargin.svm.interior.exact_measures import (
    find_exact_rows,
    find_lead,
    measure_exactly,
    scale_to_lead,
)
from mirrormargin.svm.interior.infeasibility import bound_margin, decide, prove_with_error_bounds
from mirrormargin.svm.interior.iterate import RAISE
from mirrormargin.svm.interior.program import (
    Bounds,
    Outcome,
    Program,
    Proof,
    Status,
    measure_gap,
    rounding,
)
from mirrormargin.svm.interior.separability import SEPARABLE, Separability
from mirrormargin.svm.interior.soft_barrier import follow_barrier

__all__ = ["refuse_row", "solve_program"]

Array = NDArray[np.float64]

WARM_UP_TO = 5.0  # a higher p is raised from 2: near the solution |w|^p is too steep
OUT_OF_RANGE = "leaves floating point: scale tokens, queries or C, or take another p"
LENGTHENINGS = 4  # of a w whose least lead is below one, by its rounding alone
UNSETTLED = 1e-3  # a gap at which the path of a tiny margin has lost its way
MANY_STEPS = 50  # after which a w that was not found is looked for in rational numbers
FEW_STEPS = 60  # after which a soft margin at p <= 2 is left to its dual barrier
HUGE_PRICE = 1e9  # of a shortfall, from which the barrier is as lost as the path
EXACT = "shortest w, in rational numbers"  # the method
TINY_MARGIN = 1e-6  # below this share of the rows a margin that was not found is called tiny


def solve_program(program: Program, tol: float, max_iter: int, start: Array | None) -> Outcome:
    """Solve to a gap of at most ``tol``, prove that nothing separates, or bound the margin.

    Args:
        program: What to solve.
        tol: Largest gap of an optimal solution.
        max_iter: Bound on the Newton steps.
        start: Multipliers to start from, None for the default.

    Raises:
        ProblemError: (a ValueError) If ``|w|^p`` leaves the range of floating point.
    """
    quiet = np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")
    with quiet, refuse_overflow(program.p):
        if program.cap is not None and not program.constraints.row_norms(2.0).any():
            w, lam = np.zeros(program.constraints.num_unknowns), program.cap * program.b
            return Outcome(Status.OPTIMAL, 0, "no row depends on w", 0.0, w, lam)
        # An optimal solution has gap + rounding <= tol: aim for half of tol, so that the other
        # half is left for rounding.
        outcome = _Solve(program, tol, max_iter).run(0.5 * tol, start)
        left = max_iter - outcome.iterations
        if outcome.status is Status.CANNOT_CERTIFY and outcome.gap <= tol and left > 0:
            # The gap is small enough, but rounding takes more than its half. Aim for a hundredth,
            # which leaves nearly all of tol for rounding.
            again = _Solve(program, tol, left).run(0.01 * tol, start)
            outcome = replace(again, iterations=outcome.iterations + again.iterations)
        if program.cap is not None and outcome.status is not Status.OPTIMAL:
            outcome = _solve_soft_at_its_ends(program, tol, max_iter) or outcome
        return outcome


def _solve_soft_at_its_ends(program: Program, tol: float, max_iter: int) -> Outcome | None:
    """Try the two solutions of an extreme C, where the path fails; None if neither is certified.

    For a tiny C every row falls short, and ``lam = C b``. For a huge C none does, and the hard
    margin is the solution. The hard gap compares norms and the soft gap objectives, |w|^p / p: a
    relative error of the norm counts p times, so the hard margin is solved to tol / p, and to a
    tenth of that to leave most of tol for rounding.
    """
    assert program.cap is not None
    constraints = program.constraints
    lam = np.where(program.equality, 0.0, program.cap * program.b)
    candidates = [(signed_power(constraints.adjoint(lam), program.q - 1), lam)]
    hard = _Solve(replace(program, cap=None), tol, max_iter, proving=False).run(
        0.1 * tol / program.p, None
    )
    if hard.w is not None and hard.lam is not None:
        candidates.append((hard.w * (1 + 1e-15), hard.lam))
    for w, lam in candidates:
        gap = measure_gap(program, w, lam)
        if max(gap, 0.0) + rounding(program, w, lam) <= tol:
            return Outcome(Status.OPTIMAL, hard.iterations, hard.method, gap, w, lam)
    return None


def refuse_row(program: Program, row: int, method: str) -> Outcome:
    """The outcome where one row of zeros asks for more than zero."""
    lam = np.zeros(program.constraints.num_rows)
    lam[row] = 1.0
    proof = Proof("rational numbers", {row: Fraction(1)})
    return Outcome(Status.INFEASIBLE, 0, method, np.inf, farkas=lam, proof=proof)


class _Solve:
    """One solve: the program with rows of mean norm one, and the Newton steps so far.

    Without ``proving``, what floating point cannot decide is left undecided.
    """

    def __init__(
        self, program: Program, tol: float, max_iter: int, *, proving: bool = True
    ) -> None:
        self.program, self.tol, self.max_iter, self.proving = program, tol, max_iter, proving
        row_norms = program.constraints.row_norms(2.0)
        self.scale = float(row_norms.sum()) / max(int((row_norms > 0).sum()), 1)
        if not (0 < self.scale < np.inf and row_norms.max() < np.inf):
            raise ProblemError(
                "the products of the data leave floating point: scale tokens, queries or features"
                " to about one"
            )
        self.scaled = _divide(program, self.scale)
        self.lam = 1 / np.maximum(row_norms / self.scale, 1e-9)
        self.lam[program.equality] = 0.0
        self.iterations = 0
        self.separability = Separability(self.scaled, self.lam, max_iter)
        cap = np.inf if self.scaled.cap is None else self.scaled.cap
        self.has_barrier = program.p <= 2 and cap < HUGE_PRICE and not program.equality.any()

    def run(self, target: float, start: Array | None) -> Outcome:
        """Follow paths until one has a gap of at most ``target``."""
        path = None if start is None else self._start_warm(target, start)
        proven = self.separability.farkas is not None
        if path is None or not (proven or path.bounds.gap <= target):
            path = self._start_cold(target)
        return self._conclude(path)

    def _start_warm(self, target: float, start: Array) -> Path | None:
        """From other multipliers and the w that belongs to them, if that separates."""
        scaled, q = self.scaled, self.scaled.q
        free = scaled.equality
        lam = np.where(free, start, np.maximum(start, 0.0))
        if scaled.cap is not None:
            lam = lam * np.power(self.scale, scaled.p)
            lam = np.where(free, lam, np.minimum(lam, scaled.cap))
        u = scaled.constraints.adjoint(lam)
        if scaled.cap is None:
            # The size of a hard margin's multipliers is free: w is then about one.
            lam, u = lam / lp_norm(u, q), u / lp_norm(u, q)
        w = signed_power(u, q - 1)
        y = scaled.constraints.apply(w)
        bounds = Bounds(scaled)
        bounds.see_dual(lam, u)
        bounds.see_primal(w, y)
        if bounds.gap <= target:
            return Path(bounds, 0, "warm start", lam)
        lam = np.where(free, lam, np.maximum(lam, 1e-3 * lam[~free].max()))
        if scaled.cap is not None:
            lam = np.where(free, lam, np.minimum(lam, 0.99 * scaled.cap))
        if scaled.p <= 2:
            return self._follow(scaled, target, (None, lam), self.separability.watch)
        if scaled.p <= WARM_UP_TO and y[scaled.b == 1].min() > 0:
            return self._follow(scaled, target, (w, lam), warm=True)
        return None

    def _start_cold(self, target: float) -> Path:
        if self.program.p > 2:
            return self._raise_exponent(target)
        path = self._follow(self.scaled, target, (None, self.lam), self.separability.watch)
        if path.stopped or path.bounds.gap <= target:
            return path
        if not self.has_barrier:
            return path if self.program.p == 2 else self._lower_exponent(target)
        left = max(self.max_iter - self.iterations, 1)
        path = follow_barrier(self.scaled, target, left, self.lam)
        self.iterations += path.iterations
        return path

    def _raise_exponent(self, target: float) -> Path:
        """Above 2: first a w that separates, at p = 2."""
        first = self._follow(
            self.scaled.at(2.0), SEPARABLE, (None, self.lam), self.separability.watch
        )
        if self.scaled.cap is not None and first.bounds.w is not None and not first.bounds.w.any():
            # Either w = 0 is the solution, at every p, or the path ended too early: follow it on.
            first = self._follow(self.scaled.at(2.0), target, (None, self.lam))
        w, lam = first.bounds.w, first.bounds.lam
        if w is None or lam is None:
            return first
        if not w.any():
            # The solution at p = 2 may be so short that rounding hides it. At this p it is longer:
            # its entries are roots of those of u.
            u = self.scaled.constraints.adjoint(lam)
            w = signed_power(u, self.scaled.q - 1)
            bounds = Bounds(self.scaled)
            bounds.see_dual(lam, u)
            bounds.see_primal(w, self.scaled.constraints.apply(w))
            if bounds.gap <= target or not w.any():
                return replace(first, bounds=bounds)
        # Entries of about one: |w|^20 then stays in range.
        largest = float(np.abs(w).max())
        self.scale, self.scaled = self.scale / largest, _divide(self.scaled, 1 / largest)
        return self._follow(self.scaled, target, (w / largest, lam))

    def _lower_exponent(self, target: float) -> Path:
        """The longer way for p near 1: from 2 down, each path starting where the last one was."""
        power, lam = 1 / RAISE, self.lam  # power is q - 1, which is 1 at p = 2
        while True:
            last = power * RAISE >= self.program.q - 1
            power = self.program.q - 1 if last else power * RAISE
            step = self.scaled if last else self.scaled.at(1 + 1 / power)
            path = self._follow(step, target if last else SEPARABLE, (None, lam))
            lam = path.lam
            if last:
                return path

    def _follow(
        self,
        program: Program,
        target: float,
        start: tuple[Array | None, Array],
        watch: Callable[[Bounds, int, Array], bool] | None = None,
        *,
        warm: bool = False,
    ) -> Path:
        left = max(self.max_iter - self.iterations - self.separability.iterations, 1)
        left = min(left, FEW_STEPS) if self.has_barrier else left
        path = follow_path(program, target, left, start, watch, warm=warm)
        self.iterations += path.iterations
        return path

    def _conclude(self, path: Path) -> Outcome:
        """Undo the scaling, and measure with the original rows."""
        program, bounds = self.program, path.bounds
        farkas = self.separability.farkas
        if farkas is not None:
            return self._decide(path, farkas)
        lam = bounds.lam if bounds.lam is not None else path.lam
        if bounds.w is None:
            unit = lam / float(program.b @ lam)
            if not np.isfinite(unit).all():
                raise ProblemError(f"at p = {program.p:g} {OUT_OF_RANGE}")
            return self._decide(path, unit)
        outcome = self._measure(path.method, bounds.w / self.scale, lam)
        if outcome.status is Status.OPTIMAL or program.cap is not None:
            return outcome
        assert outcome.w is not None
        lead = find_lead(program, outcome.w)
        tiny = outcome.gap > UNSETTLED and bound_margin(program, lam) < TINY_MARGIN
        if not (lead <= 0 or tiny):
            return outcome
        # Rounding made a lead of what is none, or left the path without a direction.
        decided = self._decide(path, lam / float(program.b @ lam))
        return decided if lead <= 0 or decided.gap < outcome.gap else outcome

    def _measure(self, method: str, w: Array, lam: Array, *, unit: bool = False) -> Outcome:
        """The outcome of a w that separates, up to rounding, and any multipliers.

        With ``unit`` the least lead of w is one already, whatever floating point finds.
        """
        program = self.program
        iterations = self.iterations + self.separability.iterations
        if program.cap is None:
            if not unit:
                w = w / float(program.constraints.apply(w)[program.b == 1].min())
            lam = self._fit(w, lam)
        else:
            lam = lam / np.power(self.scale, program.p)
            lam = np.where(program.equality, lam, np.minimum(lam, program.cap))
        if not (np.isfinite(lam).all() and lam.any()):
            raise ProblemError(
                f"|w|^p with |w| = {lp_norm(w, program.p):.1e}, p = {program.p:g} {OUT_OF_RANGE}"
            )
        gap, hidden = measure_gap(program, w, lam), rounding(program, w, lam)
        certified = max(gap, 0.0) + hidden <= self.tol
        if not certified and (exact := measure_exactly(program, w, lam, hidden)):
            gap = exact.gap
            if gap + exact.rounding <= self.tol:
                w, lam, certified = self._certify_exactly(w, lam, hidden)
        if certified:
            status = Status.OPTIMAL
        elif iterations >= self.max_iter and gap > self.tol:
            status = Status.MAX_ITERATIONS
        else:
            status = Status.CANNOT_CERTIFY
        return Outcome(status, iterations, method, gap, w, lam)

    def _fit(self, w: Array, lam: Array) -> Array:
        """The multiple of lam that belongs to the size of w."""
        p = self.program.p
        return lam * (np.power(lp_norm(w, p), p) / float(self.program.b @ lam))

    def _certify_exactly(self, w: Array, lam: Array, hidden: float) -> tuple[Array, Array, bool]:
        """Lengthen w until no row falls short, which a small margin makes of any rounding."""
        start = w, lam
        for _ in range(LENGTHENINGS):
            exact = measure_exactly(self.program, w, lam, hidden)
            if exact is None or not exact.gap + exact.rounding <= self.tol:
                break
            short = 1 - float(exact.y.min())
            excess = float(lam @ (exact.y - 1)) / float(lam.sum())
            if short <= 0 and excess + exact.rounding <= self.tol:
                return w, lam, True
            w = w * (1 + abs(short)) if short > 0 else w / float(exact.y.min())
            lam = self._fit(w, lam)
        return *start, False

    def _decide(self, path: Path, lam: Array) -> Outcome:
        """No w was found: prove that there is none, find it in rational numbers, or bound it.

        Args:
            path: Where the search for w ended.
            lam: Multipliers of sum ``<b, lam> = 1`` that cancel the rows, more or less.
        """
        program = self.program
        iterations = self.iterations + self.separability.iterations
        bound = bound_margin(program, lam)
        missed = Outcome(_judge(bound), iterations, path.method, np.inf, farkas=lam)
        early = missed.status is Status.MAX_ITERATIONS and iterations < MANY_STEPS
        if early or not self.proving:
            return missed
        proof = prove_with_error_bounds(program, lam)
        if proof is not None:
            return replace(missed, status=Status.INFEASIBLE, proof=proof)
        decided = decide(program, lam)
        if decided is None:
            return missed
        decision, chosen = decided
        if not decision.separates:
            multipliers = {int(chosen[k]): value for k, value in decision.multipliers.items()}
            lam = np.zeros(program.constraints.num_rows)
            for k, value in multipliers.items():
                lam[k] = float(value)
            proof = Proof("rational numbers", multipliers)
            return replace(missed, status=Status.INFEASIBLE, farkas=lam, proof=proof)
        w = scale_to_lead(program, decision.combine(find_exact_rows(program)))
        if w is None:
            return replace(missed, status=Status.MARGIN_BELOW)
        return self._continue(w, decision.multiply(program.constraints.num_rows))

    def _continue(self, w: Array, lam: Array) -> Outcome:
        """From the shortest w, which is as exact as float64 can hold it, to the one of least |w|_p.

        Margins this small leave the path few digits: the better of its end and its start counts.
        """
        outcome = self._measure(EXACT, w, lam, unit=True)
        if outcome.status is not Status.OPTIMAL and self.program.p != 2:
            self.max_iter = self.iterations + self.separability.iterations + MANY_STEPS
            other = self._improve(w, lam)
            if other is not None and other.gap < outcome.gap:
                outcome = other
        if outcome.status is Status.MAX_ITERATIONS:
            return replace(outcome, status=Status.CANNOT_CERTIFY)
        return outcome

    def _improve(self, w: Array, lam: Array) -> Outcome | None:
        scaled, target = self.scaled, 0.5 * self.tol
        if scaled.p > 2:
            # Entries of about one: |w|^20 then stays in range.
            largest = float(np.abs(w).max())
            scaled = _divide(self.program, 1 / largest)
            w = w / largest
            if not scaled.constraints.apply(w)[scaled.b == 1].min() > 0:
                return None
            path = self._follow(scaled, target, (w, lam))
            scale = 1 / largest
        else:
            path = self._follow(scaled, target, (None, np.where(scaled.equality, lam, lam + 1e-9)))
            scale = self.scale
        if path.bounds.w is None or path.bounds.lam is None:
            return None
        better = scale_to_lead(self.program, path.bounds.w / scale)
        if better is None:
            return None
        return self._measure(path.method, better, path.bounds.lam, unit=True)


def _divide(program: Program, scale: float) -> Program:
    cap = None if program.cap is None else float(program.cap * np.power(scale, program.p))
    return replace(program, constraints=program.constraints.divided(scale), cap=cap)


def _judge(bound: float) -> Status:
    """What a bound on the margin says, where no w was found."""
    return Status.MARGIN_BELOW if bound < TINY_MARGIN else Status.MAX_ITERATIONS
