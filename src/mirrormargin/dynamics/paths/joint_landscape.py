r"""The loss of head and W on pairs of balls, and where to look for its minimisers.

The gradient of W is smaller than that of v by a factor of about exp(-R / |W_mm|), so the two blocks
are minimised in turns, each in its own scale:

    W <- argmin L(v, .),    v <- argmin L(., W),

until v stays. In the end v sees W only through features that differ from the selected tokens by as
little, and one turn is enough; before, the turns contract slowly and are sped up by mixing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import attend
from mirrormargin.dynamics.paths.ball import Ball, BallPoint
from mirrormargin.dynamics.paths.block_losses import (
    LossByMargins,
    RiseByLogits,
    find_rows,
)
from mirrormargin.dynamics.paths.joint_candidates import Candidate
from mirrormargin.geometry import lp_norm, signed_power

__all__ = ["AndersonMixing", "JointBlocks", "JointLandscape", "JointPoint"]

Array = NDArray[np.float64]

SETTLED = 20.0  # max-margin norms from which on a radius is large, and attention on few tokens
MAX_SELECTIONS = 3  # to start from at each pair of radii
MAX_TURNS = 200
PATIENCE = 10  # turns without progress
INTERIOR = 1e-9  # share of the radius
CUTOFF = 1e-10  # of singular values: steps that repeat each other teach nothing


@dataclass(frozen=True, eq=False)
class JointPoint:
    """A pair (v, W).

    Attributes:
        head: v as a point of its ball, given W.
        matrix: W as a point of its ball, given v.
        next_head: The minimiser over v given W, in units of its radius.
        matrix_ball: The ball of W, given v.
    """

    head: BallPoint
    matrix: BallPoint
    next_head: Array
    matrix_ball: Ball

    @property
    def x(self) -> Array:
        """Both in units of their radii, one after the other."""
        return np.append(self.head.x, self.matrix.x)

    @property
    def log_value(self) -> float:
        return self.head.log_value

    @property
    def residual(self) -> float:
        return max(self.head.residual, self.matrix.residual)


class JointBlocks:
    """The loss as a function of v on its ball given W, and of W given v."""

    def __init__(self, problem: AttentionProblem, p: float) -> None:
        self.p, self.loss, self.A = p, problem.margin_loss, find_rows(problem)
        self.signed = problem.labels[:, None, None] * problem.tokens

    def make_matrix_ball(self, v: Array, R: float) -> Ball:
        """The ball of W."""
        return Ball(RiseByLogits(self.signed @ v, self.loss), self.A, self.p, R)

    def make_head_ball(self, w: Array, r: float) -> Ball:
        """The ball of v, with rows ``y_i X_i' s_i``."""
        s = attend(self.A @ w)[0]
        return Ball(LossByMargins(self.loss), s[:, None, :] @ self.signed, self.p, r)


