r"""The joint regularization path: the best head and W of each pair of norms.

    (v(r), W(R)) = argmin L(v, W)   s.t.   |v|_p <= r,   |W|_p <= R.

With alpha the selection whose decoder SVM has the largest margin, as r and R grow

    v(r) / r  ->  v_mm / |v_mm|_p,      W(R) / R  ->  W_mm / |W_mm|_p,

where W_mm gives a lead of 1 to the selected tokens of those sequences that support v_mm, and a lead
of 0 in the others, of margin m_i > 1. How r and R grow decides about those. A sequence weighs in
the gradient of W like

    exp(-r / |v_mm| - R lead_i)   if it supports v_mm,     exp(-r m_i / |v_mm| - R lead_i)   if not,

and so it is without weight as long as ``R / |W_mm| < (m_i - 1) r / |v_mm|``. Were R to grow faster
than any multiple of r, W would go to the solution with a lead of 1 everywhere. By default therefore

    R / |W_mm|_p = kappa r / |v_mm|_p,      kappa = min(1, (m - 1) / 2), but at least 1/20,

m the least margin of a sequence that does not support v_mm, and kappa = 1 if all do.

The gradient of W is smaller than that of v by a factor of about exp(-R / |W_mm|), so the two blocks
are minimised in turns, each in its own scale, until neither changes: in the end the features that v
sees depend on W by as little, and one turn is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import attend
from mirrormargin.attention.synthetic.arguments import check_integer, check_seed
from mirrormargin.dynamics.anderson import AndersonMixing
from mirrormargin.dynamics.ball import Ball, BallPoint
from mirrormargin.dynamics.branches import Found, Progress, follow_branches
from mirrormargin.dynamics.joint_blocks import LossByMargins, RiseByLogits
from mirrormargin.dynamics.joint_candidates import Candidate, find_candidates, solve_candidate
from mirrormargin.dynamics.log_losses import LOG_LOSSES
from mirrormargin.dynamics.regularization_path import PathStatus, find_rows, read_radii
from mirrormargin.errors import ProblemError, SolverError
from mirrormargin.geometry import directional_divergence
from mirrormargin.svm import AttentionSVM, DecoderSVM
from mirrormargin.svm.arguments import check_max_iter, check_p, check_tol
from mirrormargin.svm.interior.program import lp_norm, signed_power
from mirrormargin.svm.interior.threads import limit_threads

__all__ = ["JointRegularizationPath", "joint_regularization_path"]

Array = NDArray[np.float64]

SMALLEST_LOG = float(np.log(1e-304))  # of the loss at the last radii, unless they are given
SETTLED = 20.0  # r / |v_mm| from which on no better selection is looked for
LAST_LEAD = 200.0
NUM_HEADS = 16  # random ones whose selections are tried, if there are many
MAX_STARTS = 3  # selections
MAX_ROUNDS = 3  # to find the best selection
MAX_TURNS = 200
PATIENCE = 10  # turns without progress
ONE_THREAD_BELOW = 400  # rows or unknowns: threads of BLAS then wait for each other


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
        is_certified: Whether both residuals are at most ``tol`` and the curvature is positive.
        start: From where the search began that won: "zero", "head", "selection", "random", or the
            solution at the "previous" or "next" radii.
        decoder: The max-margin head of the best selection that is known.
        target: The max-margin W of that selection, relaxed where a sequence does not support the
            decoder; ``target.selection`` is the selection.
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
            geometric progression from a tenth of the max-margin norms to where the loss is 1e-300,
            R a multiple of r as in the module's text.
        head_radii: r, increasing, one for each R.
        num_radii: Number of the default pairs.
        num_starts: Random starts at each pair.
        seed: Of the random starts.
        tol: Largest residual of a certified point.
        max_iter: Bound on the Newton steps of each search.
        raise_on_failure: Whether to raise when a point is not certified.
        progress: Called as ``progress(done, total)`` with numbers of pairs.

    Raises:
        ProblemError: (a ValueError) If an argument is outside its range.
        NotSeparableError: If no selection was found that a head classifies and a W selects.
        SolverError: If a point could not be certified.

    Example:
        >>> from mirrormargin.attention import synthetic
        >>> path = joint_regularization_path(synthetic.joint_toy(), p=2.0)
        >>> path.selection[-1], path.log_loss[-1] < -690
        (array([1, 0]), True)
    """
    p = check_p(p)
    check_tol(tol)
    check_max_iter(max_iter)
    check_integer("num_starts", num_starts, least=0)
    rng = np.random.default_rng(check_seed(seed))
    if problem.loss_name not in LOG_LOSSES:
        raise ProblemError(
            f"the loss {problem.loss_name!r} does not vanish at large margins, so it has no joint"
            f" path: choose one of {', '.join(LOG_LOSSES)}"
        )
    pair = _read_pair(radii, head_radii)
    count = check_integer("num_radii", num_radii, least=1)
    small = min(problem.scores.size, problem.dim**2) <= ONE_THREAD_BELOW
    with limit_threads(1 if small else None):
        candidates = find_candidates(problem, p, NUM_HEADS, rng)
        for _ in range(MAX_ROUNDS):
            r, R = _choose_radii(candidates[0], count) if pair is None else pair
            landscape = _Landscape(problem, p, r, R, candidates, rng, (num_starts, max_iter))
            found = follow_branches(landscape, tol, progress)
            last = landscape.find_last_candidate(found[-1].point)
            if last is None or last.rank <= candidates[0].rank:
                break
            candidates.insert(0, last)
            if pair is not None:
                break
        path = _record(problem, p, tol, landscape, found, candidates[0])
    if raise_on_failure:
        path.check()
    return path


