r"""The compiled training loop of one run: mirror descent on W, on (K, Q), or on W and the head v.

    u <- u - step G,    w <- sign(u) |u|^(1/(p-1))

    constant      step = lr
    normalized    step = lr / (|G|_q + eps)
    polyak        step is the root of < G, w - to_primal(u - step G) > = lr (L - floor), <= max_lr

for each tensor, with ``lr (k + 1)^-decay`` in place of lr at step k; Polyak's step is one for both
factors. Gradients are mantissas with a log-scale, and steps are taken in their units, so that a run
continues where gradients underflow.

The rules are those of :class:`mirrormargin.MirrorDescent`, and ``test_training_is_autograd_and_
mirror_descent`` compares the two. Polyak's rule is that of :mod:`mirrormargin.optim.polyak`,
compiled.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable
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
    pull_back_transposed,
    push_forward,
)
from mirrormargin.dynamics.descent import record, settings
from mirrormargin.dynamics.descent.record import MODES, RULES, End
from mirrormargin.geometry.compiler import CompiledFunction
from mirrormargin.geometry.float64_loops import (
    absolute_sum,
    compiled,
    exponential,
    largest,
    power_sum,
    raise_one,
    signed_powers,
    weigh_rows,
)
from mirrormargin.optim import polyak

__all__ = ["MEMORY", "NUMBERS", "NUM_TENSORS", "SOURCES", "advance"]

_CONSTANT, _NORMALIZED, _POLYAK = RULES.values()
_W, _KQ, _JOINT = MODES.values()
# The numbers of a run, in the order of the kernel's argument; ``guess`` and ``capped`` are written.
NUMBERS = ("p", "lr", "head_lr", "decay", "head_decay", "eps", "max_lr", "guess", "capped")
_P, _LR, _HEAD_LR, _DECAY, _HEAD_DECAY, _EPS, _MAX_LR, _GUESS, _CAPPED = range(9)
# Tensors to work in, of the shape of the larger trained one: gradients, W, and one more.
NUM_TENSORS = 5
_GRADIENT, _SECOND, _BETWEEN, _MATRIX, _SPARE = range(NUM_TENSORS)


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
        # With factors, their gradients are computed from the gradient by W.
        between = work[_BETWEEN][:d] if mode == _KQ else gradient
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
                pull_back_transposed(data, memory, between)
                _pull_through(w, between, second)
            elif mode == _JOINT:
                log_scale2 = find_head_gradient(data, memory, loss, second)
            grad, grad2 = gradient.reshape(-1), second.reshape(-1)
            end = _check(grad, grad2)
            if end != _RUNNING:
                break
            if rule == _POLYAK:
                target = numbers[_LR] * find_loss_gap(data, memory, loss, log_scale)
                step = _find_polyak_step(
                    (dual, one, grad), (dual2, two, grad2), log_scale, p, target, numbers, spare
                )
                step2 = step
            else:
                lr = numbers[_LR]
                lr = lr * (k + 1.0) ** -numbers[_DECAY] if numbers[_DECAY] else lr
                step = _find_step(grad, log_scale, p, rule, lr, numbers[_EPS], spare)
                lr = numbers[_HEAD_LR] * (k + 1.0) ** -numbers[_HEAD_DECAY] if mode != _W else 0.0
                step2 = _find_step(grad2, log_scale2, p, rule, lr, numbers[_EPS], spare)
            if not (step < np.inf and step2 < np.inf):
                end = _OUT_OF_REACH if rule == _POLYAK else _DIVERGED
                break
            _move(dual, one, grad, step, p)
            _move(dual2, two, grad2, step2, p)
            k += 1
        # The check that the next step would make.
        if end == _RUNNING and not absolute_sum(one) + absolute_sum(two) < np.inf:
            end = _DIVERGED
        return k, end

    return follow


@compiled
def _multiply(Qt, Kt, Wt):
    """``Wt[b] = sum_k Qt[k, b] Kt[k]``, the transpose of K Q'."""
    rank, dp = Kt.shape
    weigh_rows(Qt.ctypes.data, 1, dp, Kt.ctypes.data, 0, dp, Wt.ctypes.data, len(Wt), rank)