class JointLandscape:
    """The loss on the pairs of balls of several radii.

    Args:
        problem: The attention problem, with a loss that vanishes at infinity.
        p: Exponent of both norms.
        head_radii: r, increasing.
        matrix_radii: R, increasing.
        candidates: Max-margin pairs to start from, best first.
        num_starts: Random starts at each pair of radii.
        rng: Draws them.
        max_iter: Bound on the Newton steps of a search in one block.
    """

    def __init__(
        self,
        problem: AttentionProblem,
        p: float,
        head_radii: Array,
        matrix_radii: Array,
        candidates: list[Candidate],
        num_starts: int,
        rng: np.random.Generator,
        max_iter: int,
    ) -> None:
        self.radii, self.matrix_radii = head_radii, matrix_radii
        self._problem, self._p, self._candidates = problem, p, candidates
        self._num_starts, self._rng, self._max_iter = num_starts, rng, max_iter
        self._blocks = JointBlocks(problem, p)

    def list_starts(self, j: int, lowest: float) -> list[tuple[str, Array]]:
        """Candidates and random heads while radii are small, zero and the problem's head first."""
        best = self._candidates[0]
        sizes = self.radii[j] * best.decoder.margin, self.matrix_radii[j] * best.target.margin
        is_open = j == 0 or max(sizes) < SETTLED
        num_selections = MAX_SELECTIONS if is_open else int(min(sizes) < SETTLED)
        chosen = self._candidates[:num_selections]
        starts = [("selection", np.append(each.decoder.v, each.target.w)) for each in chosen]
        if j == 0:
            mean = self._blocks.signed.mean(axis=(0, 1))
            starts.append(("zero", self._begin(self._to_primal(mean))))
            starts.append(("head", self._begin(self._problem.head)))
        if is_open:
            for _ in range(self._num_starts):
                u = self._rng.standard_normal(self._problem.dim)
                starts.append(("random", self._begin(self._to_primal(u))))
        return starts

    def _begin(self, v: Array) -> Array:
        """A head and the direction in which W leaves zero under it."""
        ball = self._blocks.make_matrix_ball(v, 1.0)
        zero = np.zeros(self._blocks.A.shape[2])
        return np.append(v, self._to_primal(-ball.look(zero, True).G))

    def _to_primal(self, u: Array) -> Array:
        return signed_power(u, 1 / (self._p - 1))

    def search(self, j: int, x: Array, tol: float, stay_inside: bool = False) -> JointPoint:
        d, mixing = self._problem.dim, AndersonMixing()
        v, w = x[:d], x[d:]
        if not stay_inside:
            v, w = v / lp_norm(v, self._p), w / lp_norm(w, self._p)
        here, idle = self._turn(j, v, w, tol), 0
        best, v = here, mixing.mix(here.head.x, here.next_head)
        for _ in range(MAX_TURNS):
            if here.residual <= tol or idle == PATIENCE:
                break
            ahead = self._turn(j, v, here.matrix.x, tol)
            idle = 0 if ahead.residual < best.residual else idle + 1
            if ahead.log_value > here.log_value + here.head.noise and v is not here.next_head:
                # Mixing may go uphill, the plain turn does not.
                mixing.forget()
                v = here.next_head
                continue
            here = ahead
            if here.residual < best.residual or here.log_value < best.log_value - here.head.noise:
                best = here
            v = mixing.mix(here.head.x, here.next_head)
        return best

    def rescale(self, j: int, x: Array) -> Array:
        d = self._problem.dim
        v = x[:d] * (self.radii[j - 1] / self.radii[j])
        return np.append(v, x[d:] * (self.matrix_radii[j - 1] / self.matrix_radii[j]))

    def _turn(self, j: int, v: Array, w: Array, tol: float) -> JointPoint:
        """Minimise over W given v; then over v given that W, which is left for the next turn."""
        r, R = float(self.radii[j]), float(self.matrix_radii[j])
        norm = lp_norm(v, self._p)
        is_interior = bool(norm < 1 - INTERIOR)
        v = v if is_interior else v / norm
        ball = self._blocks.make_matrix_ball(r * v, R)
        matrix = ball.minimize(R * w, tol, self._max_iter)
        head_ball = self._blocks.make_head_ball(R * matrix.x, r)
        head = head_ball.look(v, is_interior)
        next_head = head.x
        if head.residual > tol:
            next_head = head_ball.minimize(r * v, tol, self._max_iter).x
        return JointPoint(head, matrix, next_head, ball)


class AndersonMixing:
    r"""Anderson mixing: a fixed-point iteration ``x <- g(x)`` that remembers its last steps.

    If g is nearly linear, the differences of its last steps tell where ``g(x) - x`` would vanish:

        gamma = argmin | f - dF gamma |_2,    next x = g - dG gamma,    f = g - x,

    with dF and dG the columns of differences of the last f and g. In a space of few dimensions as
    many steps solve a linear equation, where the plain iteration contracts by a constant factor
    each time.

    Args:
        depth: How many differences it holds.
    """

    def __init__(self, depth: int = 6) -> None:
        self._depth = depth
        self._steps: list[tuple[Array, Array]] = []

    def forget(self) -> None:
        self._steps.clear()

    def mix(self, x: Array, g: Array) -> Array:
        """The next x, given the last one and what the iteration makes of it."""
        self._steps = [*self._steps[-self._depth :], (g - x, g)]
        if len(self._steps) == 1:
            return g
        dF, dG = (np.diff(np.array(each).T, axis=1) for each in zip(*self._steps, strict=True))
        gamma = np.linalg.lstsq(dF, g - x, rcond=CUTOFF)[0]
        return g - dG @ gamma