@dataclass(frozen=True, eq=False)
class _Pair:
    """A pair (v, W), in units of the radii, each block as a point of its ball."""

    x: Array
    log_value: float
    head: BallPoint
    matrix: BallPoint
    ball: Ball
    next_v: Array

    @property
    def residual(self) -> float:
        return max(self.head.residual, self.matrix.residual)


class _Landscape:
    """The loss on each pair of balls, and where to start."""

    def __init__(
        self,
        problem: AttentionProblem,
        p: float,
        head_radii: Array,
        radii: Array,
        candidates: list[Candidate],
        rng: np.random.Generator,
        search: tuple[int, int],
    ) -> None:
        self.radii, self.matrix_radii = head_radii, radii
        self._problem, self._p, self._candidates, self._rng = problem, p, candidates, rng
        self._num_starts, self._max_iter = search
        self._loss = LOG_LOSSES[problem.loss_name]
        self._A = find_rows(problem)
        self._signed = problem.labels[:, None, None] * problem.tokens

    def list_starts(self, j: int, lowest: float) -> list[tuple[str, Array]]:
        best = self._candidates[0]
        sizes = self.radii[j] * best.decoder.margin, self.matrix_radii[j] * best.target.margin
        is_open = j == 0 or max(sizes) < SETTLED
        num_selections = MAX_STARTS if is_open else int(min(sizes) < SETTLED)
        chosen = self._candidates[:num_selections]
        starts = [("selection", np.append(c.decoder.v, c.target.w)) for c in chosen]
        if j == 0:
            mean = self._signed.mean(axis=(0, 1))
            starts.append(("zero", self._begin(self._to_primal(mean))))
            starts.append(("head", self._begin(self._problem.head)))
        if is_open:
            for _ in range(self._num_starts):
                u = self._rng.standard_normal(self._problem.dim)
                starts.append(("random", self._begin(self._to_primal(u))))
        return starts

    def _to_primal(self, u: Array) -> Array:
        return signed_power(u, 1 / (self._p - 1))

    def _begin(self, v: Array) -> Array:
        """A head and the direction in which W leaves zero under it."""
        scores = self._signed @ v
        zero = np.zeros(scores.shape)
        g = RiseByLogits(scores, self._loss).derive(zero).mantissa
        return np.append(v, self._to_primal(-np.einsum("it,itk->k", g, self._A)))

    def search(self, j: int, x: Array, tol: float, stay_inside: bool = False) -> _Pair:
        d, mixing = self._problem.dim, AndersonMixing()
        v, w = x[:d], x[d:]
        if not stay_inside:
            v, w = v / lp_norm(v, self._p), w / lp_norm(w, self._p)
        best = self._turn(j, v, w, tol)
        plain, idle = best.next_v, 0
        v = mixing.mix(best.head.x, plain)
        for _ in range(MAX_TURNS):
            if best.residual <= tol or idle == PATIENCE:
                break
            pair = self._turn(j, v, best.matrix.x, tol)
            idle = 0 if pair.residual < best.residual else idle + 1
            if pair.log_value > best.log_value + pair.head.noise and v is not plain:
                mixing.forget()
                v = plain
            else:
                best, plain = pair, pair.next_v
                v = mixing.mix(pair.head.x, plain)
        return best

    def _turn(self, j: int, v: Array, w: Array, tol: float) -> _Pair:
        """Minimise over W given v, then over v given that W."""
        r, R = self.radii[j], self.matrix_radii[j]
        norm = lp_norm(v, self._p)
        is_interior = bool(norm < 1 - 1e-9)
        v = v if is_interior else v / norm
        ball = Ball(RiseByLogits(self._signed @ (r * v), self._loss), self._A, self._p, R)
        matrix = ball.minimize(R * w, tol, self._max_iter)
        features = self._find_features(R * matrix.x)
        head_ball = Ball(LossByMargins(self._loss), features, self._p, r)
        head = head_ball.look(v, is_interior)
        next_v = head.x
        if head.residual > tol:
            next_v = head_ball.minimize(r * v, tol, self._max_iter).x
        x = np.append(head.x, matrix.x)
        return _Pair(x, head.log_value, head, matrix, ball, next_v)

    def find_last_candidate(self, last: _Pair) -> Candidate | None:
        """The max-margin pair of the selection at the end of a path."""
        d = self._problem.dim
        selection = self._problem.selected_tokens(
            self.matrix_radii[-1] * last.matrix.x.reshape(d, d)
        )
        return solve_candidate(self._problem, selection, self._p)

    def _find_features(self, w: Array) -> Array:
        """``y_i X_i' s_i`` as rows, shape (n, 1, d)."""
        s = attend(self._A @ w)[0]
        return s[:, None, :] @ self._signed


