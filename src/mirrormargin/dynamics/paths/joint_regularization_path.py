r"""The joint regularization path: the best head and W of each pair of norms.

    (v(r), W(R)) = argmin L(v, W)   s.t.   |v|_p <= r,   |W|_p <= R.

With alpha the selection whose decoder SVM has the largest margin, as r and R grow

    v(r) / r  ->  v_mm / |v_mm|_p,      W(R) / R  ->  W_mm / |W_mm|_p,

where W_mm gives a lead of 1 to the selected tokens of those sequences that support v_mm, and in the
others, of margin m_i > 1, a lead of 0 over the tokens of margin 1 or less. That the latter need no
more depends on how r and R grow, for in the gradient of W a sequence has a weight of about

    exp(-r / |v_mm| - R lead_i)   if it supports v_mm,     exp(-r m_i / |v_mm| - R lead_i)   if not.

So it must be that ``R / |W_mm| < (m_i - 1) r / |v_mm|``. Were R to grow faster than any multiple of
r, W would go to the solution with a lead of 1 everywhere. By default therefore

    R / |W_mm|_p = kappa r / |v_mm|_p,      kappa = min(1, (m - 1) / 2),

with m the least margin of a sequence that does not support v_mm, and kappa = 1 if all do; but never
less than 0.001, below which no loss tells a sequence that supports v_mm from one that does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from mirrormargin.attention.losses import LOSSES
from mirrormargin.attention.problem import AttentionProblem, check_problem
from mirrormargin.dynamics.paths.branches import (
    MOST_POINTS,
    Found,
    Progress,
    follow_branches,
    read_pairs,
)
from mirrormargin.dynamics.paths.joint_candidates import Candidate, find_candidates, solve_candidate
from mirrormargin.dynamics.paths.joint_landscape import JointBlocks, JointLandscape, JointPoint
from mirrormargin.dynamics.paths.path_files import read_path, write_path
from mirrormargin.dynamics.paths.regularization_path import PathStatus
from mirrormargin.errors import ProblemError, SolverError
from mirrormargin.geometry import directional_divergence
from mirrormargin.geometry.threads import ONE_THREAD_BELOW, limit_threads
from mirrormargin.svm import AttentionSVM, DecoderSVM

__all__ = ["JointRegularizationPath", "joint_regularization_path"]

Array = NDArray[np.float64]

KIND = "joint regularization path"

LAST_SIZE = 700.0  # r / |v_mm| of the last pair: a loss of 1e-304
LAST_LEAD = 200.0  # and R / |W_mm|, if that asks for more
NUM_HEADS = 32  # random ones whose selections are tried, if there are many
MAX_ROUNDS = 3  # paths, each for the selection where the one before it ended


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class JointRegularizationPath:
    """The path, one entry for each pair of radii; see :func:`joint_regularization_path`.

    Attributes:
        problem: What was minimised; its own head plays no part in the loss.
        p: The exponent.
        tol: Largest residual of a certified point.
        head_radii: r, shape (num_radii,).
        radii: R, shape (num_radii,).
        v: The heads, (num_radii, d).
        W: The matrices, (num_radii, d, d).
        log_loss: ``log L(v, W)``.
        head_divergence: Directional Bregman divergence from ``decoder.v`` to v.
        divergence: The same from ``target.W`` to W.
        selection: The most attended tokens, (num_radii, n).
        head_residual: Of v given W, as in :class:`RegularizationPath`.
        residual: Of W given v.
        curvature: Of the loss of W given v. Given W, the loss is convex in v.
        head_is_interior: Whether ``|v|_p < r``.
        is_interior: Whether ``|W|_p < R``.
        is_certified: Whether both residuals are at most ``tol`` and the curvature is positive: then
            each of v and W is a local minimiser given the other.
        start: From where the search began that won: "zero", "head", "selection", "random", or the
            solution at the "previous" or "next" radii.
        decoder: The max-margin head of the best selection that is known.
        target: The max-margin W of that selection, ``target.selection``. In a sequence that does
            not support the decoder the lead is to be 0 instead of 1, and tokens of a margin above
            1 are free: in the target's own constraints they equal the selected token.
        status: Whether all points are certified.
    """

    problem: AttentionProblem
    p: float
    tol: float
    head_radii: Array
    radii: Array
    v: Array
    W: Array
    log_loss: Array
    head_divergence: Array
    divergence: Array
    selection: NDArray[np.intp]
    head_residual: Array
    residual: Array
    curvature: Array
    head_is_interior: NDArray[np.bool_]
    is_interior: NDArray[np.bool_]
    is_certified: NDArray[np.bool_]
    start: tuple[str, ...]
    decoder: DecoderSVM
    target: AttentionSVM
    status: PathStatus

    def __repr__(self) -> str:
        return (
            f"JointRegularizationPath(p={self.p:g}, status={str(self.status)!r},"
            f" num_radii={len(self.radii)},"
            f" largest residuals={self.head_residual.max():.1e} and {self.residual.max():.1e},"
            f" last log_loss={self.log_loss[-1]:.6g},"
            f" last divergences={self.head_divergence[-1]:.1e} and {self.divergence[-1]:.1e})"
        )

    def measure_residuals(self) -> Array:
        """Residuals of v and of W, (num_radii, 2), measured again from the problem's arrays."""
        blocks = JointBlocks(self.problem, self.p)
        residuals = []
        for j, (r, R) in enumerate(zip(self.head_radii, self.radii, strict=True)):
            w = self.W[j].reshape(-1)
            head = blocks.make_head_ball(w, float(r)).look(
                self.v[j] / r, bool(self.head_is_interior[j])
            )
            matrix = blocks.make_matrix_ball(self.v[j], float(R)).look(
                w / R, bool(self.is_interior[j])
            )
            residuals.append((head.residual, matrix.residual))
        return np.array(residuals)

    def check(self) -> None:
        """Raise unless every point is certified.

        Raises:
            SolverError: If a residual is above ``tol`` or a curvature is not positive.
        """
        if self.status is PathStatus.CERTIFIED:
            return
        wrong = np.flatnonzero(~self.is_certified)
        j = wrong[np.argmax(np.maximum(self.head_residual, self.residual)[wrong])]
        raise SolverError(
            f"{len(wrong)} of {len(self.radii)} points are not certified; the worst, at radii"
            f" {self.head_radii[j]:g} and {self.radii[j]:g}, has residuals of"
            f" {self.head_residual[j]:.1e} of v and {self.residual[j]:.1e} of W, to be at most"
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
    def load(cls, folder: str | Path) -> JointRegularizationPath:
        """Read a path that :meth:`save` wrote.

        Raises:
            RunError: If there is none, or a damaged one.
        """
        return cls(**read_path(folder, KIND, cls, PathStatus))


def joint_regularization_path(
    problem: AttentionProblem,
    p: float = 2.0,
    radii: ArrayLike | Any | None = None,
    head_radii: ArrayLike | Any | None = None,
    *,
    num_radii: int = 40,
    num_starts: int = 2,
    seed: int = 0,
    tol: float = 1e-8,
    max_iter: int = 200,
    raise_on_failure: bool = True,
    progress: Progress | None = None,
) -> JointRegularizationPath:
    """Follow the minimisers of the loss of head and W over pairs of growing lp balls.

    At each pair of radii searches start from the minimisers before, from the max-margin pairs of
    the best selections that are known, and from random heads; at the first one also from zero and
    from the problem's head. The lowest is kept. Selections are all there are up to 64, otherwise
    those of the problem's head and of random ones, improved.

    Args:
        problem: The attention problem, with the logistic or the exponential loss.
        p: Exponent of both norms, ``1 < p``.
        radii: R, increasing, given together with ``head_radii``. By default ``num_radii`` pairs in
            geometric progression, R the multiple of r that the module's text names, from a tenth of
            the max-margin norms to where the loss is below 1e-300 and R at least 200 ``|W_mm|``.
        head_radii: r, increasing, one for each R.
        num_radii: Number of the default pairs.
        num_starts: Random starts at each pair.
        seed: Of the random starts.
        tol: Largest residual of a certified point.
        max_iter: Bound on the Newton steps of each search.
        raise_on_failure: Whether to raise when a point is not certified.
        progress: Called as ``progress(done, total)`` with numbers of pairs; starts again, at most
            twice, when the path has found a better selection than any that was known.

    Raises:
        ProblemError: (a ValueError) If an argument is outside its range.
        NotSeparableError: If it is proved of every selection looked at that no head classifies it
            or no W selects it.
        SolverError: If a point could not be certified, or none of the selections.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> path = joint_regularization_path(synthetic.joint_toy(), p=3.0, num_radii=10)
        >>> path.selection[-1], bool(path.divergence[-1] < 1e-4)
        (array([0, 0]), True)
    """
    check_problem(problem)
    p = check_exponent(p, error=ProblemError)
    check_number("tol", tol, above=0.0, below=1.0)
    check_count("max_iter", max_iter)
    check_flag("raise_on_failure", raise_on_failure)
    check_count("num_starts", num_starts, least=0, most=MOST_POINTS)
    count = check_count("num_radii", num_radii, most=MOST_POINTS)
    if progress is not None:
        check_function("progress", progress, "progress(done, total)")
    rng = np.random.default_rng(check_seed(seed))
    allowed = [name for name, loss in LOSSES.items() if loss.vanishes]
    if problem.loss_name not in allowed:
        raise ProblemError(
            f"the loss {problem.loss_name!r} does not vanish at large margins, so it has no joint"
            f" path: choose one of {', '.join(allowed)}"
        )
    pairs = read_pairs(radii, head_radii)
    small = min(problem.scores.size, problem.dim**2) <= ONE_THREAD_BELOW
    with limit_threads(1 if small else None), refuse_overflow(p):
        candidates = find_candidates(problem, p, NUM_HEADS, rng)
        rounds = 0
        while True:
            r, R = _choose_radii(candidates[0], count) if pairs is None else pairs
            landscape = JointLandscape(problem, p, r, R, candidates, num_starts, rng, max_iter)
            found = follow_branches(landscape, tol, progress)
            last, rounds = _find_last(problem, p, landscape, found), rounds + 1
            if last is None or last.rank <= candidates[0].rank:
                break
            candidates.insert(0, last)  # better than any that was known
            if rounds == MAX_ROUNDS:
                break
        path = _record(problem, p, tol, landscape, found, candidates[0])
    if raise_on_failure:
        path.check()
    return path


def _choose_radii(best: Candidate, count: int) -> tuple[Array, Array]:
    """From a tenth of the max-margin norms to a loss of 1e-304 and a lead of 200."""
    sizes = np.geomspace(0.1, max(LAST_SIZE, LAST_LEAD / best.kappa), count)
    return sizes / best.decoder.margin, best.kappa * sizes / best.target.margin


def _find_last(
    problem: AttentionProblem, p: float, landscape: JointLandscape, found: list[Found[JointPoint]]
) -> Candidate | None:
    """The max-margin pair of the selection at the last radii."""
    W = landscape.matrix_radii[-1] * found[-1].point.matrix.x.reshape(problem.dim, problem.dim)
    return solve_candidate(problem, problem.selected_tokens(W), p)


def _record(
    problem: AttentionProblem,
    p: float,
    tol: float,
    landscape: JointLandscape,
    found: list[Found[JointPoint]],
    best: Candidate,
) -> JointRegularizationPath:
    d, pairs = problem.dim, [each.point for each in found]
    v = landscape.radii[:, None] * np.array([pair.head.x for pair in pairs])
    W = landscape.matrix_radii[:, None, None] * np.array(
        [pair.matrix.x.reshape(d, d) for pair in pairs]
    )
    selection = np.array([problem.selected_tokens(matrix) for matrix in W])
    curvature = np.array([pair.matrix_ball.find_curvature(pair.matrix) for pair in pairs])
    residuals = np.array([[pair.head.residual, pair.matrix.residual] for pair in pairs])
    is_certified = (residuals <= tol).all(axis=1) & (curvature > 0)
    return JointRegularizationPath(
        problem=problem,
        p=p,
        tol=tol,
        head_radii=landscape.radii,
        radii=landscape.matrix_radii,
        v=v,
        W=W,
        log_loss=np.array([pair.log_value for pair in pairs]),
        head_divergence=np.array([float(directional_divergence(best.decoder.v, u, p)) for u in v]),
        divergence=np.array([float(directional_divergence(best.target.W, u, p)) for u in W]),
        selection=selection,
        head_residual=residuals[:, 0],
        residual=residuals[:, 1],
        curvature=curvature,
        head_is_interior=np.array([pair.head.is_interior for pair in pairs]),
        is_interior=np.array([pair.matrix.is_interior for pair in pairs]),
        is_certified=is_certified,
        start=tuple(each.start for each in found),
        decoder=best.decoder,
        target=best.target,
        status=PathStatus.CERTIFIED if is_certified.all() else PathStatus.NOT_CERTIFIED,
    )
