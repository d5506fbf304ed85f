r"""The compiled training loop of one run: mirror descent on W, on (K, Q), or on W and the head v.

    u <- u - step G,    w <- sign(u) |u|^(1/(p-1))

    constant      step = lr
    normalized    step = lr / (|G|_q + eps)
    polyak        step is the root of < G, w - to_primal(u - step G) > = lr (L - floor), <= max_lr

for each tensor, with ``lr (k + 1)^-decay`` in place of lr at step k. Gradients are mantissas with a
log-scale, and steps are taken in their units, so that a run goes on where gradients underflow.

The rules are those of :mod:`mirrormargin.optim.step_rules`, and ``test_training_is_autograd_and_
mirror_descent`` holds the two against each other.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from numba.core import types

from mirrormargin.attention import compiled as attention
from mirrormargin.attention.compiled import (
    Data,
    Memory,
    find_head_gradient,
    find_loss_gap,
    find_scores,
    find_weights,
    pull_back,
    pull_back_turned,
    push_forward,
)
from mirrormargin.geometry import doubles
from mirrormargin.geometry.doubles import (
    absolute_sum,
    largest,
    leaf,
    power_sum,
    signed_powers,
    weigh_rows,
)
from mirrormargin.geometry.routine import Routine

__all__ = ["MODES", "NUMBERS", "NUM_TENSORS", "RULES", "End", "advance"]

RULES = {"constant": 0, "normalized": 1, "polyak": 2}
_CONSTANT, _NORMALIZED, _POLYAK = RULES.values()
# What is trained: W; K and Q with W = K Q'; W and the head.
MODES = {"W": 0, "KQ": 1, "joint": 2}
_W, _KQ, _JOINT = MODES.values()
# The numbers of a run, in the order of the kernel's argument; ``guess`` and ``capped`` are written.
NUMBERS = ("p", "lr", "head_lr", "decay", "head_decay", "eps", "max_lr", "guess", "capped")
_P, _LR, _HEAD_LR, _DECAY, _HEAD_DECAY, _EPS, _MAX_LR, _GUESS, _CAPPED = range(9)
# Tensors to work in, of the shape of the larger trained one: gradients, W, and one more.
NUM_TENSORS = 5
_GRADIENT, _SECOND, _TURNED, _MATRIX, _SPARE = range(NUM_TENSORS)


class End(IntEnum):
    """Why a run stands where it is."""

    RUNNING = 0
    ZERO_GRADIENT = 1  # nothing moves any more
    DIVERGED = 2  # the next step would not be finite
    OUT_OF_REACH = 3  # Polyak's floor is too far, and max_lr does not bound the step


_RUNNING, _ZERO, _DIVERGED, _OUT_OF_REACH = (int(end) for end in End)


def _make_loop(version: int) -> Callable[..., Any]:
    def follow(codes, steps, numbers, data, u, w, u2, w2, work, memory):
        """Take the steps from ``steps[0]`` to ``steps[1]``; returns (step reached, End)."""
        _ = version
        mode, rule, loss = codes[0], codes[1], codes[2]
        p = numbers[_P]
        one, two = w.reshape(-1), w2.reshape(-1)
        dual, dual2 = u.reshape(-1), u2.reshape(-1)
        spare = work[_SPARE].reshape(-1)
        d = data.Xt.shape[1]
        matrix = work[_MATRIX][:d] if mode == _KQ else w
        gradient, second = work[_GRADIENT][: len(w)], work[_SECOND][: len(w2)]
        # With factors, the gradient by W stands between the two.
        between = work[_TURNED][:d] if mode == _KQ else gradient
        end = _RUNNING
        k = steps[0]
        while k < steps[1]:
            if mode == _KQ:
                _multiply(w2, w, matrix)
            elif mode == _JOINT:
                find_scores(two, data)
            push_forward(matrix, data, memory)
            log_scale = find_weights(data, memory, loss)
            pull_back(data, memory, between)
            log_scale2 = log_scale
            if mode == _KQ:
                _pull_through(w2, between, gradient)
                pull_back_turned(data, memory, between)
                _pull_through(w, between, second)
            elif mode == _JOINT:
                log_scale2 = find_head_gradient(data, memory, loss, second)
            target = np.inf
            if rule == _POLYAK:
                target = numbers[_LR] * find_loss_gap(data, memory, loss, log_scale)
            end = _check(gradient.reshape(-1), second.reshape(-1), mode != _W)
            if end != _RUNNING:
                break
            lr = numbers[_LR] * (k + 1.0) ** -numbers[_DECAY] if numbers[_DECAY] else numbers[_LR]
            grad = gradient.reshape(-1)
            step = _find_step(dual, one, grad, log_scale, p, rule, lr, target, numbers, spare)
            if step == np.inf:
                end = _OUT_OF_REACH
                break
            _move(dual, one, grad, step, p)
            if mode != _W:
                lr = numbers[_HEAD_LR] * (k + 1.0) ** -numbers[_HEAD_DECAY]
                grad = second.reshape(-1)
                step = _find_step(dual2, two, grad, log_scale2, p, rule, lr, target, numbers, spare)
                _move(dual2, two, grad, step, p)
            k += 1
        return k, end

    return follow


@leaf
def _multiply(Qt, Kt, Wt):
    """``Wt[b] = sum_k Qt[k, b] Kt[k]``, the turned K Q'."""
    rank, dp = Kt.shape
    weigh_rows(Qt.ctypes.data, 1, dp, Kt.ctypes.data, 0, dp, Wt.ctypes.data, len(Wt), rank)


