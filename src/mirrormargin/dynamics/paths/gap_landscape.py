r"""The loss of a fixed head on balls of W, and where to look for its minimisers.

What is minimised is the log of the gap between the loss and its floor. Once the gap is small no
search is needed, for then all optimal tokens lead: a sequence with another leader gives its optimal
token at most half of the attention, and so the gap is at least

    (1/n) (loss(m - (m - m') / 2) - loss(m)),      m and m' the two highest scores of the sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.dynamics.paths.ball import Ball, BallPoint
from mirrormargin.dynamics.paths.blocks import RiseByLogits
from mirrormargin.geometry import lp_norm, signed_power

__all__ = ["GapLandscape", "find_gap", "find_rows", "make_balls"]

Array = NDArray[np.float64]


class GapLandscape:
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
        self.balls = make_balls(problem, p, radii)
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


def make_balls(problem: AttentionProblem, p: float, radii: Array) -> list[Ball]:
    """The gap on the ball of each radius."""
    gap, A = find_gap(problem), find_rows(problem)
    return [Ball(gap, A, p, float(R)) for R in radii]


def find_gap(problem: AttentionProblem) -> RiseByLogits:
    """The gap between the loss and its floor as a function of the logits."""
    return RiseByLogits(problem.scores, problem.margin_loss)


def find_rows(problem: AttentionProblem) -> Array:
    """A with ``A w = (x_it' W z_i)``, shape (n, T, d^2)."""
    X, z = problem.tokens, problem.queries
    return (X[:, :, :, None] * z[:, None, None, :]).reshape(*X.shape[:2], -1)
