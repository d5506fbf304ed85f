r"""Training for ever: mirror descent with a small constant rate, followed in the logarithm of time.

    du/dt = -grad L(W),    W = sign(u) |u|^(1/(p-1)),    k = t / lr

is what ``u <- u - lr grad L(W)`` tends to for small lr. W grows only like log k, so how it nears
its max-margin direction shows over hundreds of decades of k, where no loop arrives. In the time
tau = log t the flow is slow and stiff, and an implicit method follows it in some hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import check_exponent, check_finite, check_number, read_array
from mirrormargin.attention import AttentionProblem
from mirrormargin.dynamics.flow_course import FlowCourse
from mirrormargin.dynamics.flow_field import FlowField
from mirrormargin.dynamics.flow_record import FlowRecord, FlowStatus
from mirrormargin.dynamics.metrics import find_divergence, measure
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.threads import limit_threads
from mirrormargin.svm import Status, is_locally_optimal, solve_attention_svm

__all__ = ["FlowRecord", "FlowStatus", "mirror_flow"]

Array = NDArray[np.float64]

NUM_POINTS = 300
MOST_DECADES = 1e6  # beyond, the rounding of tau is felt
TOLS = 1e-9, 1e-2
TARGET_TOLS = 1e-13, 1e-11, 1e-9, 1e-7  # the first at which the target is certified
MEASURES = "norm", "log_loss_gap", "logit_gap", "log_unattended", "selection"
ONE_THREAD_BELOW = 400  # unknowns of a linear system: threads of BLAS then wait for each other


def mirror_flow(
    problem: AttentionProblem,
    p: float,
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
    p = check_exponent(p, error=ProblemError)
    d = problem.dim
    decades = check_number("decades", decades, above=0.0, most=MOST_DECADES)
    lr = check_number("lr", lr, above=0.0)
    tol = check_number("tol", tol, least=TOLS[0], most=TOLS[1])
    w0 = np.zeros((d, d)) if init is None else _read_matrix("init", init, d)
    given = None if target is None else _read_matrix("target", target, d)
    log10_k = _read_points(record, decades)

    def report(tau: float) -> None:
        if progress is not None:
            progress(float(np.clip((tau - np.log(lr)) / np.log(10), 0.0, decades)), decades)

    size = 3 * min(problem.num_sequences * problem.num_tokens, d * d)
    with limit_threads(1 if size <= ONE_THREAD_BELOW else None):
        course = FlowCourse(FlowField(problem, p), w0.reshape(-1), tol)
        # The end is a point of its own, for the record may stop before.
        stops = np.append(log10_k, decades) * np.log(10) + np.log(lr)
        path = course.follow(stops, report)[: len(log10_k)].reshape(-1, d, d)
    W, status = course.w.reshape(d, d), course.status
    if given is None:
        selection = problem.selected_tokens(W)
        given, found = _find_target(problem, selection, p)
        status = found if status is FlowStatus.FOLLOWED else status
    else:
        selection = problem.selected_tokens(given)
    measures = measure([problem], path[None], p)
    return FlowRecord(
        log10_k=log10_k[: len(path)],
        divergence=find_divergence(given, path, p),
        **{name: measures[name][0] for name in MEASURES},
        path=path,
        W=W,
        target=given,
        target_selection=selection,
        p=p,
        lr=lr,
        tol=tol,
        num_steps=course.num_steps,
        num_rejected=course.num_rejected,
        status=status,
    )


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
