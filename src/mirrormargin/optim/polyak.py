r"""Polyak's step: as far as the linearised loss promises to reach f_min.

    u <- u - lr_k g,     where     < g, w - to_primal(u - lr_k g) > = lr (L - f_min)_+

This is the Bregman projection of w on the half-space where the linearised loss is at most its
target. The left side, the decrease that the linear model predicts, grows with lr_k, so there is
one root. At p = 2 it is the classical lr (L - f_min) / ||g||^2. ``polyak="dual_norm"`` takes
lr (L - f_min) / ||g||_q^2 at every p, which changes when the units of the data do.

The rule is written once, here, and used twice: the optimizer runs it as plain Python, and the lab
(:mod:`mirrormargin.dynamics`) compiles the function that :func:`make_step_finder` makes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mirrormargin.arguments import show
from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import LpPotential
from mirrormargin.optim.shards import add_up
from mirrormargin.optim.tensor_batch import AnyBatch

__all__ = ["as_number", "find_classical_step", "find_polyak_multiplier", "make_step_finder"]


_LARGEST_LOG = math.log(sys.float_info.max)  # beyond it Python's exp raises
SHORT = 1e-3  # of u: a shorter step is followed by its relative change
_LARGEST_STEP = 1e300  # where nothing else bounds the optimizer's step


def _as_python(function: Any) -> Any:
    return function


def make_step_finder(
    decrease: Callable[[float, Any], float], compiled: Callable[[Any], Any] = _as_python
) -> Callable[[float, float, float, Any], tuple[float, float]]:
    """Make the function that finds Polyak's step, the root of ``decrease(step) = target``.

    Args:
        decrease: ``decrease(step, args)`` is < g, w - to_primal(u - step g) >: 0 at 0, and growing.
            Where it leaves floating point it may be inf or nan.
        compiled: Decorator of the functions made here, such as ``numba.njit``; ``decrease`` must
            then be compiled as well.

    Returns:
        ``find_step(target, cap, guess, args)``. It starts at the step e^guess, and returns the
        root, or ``cap`` if the root lies beyond, and the logarithm at which the search ended: the
        guess for the next step if it is finite, and nan if there was nothing to search.
    """

    @compiled
    def excess(log_step, goal, args):
        step = math.exp(log_step) if log_step <= _LARGEST_LOG else math.inf
        value = decrease(step, args)
        if not value < math.inf:  # nan as well: only overflow makes it here
            return math.inf
        return math.log(value) - goal if value > 0.0 else -math.inf

    @compiled
    def find_log_step(guess, cap, goal, args):
        """The logarithm of the root; inf beyond ``cap`` or e^700, -inf below e^-700.

        The decrease is linear in a short step and a power of a long one. In logarithms it is
        nearly straight, so a bracketed secant there takes a handful of evaluations.
        """
        x = guess
        value = excess(x, goal, args)
        # Bracket the root with a growing stride: too little decrease at low, too much at high.
        low, high, at_low, at_high = x, x, value, value
        stride = 0.5
        while at_high < 0.0:
            low, at_low = high, at_high
            high += stride
            stride *= 2.0
            if low > 700.0 or math.exp(min(low, 700.0)) >= cap:
                return math.inf
            at_high = excess(high, goal, args)
        stride = 0.5
        while at_low > 0.0:
            high, at_high = low, at_low
            low -= stride
            stride *= 2.0
            if high < -700.0:
                return -math.inf
            at_low = excess(low, goal, args)
        side = 0
        for _ in range(200):
            if at_low == 0.0 or high - low <= 1e-14 * max(1.0, abs(low)):
                x = low
                break
            if at_high == 0.0:
                x = high
                break
            x = 0.5 * (low + high)
            if math.isfinite(at_low) and math.isfinite(at_high):
                secant = (low * at_high - high * at_low) / (at_high - at_low)
                x = secant if low < secant < high else x
            value = excess(x, goal, args)
            if abs(value) <= 1e-13:
                break
            # Illinois: halve the weight of an end that stays twice, or the other never moves.
            if value < 0.0:
                low, at_low = x, value
                at_high = 0.5 * at_high if side < 0 else at_high
                side = -1
            else:
                high, at_high = x, value
                at_low = 0.5 * at_low if side > 0 else at_low
                side = 1
        return x

    @compiled
    def find_step(target, cap, guess, args):
        if math.isnan(target):
            return math.nan, math.nan
        if target <= 0.0:
            return 0.0, math.nan
        if target == math.inf:
            return cap, math.nan
        log_step = find_log_step(guess, cap, math.log(target), args)
        step = math.exp(log_step) if log_step <= _LARGEST_LOG else math.inf
        return min(step, cap), log_step

    return find_step


def find_classical_step(target: float, largest: float, squares: float) -> float:
    """The root at p = 2, target / ||g||^2, where ||g||^2 = largest^2 squares.

    The largest norm is taken out of the squares, which would underflow.
    """
    return target / largest / squares / largest


_find_step = make_step_finder(lambda step, decrease: decrease(step))


def find_polyak_multiplier(
    batches: Sequence[AnyBatch], norms: Sequence[Tensor | None], loss: float | Tensor | None
) -> float:
    """The number that turns the lr of every group with Polyak steps into its step.

    All these groups share one loss, so they share one root; groups with different lr step in
    proportion to them.

    Args:
        batches: All batches of the step.
        norms: The norm of the group's gradient, once for each tensor of each batch; None where
            the batch's step rule has none.
        loss: The loss at the current weights.

    Returns:
        It, and nan if the loss is nan or a gradient is not finite: then there is no root.
    """
    ours = [b for b in batches if b.group["step_rule"] == "polyak" and float(b.group["lr"]) > 0]
    groups = {b.number: b.group for b in ours}
    pairs = [(b.number, norm) for b, norm in zip(batches, norms, strict=True) if norm is not None]
    norm_of = {number: float(norm[0]) for number, norm in pairs if number in groups}
    # Only groups with step_rule="polyak" have a multiplier: there is none, or its gradient is zero.
    if not any(norm_of.values()):
        return 0.0
    first = ours[0].group
    for name in ("f_min", "max_lr", "polyak", "loss_over"):
        if any(group[name] != first[name] for group in groups.values()):
            raise OptimizerError(
                f"groups with Polyak steps share one loss: their {name} must be equal"
            )
    if loss is None:
        raise OptimizerError("Polyak steps need the loss: pass a closure, or call step(loss=loss)")
    gap = as_number(loss) - float(first["f_min"])
    if math.isnan(gap) or not all(map(math.isfinite, norm_of.values())):
        return math.nan
    lrs = {number: float(group["lr"]) for number, group in groups.items()}
    top = max(lrs.values())
    target = top * max(gap, 0.0)
    cap = math.inf if first["max_lr"] is None else float(first["max_lr"]) / top
    largest = max(norm_of.values())
    squares = sum(lrs[number] * (norm / largest) ** 2 for number, norm in norm_of.items())
    classical = find_classical_step(target, largest, squares)
    euclidean = all(group["potential"] is None and group["p"] == 2 for group in groups.values())
    if euclidean or first["polyak"] == "dual_norm":
        return min(classical, cap)
    cap = min(cap, _LARGEST_STEP)
    start = min(classical, cap)
    guess = math.log(start) if start > 0 else -690.0
    return _find_step(target, cap, guess, _make_decrease(ours))[0]


def _make_decrease(batches: Sequence[AnyBatch]) -> Callable[[float], float]:
    """k -> < g, w - to_primal(u - k lr g) >, summed over all tensors in float64."""
    terms = []
    for batch in batches:
        potential, lr = batch.potential, float(batch.group["lr"])
        duals = batch.duals or [potential.to_dual(w.detach().double()) for w in batch.params]
        for dual, grad, kappa in zip(duals, batch.grads, batch.kappas, strict=True):
            u, g = dual.double(), grad.double()
            step = g * (lr / kappa)
            terms.append((potential, potential.to_primal(u), u, g, step, _find_share(u, step)))
    owners = [owner for batch in batches for owner in batch.owners]

    def decrease(k: float) -> float:
        totals = []
        for potential, w, u, g, step, share in terms:
            change = w - potential.to_primal(u - k * step)
            if isinstance(potential, LpPotential):
                # A step far shorter than u would cancel in the difference. Pinned by
                # ``test_polyak_steps_far_below_the_weights_keep_their_digits``.
                short = -w * (torch.log1p(-k * share) / (potential.p - 1)).expm1()
                change = torch.where((k * share).abs() < SHORT, short, change)
            totals.append(float((g * change).sum()))
        return math.fsum(add_up(torch.tensor(totals, dtype=torch.float64), owners).tolist())

    return decrease


def _find_share(u: Tensor, step: Tensor) -> Tensor:
    """step / u, and inf where u = 0: there nothing cancels."""
    return torch.where(u == 0, math.inf, step / u)


def as_number(loss: float | Tensor) -> float:
    """A loss as a float; one on an accelerator is waited for."""
    try:
        if isinstance(loss, (str, bytes, bool)):
            raise TypeError
        return float(loss.detach() if isinstance(loss, Tensor) else loss)
    except Exception:  # anything may be given
        raise OptimizerError(f"loss is {show(loss)}: give one number") from None
