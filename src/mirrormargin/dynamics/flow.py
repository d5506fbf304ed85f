r"""The limit of training: mirror descent with a small constant rate, in the logarithm of time.

    du/dt = -grad L(W),    W = sign(u) |u|^(1/(p-1)),    k = t / lr

is what ``u <- u - lr grad L(W)`` tends to for small lr. W grows only like log k, so how it nears
its max-margin direction shows over hundreds of decades of k, which no loop can reach. In the time
tau = log t the flow is slow and stiff, and an implicit method follows it in some hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import (
    check_exponent,
    check_finite,
    check_function,
    check_number,
    read_array,
    refuse_overflow,
)
from mirrormargin.attention.problem import AttentionProblem, check_problem
from mirrormargin.dynamics.flow_field import FlowField
from mirrormargin.dynamics.flow_integrator import Radau
from mirrormargin.dynamics.flow_record import FlowRecord, FlowStatus
from mirrormargin.dynamics.metrics import measure
from mirrormargin.errors import ProblemError
from mirrormargin.geometry import lp_norm
from mirrormargin.geometry.threads import ONE_THREAD_BELOW, limit_threads
from mirrormargin.geometry.vector_batches import divergence_each
from mirrormargin.svm import Status, is_locally_optimal, solve_attention_svm

__all__ = ["mirror_flow"]

Array = NDArray[np.float64]

NUM_POINTS = 300
MOST_DECADES = 1e6  # beyond, the rounding of tau is felt
TOLS = 1e-9, 1e-2
TARGET_TOLS = 1e-13, 1e-11, 1e-9, 1e-7  # the first at which the target is certified
MEASURES = "norm", "log_loss_gap", "logit_gap", "log_unattended", "selection"
START_SHARE = 0.02  # of tol
STILL = 0.3  # logits


def mirror_flow(
    problem: AttentionProblem,
    p: float = 2.0,
    decades: float = 100.0,
    *,
    init: ArrayLike | Any | None = None,
    lr: float = 1.0,
    target: ArrayLike | Any | None = None,
    record: float | ArrayLike | None = None,
    tol: float = 1e-5,
    progress: Callable[[float, float], object] | None = None,
) -> FlowRecord:
    """Follow mirror descent with a small constant rate to ``k = 10^decades`` steps.

    At the default ``tol`` the divergence has an error of about 1e-6 of itself, and less later on,
    when early errors are forgotten. For p > 2 an entry of W that just changes its sign is known
    less well: it does so almost at once, and the moment has an error of ``tol``.

    Args:
        problem: What is trained.
        p: Exponent of the potential, ``1 < p``; 1.1 to 20 is what the flow is tested for.
        decades: How far to go, at most a million.
        init: W at the start, shape (d, d); None for zeros.
        lr: The learning rate, which only names the steps: ``k = t / lr``.
        target: The matrix whose direction D is measured from, (d, d); None for the max-margin
            solution of the tokens that are selected in the end.
        record: Points in each decade, evenly spaced from k = 1 on; or log10 of the steps to
            record, increasing and at most ``decades``; None for 300 points in all.
        tol: Largest error of one step, in logits; 1e-9 to 0.01.
        progress: Called after each step of the integrator, ``progress(done, decades)``.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> mirror_flow(synthetic.unit_sphere(seed=1), p=2.0, decades=300).status
        <FlowStatus.FOLLOWED: 'followed to the end'>
    """
    d = check_problem(problem).dim
    p = check_exponent(p, error=ProblemError)
    decades = check_number("decades", decades, above=0.0, most=MOST_DECADES)
    lr = check_number("lr", lr, above=0.0)
    tol = check_number("tol", tol, least=TOLS[0], most=TOLS[1])
    w0 = np.zeros((d, d)) if init is None else _read_matrix("init", init, d)
    given = None if target is None else _read_matrix("target", target, d)
    problem.logits(w0)  # refuses a start so large that they overflow
    log10_k = _read_points(record, decades)
    if progress is not None:
        check_function("progress", progress, "progress(done, decades)")

    def report(tau: float) -> None:
        if progress is not None:
            progress(float(np.clip((tau - np.log(lr)) / np.log(10), 0.0, decades)), decades)

    size = 3 * min(problem.num_sequences * problem.num_tokens, d * d)
    with limit_threads(1 if size <= ONE_THREAD_BELOW else None), refuse_overflow(p):
        trajectory = _Trajectory(FlowField(problem, p), w0.reshape(-1), tol)
        # The end is a point of its own, for the record may stop before.
        stops = np.append(log10_k, decades) * np.log(10) + np.log(lr)
        path = trajectory.follow(stops, report)[: len(log10_k)].reshape(-1, d, d)
    W, status = trajectory.w.reshape(d, d), trajectory.status
    if given is None:
        selection = problem.selected_tokens(W)
        given, found = _find_target(problem, selection, p)
        status = found if status is FlowStatus.FOLLOWED else status
    else:
        selection = problem.selected_tokens(given)
    measures = measure([problem], path[None], p)
    return FlowRecord(
        log10_k=log10_k[: len(path)],
        divergence=divergence_each(given, path, p, axes=2),
        **{name: measures[name][0] for name in MEASURES},
        path=path,
        W=W,
        target=given,
        target_selection=selection,
        p=p,
        lr=lr,
        tol=tol,
        num_steps=trajectory.num_steps,
        num_rejected=trajectory.num_rejected,
        status=status,
    )


class _Trajectory:
    """One flow from its initial W to its end, followed once.

    At first nothing has moved and ``u = u_0 - t grad L(W_0)``; from the time when the gradient has
    changed, an implicit method takes over. For p > 2 from W = 0 that is early: w grows like
    t^(1/(p-1)).

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