def _read_pair(radii: Any, head_radii: Any) -> tuple[Array, Array] | None:
    if radii is None and head_radii is None:
        return None
    if radii is None or head_radii is None:
        raise ProblemError(
            "radii and head_radii belong together, but only one is given: give both or neither"
        )
    R, r = read_radii("radii", radii), read_radii("head_radii", head_radii)
    if R.shape != r.shape:
        raise ProblemError(
            f"radii has {R.size} entries and head_radii {r.size}: give one pair for each point"
        )
    return r, R


def _choose_radii(best: Candidate, count: int) -> tuple[Array, Array]:
    """From a tenth of the max-margin norms to a loss of 1e-300 and a lead of LAST_LEAD."""
    last = max(-SMALLEST_LOG, LAST_LEAD / best.kappa)
    sizes = np.geomspace(0.1, last, count)
    return sizes / best.decoder.margin, best.kappa * sizes / best.target.margin


def _record(
    problem: AttentionProblem,
    p: float,
    tol: float,
    landscape: _Landscape,
    found: list[Found[_Pair]],
    best: Candidate,
) -> JointRegularizationPath:
    d, pairs = problem.dim, [each.point for each in found]
    v = landscape.radii[:, None] * np.array([pair.head.x for pair in pairs])
    W = landscape.matrix_radii[:, None, None] * np.array(
        [pair.matrix.x.reshape(d, d) for pair in pairs]
    )
    selection = np.array([problem.selected_tokens(matrix) for matrix in W])
    curvature = np.array([pair.ball.find_curvature(pair.matrix) for pair in pairs])
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