@leaf
def _pull_through(factor, G, out):
    """``out[k] = sum_b factor[k, b] G[b]``: the gradient by the other factor."""
    rank, dp = factor.shape
    weigh_rows(factor.ctypes.data, dp, 1, G.ctypes.data, 0, dp, out.ctypes.data, rank, len(G))


@leaf
def _check(gradient, second, is_pair):
    total = absolute_sum(gradient)
    if is_pair:
        total += absolute_sum(second)
    if total == 0.0:
        return _ZERO
    return _RUNNING if total < np.inf else _DIVERGED


@leaf
def _find_step(u, w, g, log_scale, p, rule, lr, target, numbers, spare):
    """The step in units of the mantissa; infinite if Polyak's has no bound."""
    top = largest(g)
    if top == 0.0:
        return 0.0
    if rule == _CONSTANT:
        return lr * math.exp(log_scale)
    q = p / (p - 1.0)
    spare = spare[: len(g)]
    if rule == _NORMALIZED:
        norm = top * power_sum(g, 1.0 / top, q, spare) ** (1.0 / q)
        if numbers[_EPS]:
            norm += numbers[_EPS] * math.exp(-log_scale)
        return lr / norm
    cap = numbers[_MAX_LR] * math.exp(log_scale)
    step = _find_root(u, w, g, target, p, cap, numbers, spare)
    if step >= cap:
        numbers[_CAPPED] += 1.0
        return cap
    return step


@leaf
def _find_root(u, w, g, target, p, cap, numbers, spare):
    """Polyak's step: the decrease it predicts is the target. At most about ``cap``.

    The decrease is nearly a power of the step: a bracketed secant in logarithms takes a handful of
    evaluations from the last step of the run.
    """
    if target == 0.0:
        return 0.0
    if not target < np.inf:
        return np.inf
    if p == 2.0:
        return target / power_sum(g, 1.0, 2.0, spare)
    goal = math.log(target)
    x = numbers[_GUESS]
    value = _log_decrease(u, w, g, x, p, spare) - goal
    low, high, at_low, at_high = x, x, value, value
    stride = 0.5
    while at_high < 0.0:
        low, at_low = high, at_high
        high += stride
        stride *= 2.0
        # What lies beyond the cap does not matter, nor what floating point cannot hold.
        if low > 700.0 or math.exp(min(low, 700.0)) >= cap:
            return np.inf
        at_high = _log_decrease(u, w, g, high, p, spare) - goal
    stride = 0.5
    while at_low > 0.0:
        high, at_high = low, at_low
        low -= stride
        stride *= 2.0
        if high < -700.0:
            return 0.0
        at_low = _log_decrease(u, w, g, low, p, spare) - goal
    side = 0
    for _ in range(200):
        if at_low == 0.0 or high - low <= 1e-14 * max(1.0, abs(low)):
            x = low
            break
        if at_high == 0.0:
            x = high
            break
        x = 0.5 * (low + high)
        if np.isfinite(at_low) and np.isfinite(at_high):
            secant = (low * at_high - high * at_low) / (at_high - at_low)
            x = secant if low < secant < high else x
        value = _log_decrease(u, w, g, x, p, spare) - goal
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
    numbers[_GUESS] = x
    return math.exp(x)


@leaf
def _log_decrease(u, w, g, log_step, p, spare):
    """log < g, w - to_primal(u - step g) >; inf where it overflows."""
    step = math.exp(log_step)
    for j in range(len(g)):
        spare[j] = u[j] - step * g[j]
    signed_powers(spare, 1.0 / (p - 1.0), spare)
    total = 0.0
    for j in range(len(g)):
        total += g[j] * (w[j] - spare[j])
    if not total < np.inf:
        return np.inf
    return math.log(total) if total > 0.0 else -np.inf


@leaf
def _move(u, w, g, step, p):
    for j in range(len(u)):
        u[j] -= step * g[j]
    signed_powers(u, 1.0 / (p - 1.0), w)


_real, _whole = types.float64, types.int64
_vector, _matrix, _stack = _real[::1], _real[:, ::1], _real[:, :, ::1]
_data = types.NamedTuple((_stack, _stack, _matrix, _matrix, _vector), Data)
_memory = types.NamedTuple((*(_matrix,) * 9, _whole[::1], _vector, _vector, _vector), Memory)
_SIGNATURE = types.UniTuple(_whole, 2)(
    *(_whole[::1], _whole[::1], _vector, _data),
    *(_matrix, _matrix, _matrix, _matrix, _stack, _memory),
)

advance: Routine = Routine(_make_loop, _SIGNATURE, [__file__, attention.__file__, doubles.__file__])