def _find_target(
    problem: AttentionProblem, selection: NDArray[np.intp], p: float
) -> tuple[Array, FlowStatus]:
    """The max-margin solution as exactly as it can be certified: D must not stop at its error."""
    for tol in TARGET_TOLS:
        try:
            solution = solve_attention_svm(
                problem.tokens,
                problem.queries,
                selection,
                p,
                tol,
                compiled=False,
                raise_on_failure=False,
            )
        except ProblemError:  # a query of zeros, or powers that leave floating point
            break
        if solution.status is Status.OPTIMAL:
            settled = is_locally_optimal(problem, selection, p, solution=solution)
            return solution.W, FlowStatus.FOLLOWED if settled else FlowStatus.UNSETTLED
        if solution.status is Status.INFEASIBLE:
            return solution.W, FlowStatus.NOT_SEPARABLE
        if solution.status is Status.MARGIN_BELOW:  # at every tolerance
            break
    return np.full((problem.dim, problem.dim), np.nan), FlowStatus.NO_TARGET


def _read_points(record: Any, decades: float) -> Array:
    if record is None:
        return np.linspace(0.0, decades, NUM_POINTS + 1)
    points = read_array("record", record)
    if points.ndim == 0:
        per_decade = check_number("record", points.item(), above=0.0, most=1e6)
        return np.linspace(0.0, decades, max(round(per_decade * decades), 1) + 1)
    if points.ndim != 1 or points.size == 0:
        raise ProblemError(
            f"record has shape {points.shape}: give a number of points for each decade, or a"
            " sequence of log10 of steps"
        )
    check_finite("record", points)
    if (np.diff(points) <= 0).any() or points[-1] > decades:
        raise ProblemError(
            f"record must increase and end by decades = {decades:g}, but holds"
            f" {np.array2string(points, threshold=6)}: sort it, drop repeats, or raise decades"
        )
    return points


def _read_matrix(name: str, value: Any, d: int) -> Array:
    return read_array(name, value, (d, d), "a square matrix of the tokens' width", finite=True)
