r"""The path that is kept inside the cone of a locally optimal direction, with a proof.

    W(R) = argmin L(W)   s.t.   |W|_p <= R,  W in C,
    C = { W : D(W / |W|_p, U) <= nu,  |W|_p >= R0 },      U = W_mm(alpha) / |W_mm(alpha)|_p.

alpha is a locally optimal selection: every token in the support of W_mm(alpha) scores below the
selected one. No search can visit all of C, but the loss of every W of C can be bounded. Let m be
the margin of U, L_alpha the loss of attending to alpha alone, and ``V = W / |W|_p``.

*From below.* W_mm's multipliers are weights with which the leads of the support have the mean
``m <psi'(U), V> = m (1 - D(V, U))``, so some support token trails by no more. It scores below
alpha: with n sequences of T tokens, ``Delta_i`` the least gap to a lower score and
``slope_i = -loss'(gamma_i,alpha)`` it raises the loss by at least

    kappa x / (T + x),    x = exp(-|W| m (1 - D(V, U))),    kappa = min_i slope_i Delta_i / n.

*Against it* only tokens of a higher score lower the loss. On U these trail by ``m + room``, and nu
is the largest width with which they trail by ``c = m + room / 2`` on all V: as
``D(V, U) = 1 - <psi'(U), V>`` is linear in V, duality says that a token with
``<a, U> = m + room`` keeps its distance where

    nu <= max_u  1 - |psi'(U) - u a|_q - u c.

R0 is the norm at which all of them take at most half of what the support adds; beyond it they take
less.

*From above* the loss at ``R U`` is known. A minimiser is no worse, hence

    D(V, U) <= 1 + log(x) / (R m),    x the root of  kappa x / (2 (T + x)) = L(R U) - L_alpha,

which falls like 1 / R: all minimisers on C tend to U, and so do those on any smaller cone. Once the
bound is below nu none of them is on the rim: the cone does not restrict the path, whose points are
local minimisers on the whole ball and are certified as such.

Paper A's cones are those of ``D(U, V) <= mu``. Each family has a member inside each of the other:
for unit vectors ½|.|_p² is (p-1)-strongly convex if p <= 2 and (p-1)-smooth if p >= 2 [Ball,
Carlen, Lieb 1994], ``|a|^p >= |b|^p + p sign(b) |b|^(p-1) (a - b) + |a - b|^p / (2^(p-1) - 1)`` for
p >= 2 [Lindqvist 1990], and psi' is (p-1)-Hölder with constant 2^(2-p) for p <= 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from mirrormargin.arguments import check_count, check_exponent, check_number
from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.logits import LogitGradient, attend, find_logit_gradient, log_sum
from mirrormargin.attention.losses import MarginLoss
from mirrormargin.dynamics.paths.ball import Ball
from mirrormargin.dynamics.paths.block_losses import find_rows
from mirrormargin.errors import ProblemError
from mirrormargin.geometry import directional_divergence, lp_norm, signed_power
from mirrormargin.svm import AttentionSVM, is_locally_optimal, solve_attention_svm

__all__ = ["LocalPath", "find_local_path"]

Array = NDArray[np.float64]

WIDEST = 0.1  # nu where no token of a higher score limits the cone
MAX_ITER = 200


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LocalPath:
    """A path inside a cone, one entry for each radius.

    Attributes:
        p: The exponent.
        target: The max-margin solution of the selection.
        nu: Width of the cone.
        mu: Width of a cone of paper A inside it, ``D(U, V) <= mu``.
        least_radius: R0, the least norm of the cone.
        radii: R, shape (num_radii,), from R0 on.
        W: The minimisers, (num_radii, d, d).
        log_loss_gap: ``log(L(W) - L_alpha)``.
        divergence: ``D(U, V)`` of the minimisers, the directional divergence.
        reverse_divergence: ``D(V, U)`` of the minimisers, by which the cone is defined.
        bound: Proven bound on ``D(V, U)`` of every minimiser in the cone, 2 where none is known;
            below nu the cone does not restrict them.
        residual, curvature: As of :class:`RegularizationPath`.
        is_certified: Whether the point is a local minimiser on the ball and inside the cone.
    """

    p: float
    target: AttentionSVM
    nu: float
    mu: float
    least_radius: float
    radii: Array
    W: Array
    log_loss_gap: Array
    divergence: Array
    reverse_divergence: Array
    bound: Array
    residual: Array
    curvature: Array
    is_certified: NDArray[np.bool_]

    def __repr__(self) -> str:
        return (
            f"LocalPath(p={self.p:g}, num_radii={len(self.radii)},"
            f" certified={int(self.is_certified.sum())},"
            f" largest residual={self.residual.max():.1e},"
            f" last divergence={self.divergence[-1]:.1e})"
        )


def find_local_path(
    problem: AttentionProblem,
    selection: ArrayLike | Any,
    p: float = 2.0,
    *,
    last_lead: float = 1e8,
    num_radii: int = 20,
    tol: float = 1e-7,
) -> LocalPath:
    """Minimise the loss on growing balls, inside the cone of a locally optimal selection.

    Args:
        problem: The attention problem.
        selection: One token for each sequence, locally optimal.
        p: Exponent of the norm.
        last_lead: R m at the last radius, the lead in logits of the selected tokens.
        num_radii: Number of radii, in geometric progression, from the least one of the cone.
        tol: Largest residual of a certified point; rounding leaves about 1e-15 R m.

    Raises:
        ProblemError: (a ValueError) If the selection is not locally optimal, or an argument is
            outside its range.
        SolverError: If the max-margin solution could not be certified.
    """
    p = check_exponent(p, error=ProblemError)
    check_number("last_lead", last_lead, above=0.0)
    check_count("num_radii", num_radii, least=2)
    target = solve_attention_svm(
        problem.tokens, problem.queries, selection, p, 1e-11, compiled=False
    )
    if not is_locally_optimal(problem, selection, p, solution=target):
        raise ProblemError(
            "a token in the support of this selection scores higher than the selected one, so that"
            " training leaves it and no path ends there: give a locally optimal selection"
        )
    cone = _Cone(problem, target)
    last = last_lead / target.margin
    if last <= cone.least_radius:
        raise ProblemError(
            f"last_lead is {last_lead:g}, but the cone begins at a lead of"
            f" {cone.least_radius * target.margin:.3g}: give a larger one"
        )
    radii = np.geomspace(cone.least_radius, last, num_radii)
    gap, A = _RiseAboveSelection(problem, target.selection), find_rows(problem)
    points, curvature, start = [], [], cone.U
    for R in radii.tolist():
        ball = Ball(gap, A, p, R)
        points.append(ball.minimize(R * start.reshape(-1), 1e-5 * tol, MAX_ITER))
        curvature.append(ball.find_curvature(points[-1]))
        start = points[-1].x
    V = np.array([point.x.reshape(cone.U.shape) for point in points])
    divergence = np.array([float(directional_divergence(cone.U, v, p)) for v in V])
    residual = np.array([point.residual for point in points])
    reverse = np.array([float(directional_divergence(v, cone.U, p)) for v in V])
    is_inside = np.array([not point.is_interior for point in points]) & (reverse < cone.nu)
    return LocalPath(
        p=p,
        target=target,
        nu=cone.nu,
        mu=_find_inner_width(cone.nu, p),
        least_radius=cone.least_radius,
        radii=radii,
        W=radii[:, None, None] * V,
        log_loss_gap=np.array([point.log_value for point in points]),
        divergence=divergence,
        reverse_divergence=reverse,
        bound=np.array([cone.bound_divergence(R, gap) for R in radii.tolist()]),
        residual=residual,
        curvature=np.array(curvature),
        is_certified=is_inside & (residual <= tol) & (np.array(curvature) > 0),
    )


class _RiseAboveSelection:
    """``L - L_alpha`` as a function of the logits; nan where it is not positive."""

    def __init__(self, problem: AttentionProblem, selection: NDArray[Any]) -> None:
        self._scores, self._loss = problem.scores, problem.margin_loss
        self._best = np.take_along_axis(self._scores, selection[:, None], axis=1)

    def log_value(self, a: Array) -> float:
        _, log_s, _ = attend(a)
        below = self._best - self._scores
        with np.errstate(divide="ignore"):
            falls = log_sum(log_s + np.log(np.maximum(below, 0.0)))
            rises = log_sum(log_s + np.log(np.maximum(-below, 0.0)))
        return _add_rises(self._best[:, 0], falls, rises, self._loss) - np.log(len(a))

    def derive(self, a: Array) -> LogitGradient:
        return find_logit_gradient(a, self._scores, self._loss)


def _add_rises(best: Array, falls: Array, rises: Array, loss: MarginLoss) -> float:
    """``log sum_i (loss(m_i - e^falls + e^rises) - loss(m_i))``, nan where it is not positive."""
    is_up = falls > rises
    larger, smaller = np.maximum(falls, rises), np.minimum(falls, rises)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_drop = larger + np.log(-np.expm1(smaller - larger))
        # A loss that falls by this drop rises by it from where it fell to.
        start = np.where(is_up, best, best + np.exp(np.minimum(log_drop, 700.0)))
        log_rise = loss.log_rise(start, log_drop)
    up = float(log_sum(np.where(is_up, log_rise, -np.inf)))
    down = float(log_sum(np.where(is_up, -np.inf, log_rise)))
    return up + float(np.log(-np.expm1(down - up))) if up > down else float("nan")


class _Cone:
    """Width and least norm of the cone in which the bounds hold, and the bounds."""

    def __init__(self, problem: AttentionProblem, target: AttentionSVM) -> None:
        p, n, T = target.p, problem.num_sequences, problem.num_tokens
        q = p / (p - 1)
        self._T, self._rows = T, find_rows(problem)
        self.U = target.W / float(lp_norm(target.W, p))
        alpha = target.selection[:, None]
        best = np.take_along_axis(problem.scores, alpha, axis=1)
        below = best - problem.scores
        logits = problem.logits(self.U)
        leads = np.take_along_axis(logits, alpha, axis=1) - logits
        # The largest margin there is: the certificate's bound, not what W happens to reach.
        self._m = 1 / (float(lp_norm(target.W, p)) * (1 - target.gap))
        slopes = np.exp(problem.margin_loss.log_slope(best[:, 0]))
        least = np.where(below > 0, below, np.inf).min(axis=1)
        self._kappa = float((slopes * least).min()) / n
        is_higher = below < 0
        if not is_higher.any():
            self.nu, self.least_radius = WIDEST, 1 / self._m
            return
        rows = np.take_along_axis(self._rows, alpha[:, :, None], axis=1) - self._rows
        room = leads[is_higher] - self._m
        psi = signed_power(self.U.reshape(-1), p - 1)
        widths = [
            _find_width(psi, a, self._m + 0.5 * float(one), q)
            for a, one in zip(rows[is_higher], room, strict=True)
        ]
        self.nu = min(WIDEST, *widths)
        # The loss is convex: a margin that grows by h lowers it by at most slope h.
        weight = float((slopes[:, None] * -below)[is_higher].sum()) / n
        needed = np.log(2 * (T + 1) * weight / self._kappa) / (0.5 * float(room.min()))
        self.least_radius = max(1 / self._m, float(needed))

    def bound_divergence(self, R: float, gap: _RiseAboveSelection) -> float:
        """The bound on ``D(V, U)`` of all minimisers on the ball of this radius."""
        log_rise = gap.log_value(R * (self._rows @ self.U.reshape(-1)))
        rise = np.exp(log_rise - np.log(0.5 * self._kappa))
        if rise >= 1:
            return 2.0  # of unit vectors it cannot be more
        log_x = log_rise - np.log(0.5 * self._kappa) + np.log(self._T) - np.log1p(-rise)
        return min(2.0, 1 + float(log_x) / (R * self._m))


def _find_width(psi: Array, a: Array, c: float, q: float) -> float:
    """The largest nu found, rounded down, with ``<a, V> >= c`` wherever ``D(V, U) <= nu``."""

    def derive(u: float) -> float:
        r = psi - u * a
        return c - float(np.vdot(signed_power(r / lp_norm(r, q), q - 1), a))

    u = optimize.root_scalar(derive, bracket=(0.0, 2 / c), xtol=1e-300).root
    return max(0.0, 1 - float(lp_norm(psi - u * a, q)) - u * c - 1e-14)


def _find_inner_width(nu: float, p: float) -> float:
    """mu so that ``D(U, V) <= mu`` implies ``D(V, U) <= nu``, through ``|U - V|_p``."""
    if p <= 2:
        distance = (nu / 2 ** (2 - p)) ** (1 / p) if p < 2 else np.sqrt(2 * nu)
        return float(0.5 * (p - 1) * distance**2)
    return float(np.sqrt(2 * nu / (p - 1)) ** p / (p * (2 ** (p - 1) - 1)))