@compiled
def _pull_through(factor, G, out):
    """``out[k] = sum_b factor[k, b] G[b]``: the gradient by the other factor."""
    rank, dp = factor.shape
    weigh_rows(factor.ctypes.data, dp, 1, G.ctypes.data, 0, dp, out.ctypes.data, rank, len(G))


@compiled
def _check(gradient, second):
    total = absolute_sum(gradient) + absolute_sum(second)
    if total == 0.0:
        return _ZERO
    return _RUNNING if total < np.inf else _DIVERGED


@compiled
def _find_step(g, log_scale, p, rule, lr, eps, spare):
    """The constant or the normalized step, in units of the mantissa."""
    top = largest(g)
    if top == 0.0:
        return 0.0
    if rule == _CONSTANT:
        return lr * exponential(log_scale)
    q = p / (p - 1.0)
    norm = top * raise_one(power_sum(g, 1.0 / top, q, spare[: len(g)]), 1.0 / q)
    if eps:
        norm += eps * exponential(-log_scale)
    return lr / norm


@compiled
def _find_polyak_step(first, second, log_scale, p, target, numbers, spare):
    """Polyak's step in units of the mantissa; infinite if nothing bounds it.

    A tensor is its ``(u, w, g)``; the second may be empty. The search for the root starts from the
    last step of the run.
    """
    cap = numbers[_MAX_LR]
    cap = cap * math.exp(log_scale) if cap < np.inf else cap
    if p == 2.0 and 0.0 < target < np.inf:
        g, g2 = first[2], second[2]
        squares = power_sum(g, 1.0, 2.0, spare[: len(g)])
        squares += power_sum(g2, 1.0, 2.0, spare[: len(g2)])
        step = min(_find_classical_step(target, 1.0, squares), cap)
    else:
        args = (first, second, p, spare)
        step, log_step = _find_root(target, cap, numbers[_GUESS], args)
        if math.isfinite(log_step):
            numbers[_GUESS] = log_step
    numbers[_CAPPED] += step == cap and cap < np.inf
    return step


@compiled
def _decrease_both(step, args):
    """< g, w - to_primal(u - step g) > of both tensors."""
    first, second, p, spare = args
    return _decrease(first, step, p, spare) + _decrease(second, step, p, spare)


@compiled
def _decrease(tensor, step, p, spare):
    u, w, g = tensor
    moved = spare[: len(g)]
    for j in range(len(g)):
        moved[j] = u[j] - step * g[j]
    signed_powers(moved, 1.0 / (p - 1.0), moved)
    total = 0.0
    for j in range(len(g)):
        total += g[j] * (w[j] - moved[j])
    return total


_find_root = polyak.make_step_finder(_decrease_both, compiled)
_find_classical_step = compiled(polyak.find_classical_step)


@compiled
def _move(u, w, g, step, p):
    for j in range(len(u)):
        u[j] -= step * g[j]
    signed_powers(u, 1.0 / (p - 1.0), w)


_real, _whole = types.float64, types.int64
_vector, _matrix, _stack = _real[::1], _real[:, ::1], _real[:, :, ::1]
_data = types.NamedTuple((_stack, _stack, _matrix, _matrix, _vector), Data)
MEMORY = types.NamedTuple((*(_matrix,) * 9, _whole[::1], *(_vector,) * 5), Memory)
_SIGNATURE = types.UniTuple(_whole, 2)(
    *(_whole[::1], _whole[::1], _vector, _data),
    *(_matrix, _matrix, _matrix, _matrix, _stack, MEMORY),
)

_OWN = (record, settings, polyak)
SOURCES = (*attention.SOURCES, *(str(module.__file__) for module in _OWN), __file__)
advance = CompiledFunction(_make_loop, _SIGNATURE, SOURCES)
