r"""The regularization path of a fixed head: the best W of each norm.

    W(R) = argmin L(W)   s.t.   |W|_p <= R.

If each sequence has one optimal token and some W separates these, then

    W(R) / R  ->  W_mm / |W_mm|_p,    R -> inf,      W_mm the max-margin solution of these tokens,

wherever training itself would end. L is not convex, so a point can be proven to be a local
minimiser, by its residual and curvature, and not the global one: of many local searches the path
keeps the lowest. What is minimised is the logarithm of the gap between L and its floor, which is in
range and well scaled at every R; :mod:`mirrormargin.dynamics.paths` says how.

Once the gap is small no random starts are needed, for then all optimal tokens lead: a sequence with
another leader gives its optimal token at most half of the attention, and so the gap is at least

    (1/n) (loss(m - (m - m') / 2) - loss(m)),      m and m' the two highest scores of the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import (
    check_count,
    check_exponent,
    check_flag,
    check_function,
    check_number,
    check_seed,
    refuse_overflow,
)
from mirrormargin.attention.problem import AttentionProblem, check_problem
from mirrormargin.dynamics.paths.ball import Ball, BallPoint
from mirrormargin.dynamics.paths.block_losses import find_gap, find_rows
from mirrormargin.dynamics.paths.branches import (
    MOST_POINTS,
    Found,
    Progress,
    follow_branches,
    read_radii,
)
from mirrormargin.dynamics.paths.path_files import read_path, write_path
from mirrormargin.errors import (
    MarginBelowError,
    NotSeparableError,
    ProblemError,
    SolverError,
)
from mirrormargin.geometry import directional_divergence, lp_norm, signed_power
from mirrormargin.geometry.threads import ONE_THREAD_BELOW, limit_threads
from mirrormargin.svm import AttentionSVM, solve_attention_svm

__all__ = ["PathStatus", "RegularizationPath", "regularization_path"]

Array = NDArray[np.float64]

KIND = "regularization path"

SMALLEST_LOG = float(np.log(1e-300))  # of the gap at the last radius, unless radii are given


class PathStatus(str, Enum):
    """How a path ended; compares equal to its text."""

    CERTIFIED = "certified"
    NOT_CERTIFIED = "not certified"

    __str__ = str.__str__


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RegularizationPath:
    """The path, one entry for each radius; see :func:`regularization_path`.

    Attributes:
        problem: What was minimised.
        p: The exponent.
        tol: Largest residual of a certified point.
        radii: R, shape (num_radii,).
        W: The minimisers, (num_radii, d, d).
        log_loss_gap: ``log(L(W) - floor)``.
        loss: ``L(W)``.
        divergence: Directional Bregman divergence from the target's direction to that of W.
        margin: Least lead of an optimal token, over the norm of W; at most ``target.margin``.
        selection: The most attended tokens, (num_radii, n).
        residual: With G the gradient and ``x = W / |W|_p``, the dual norm of
            ``sign(x) |x|^(p-1) + G / |G|_q``; 0 where no direction along the sphere lowers L. Where
            W is inside the ball, or so flat a spot that L can change by rounding only, it is
            ``R |G|_q / (L - floor)``: the share of the gap that the ball could still remove.
        curvature: Least second derivative of the Lagrangian along the sphere in units of the
            sphere's own curvature: 1 for a convex loss, positive at a strict local minimiser.
        is_interior: Whether ``|W|_p < R``.
        is_certified: Whether the residual is at most ``tol`` and the curvature positive.
        start: From where the search began that won: "steepest", "target", "random", or the
            solution at the "previous" or "next" radius.
        target: The max-margin solution of the optimal tokens.
        status: Whether all points are certified.
    """

    problem: AttentionProblem
    p: float
    tol: float
    radii: Array
    W: Array
    log_loss_gap: Array
    loss: Array
    divergence: Array
    margin: Array
    selection: NDArray[np.intp]
    residual: Array
    curvature: Array
    is_interior: NDArray[np.bool_]
    is_certified: NDArray[np.bool_]
    start: tuple[str, ...]
    target: AttentionSVM
    status: PathStatus

    def __repr__(self) -> str:
        return (
            f"RegularizationPath(p={self.p:g}, status={str(self.status)!r},"
            f" num_radii={len(self.radii)}, largest residual={self.residual.max():.1e},"
            f" last log_loss_gap={self.log_loss_gap[-1]:.6g},"
            f" last divergence={self.divergence[-1]:.1e})"
        )

    def measure_residuals(self) -> Array:
        """The residuals, measured again from the problem's own gradient."""
        balls = _make_balls(self.problem, self.p, self.radii)
        points = [
            ball.look(W.reshape(-1) / ball.radius, bool(is_interior))
            for ball, W, is_interior in zip(balls, self.W, self.is_interior, strict=True)
        ]
        return np.array([point.residual for point in points])

    def check(self) -> None:
        """Raise unless every point is certified.

        Raises:
            SolverError: If a residual is above ``tol`` or a curvature is not positive.
        """
        if self.status is PathStatus.CERTIFIED:
            return
        wrong = np.flatnonzero(~self.is_certified)
        j = wrong[np.argmax(self.residual[wrong])]
        raise SolverError(
            f"{len(wrong)} of {len(self.radii)} points are not certified; the worst, at radius"
            f" {self.radii[j]:g}, has a residual of {self.residual[j]:.1e}, to be at most"
            f" {self.tol:.1e}, and a curvature of {self.curvature[j]:.1e}, to be positive: raise"
            " max_iter, num_starts or tol, or take more radii, each is the start of the next",
            self,
        )

    def save(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the path as a folder of plain files.

        Args:
            folder: Where; a path that is there already is replaced.
            about: What else ``run.json`` shall say, such as where the problem comes from.

        Raises:
            RunError: If it cannot be written.
        """
        write_path(folder, KIND, self, about)

    @classmethod
    def load(cls, folder: str | Path) -> RegularizationPath:
        """Read a path that :meth:`save` wrote.

        Raises:
            RunError: If there is none, or a damaged one.
        """
        return cls(**read_path(folder, KIND, cls, PathStatus))


def regularization_path(
    problem: AttentionProblem,
    p: float = 2.0,
    radii: ArrayLike | Any | None = None,
    *,
    num_radii: int = 40,
    num_starts: int = 3,
    seed: int = 0,
    tol: float = 1e-8,
    max_iter: int = 200,
    raise_on_failure: bool = True,
    progress: Progress | None = None,
) -> RegularizationPath:
    """Follow the minimisers of the loss over lp balls of growing radius.

    At each radius searches start from the minimisers at the radius before, from the target and
    from random points, at the first one also along the steepest descent from zero; the lowest is
    kept. Where another branch has become the lowest, it is followed back to smaller radii too.

    Args:
        problem: The attention problem; each sequence with one token of the highest score.
        p: Exponent of the norm, ``1 < p``; 1.05 to 20 is what is tested.
        radii: R, increasing. By default ``num_radii`` of them in geometric progression, from
            ``0.1 |W_mm|_p`` to where the loss is within 1e-300 of its floor; but there is no bound
            to what may be given.
        num_radii: Number of the default radii.
        num_starts: Random starts at each radius.
        seed: Of the random starts.
        tol: Largest residual of a certified point; rounding leaves about 1e-13.
        max_iter: Bound on the Newton steps of each search.
        raise_on_failure: Whether to raise when a point is not certified.
        progress: Called as ``progress(done, total)`` with numbers of radii.

    Raises:
        ProblemError: (a ValueError) If an argument is outside its range, or two tokens of a
            sequence share the highest score.
        NotSeparableError: If no W separates the optimal tokens; carries the proof.
        MarginBelowError: If neither such a W nor a proof was found.
        SolverError: If a point, or the target, could not be certified.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> path = regularization_path(synthetic.unit_sphere(seed=1), p=2.0, num_radii=10)
        >>> float(path.log_loss_gap[-1].round(2)), bool(path.divergence[-1] < 1e-5)
        (-691.78, True)
    """
    check_problem(problem)
    p = check_exponent(p, error=ProblemError)
    check_number("tol", tol, above=0.0, below=1.0)
    check_count("max_iter", max_iter)
    check_flag("raise_on_failure", raise_on_failure)
    check_count("num_starts", num_starts, least=0, most=MOST_POINTS)
    if progress is not None:
        check_function("progress", progress, "progress(done, total)")
    _check_unique(problem)
    target = _find_target(problem, p)
    if radii is None:
        count = check_count("num_radii", num_radii, most=MOST_POINTS)
        R = np.geomspace(0.1 / target.margin, _find_last_radius(problem, target), count)
    else:
        R = read_radii("radii", radii)
    rng = np.random.default_rng(check_seed(seed))
    landscape = _GapLandscape(problem, p, R, target.W, num_starts, rng, max_iter)
    small = min(problem.scores.size, problem.dim**2) <= ONE_THREAD_BELOW
    with limit_threads(1 if small else None), refuse_overflow(p):
        found = follow_branches(landscape, tol, progress)
        path = _record(problem, p, tol, landscape, found, target)
    if raise_on_failure:
        path.check()
    return path


def _check_unique(problem: AttentionProblem) -> None:
    best, second = np.sort(problem.scores, axis=1)[:, :-3:-1].T
    tied = np.flatnonzero(best == second)
    if tied.size:
        raise ProblemError(
            f"in sequence {tied[0]} two tokens share the highest score, {best[tied[0]]:g}, so that"
            " the path has no single target: change the head or remove one of the tokens"
        )


def _find_target(problem: AttentionProblem, p: float) -> AttentionSVM:
    try:
        return solve_attention_svm(problem.tokens, problem.queries, problem.optimal_tokens, p)
    except NotSeparableError as error:
        raise NotSeparableError(
            "no W separates the optimal tokens from the others, so the loss does not fall to its"
            " floor and the path has no target: choose another head, or fewer or wider tokens",
            error.solution,
        ) from error
    except MarginBelowError as error:
        raise MarginBelowError(
            "no W was found that separates the optimal tokens from the others, and its margin would"
            f" be below {error.bound:.1e} of the largest constraint, so the path has no target:"
            " choose another head, or fewer or wider tokens",
            error.solution,
        ) from error


def _find_last_radius(problem: AttentionProblem, target: AttentionSVM) -> float:
    """Where the gap in the target's direction, an upper bound, has fallen to 1e-300."""
    gap, a = find_gap(problem), problem.logits(target.W * target.margin)
    low, high = 0.0, 1.0 / target.margin
    while gap.log_value(high * a) > SMALLEST_LOG:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        if gap.log_value(middle * a) > SMALLEST_LOG:
            low = middle
        else:
            high = middle
    return high


def _record(
    problem: AttentionProblem,
    p: float,
    tol: float,
    landscape: _GapLandscape,
    found: list[Found[BallPoint]],
    target: AttentionSVM,
) -> RegularizationPath:
    d, R = problem.dim, landscape.radii
    W = [radius * each.point.x.reshape(d, d) for radius, each in zip(R, found, strict=True)]
    lead = np.arange(problem.num_tokens) == problem.optimal_tokens[:, None]
    leads = [a[lead][:, None] - a[~lead].reshape(len(a), -1) for a in map(problem.logits, W)]
    curvature = [
        ball.find_curvature(each.point) for ball, each in zip(landscape.balls, found, strict=True)
    ]
    residual = np.array([each.point.residual for each in found])
    is_certified = (residual <= tol) & (np.array(curvature) > 0)
    return RegularizationPath(
        problem=problem,
        p=p,
        tol=tol,
        radii=R,
        W=np.array(W),
        log_loss_gap=np.array([each.point.log_value for each in found]),
        loss=np.array([problem.loss(matrix) for matrix in W]),
        divergence=np.array([float(directional_divergence(target.W, w, p)) for w in W]),
        margin=np.array([a.min() / lp_norm(w, p) for a, w in zip(leads, W, strict=True)]),
        selection=np.array([problem.selected_tokens(matrix) for matrix in W]),
        residual=residual,
        curvature=np.array(curvature),
        is_interior=np.array([each.point.is_interior for each in found]),
        is_certified=is_certified,
        start=tuple(each.start for each in found),
        target=target,
        status=PathStatus.CERTIFIED if is_certified.all() else PathStatus.NOT_CERTIFIED,
    )


class _GapLandscape:
    """The gap on the balls of several radii.

    Args:
        problem: The attention problem.
        p: Exponent of the norm.
        radii: R, increasing.
        target: W_mm, where to start.
        num_starts: Random starts at each radius.
        rng: Draws them.
        max_iter: Bound on the Newton steps of a search.
    """

    def __init__(
        self,
        problem: AttentionProblem,
        p: float,
        radii: Array,
        target: Array,
        num_starts: int,
        rng: np.random.Generator,
        max_iter: int,
    ) -> None:
        self.radii, self._p, self._target = radii, p, target.reshape(-1)
        self._num_starts, self._rng, self._max_iter = num_starts, rng, max_iter
        self.balls = _make_balls(problem, p, radii)
        descent = -problem.scaled_gradient(np.zeros_like(target))[0]
        self._steepest = signed_power(descent.reshape(-1), 1 / (p - 1))
        best, second = np.sort(problem.scores, axis=1)[:, :-3:-1].T
        log_rise = problem.margin_loss.log_rise(best, np.log(0.5 * (best - second)))
        self._settled_below = float(log_rise.min() - np.log(problem.num_sequences))

    def list_starts(self, j: int, lowest: float) -> list[tuple[str, Array]]:
        """The target; first of all the steepest descent from zero; random ones until settled."""
        starts = [("target", self._target)]
        if j == 0:
            starts.append(("steepest", self._steepest))
        if lowest > self._settled_below:
            for _ in range(self._num_starts):
                u = self._rng.standard_normal(self._target.size)
                starts.append(("random", signed_power(u, 1 / (self._p - 1))))
        return starts

    def search(self, j: int, x: Array, tol: float, stay_inside: bool = False) -> BallPoint:
        ball = self.balls[j]
        start = x * (ball.radius / (1.0 if stay_inside else lp_norm(x, self._p)))
        return ball.minimize(start, tol, self._max_iter)

    def rescale(self, j: int, x: Array) -> Array:
        return x * (self.radii[j - 1] / self.radii[j])


def _make_balls(problem: AttentionProblem, p: float, radii: Array) -> list[Ball]:
    """The gap on the ball of each radius."""
    gap, A = find_gap(problem), find_rows(problem)
    return [Ball(gap, A, p, float(R)) for R in radii]
