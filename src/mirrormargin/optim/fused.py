"""The compiled step on float32 CPU tensors: every tensor of a group in one call, no temporaries.

    x  = scale_1 scale_2 g + decay_coupled u        (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

For p = 1.5, 2 and 3 the dual variable is recomputed from w by a square or a square root; for
every other p it is read from the optimizer's state. The twin is ``plain.py``, the oracle
``reference.py``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from mirrormargin.geometry.compiled import (
    BLOCK,
    Kernel,
    bits_float,
    float_bits,
    floats,
    fma,
    inlined,
    leaf,
    offset,
    open_job,
    run,
    take_chunk,
)
from mirrormargin.geometry.kernels import (
    HIGH_POWER,
    exponent_high,
    exponent_low,
    finish_high,
    finish_low,
    power_constants,
    power_plain,
    split_high,
    split_low,
)

__all__ = ["fused_mirror_adam", "fused_mirror_descent"]

f32, i32 = np.float32, np.int32

_GENERAL, _P2, _P3_2, _P3 = range(4)
_KINDS = {2.0: _P2, 1.5: _P3_2, 3.0: _P3}

# Rows of pointers, columns of scalars, options; power constants follow the options.
_WEIGHT, _GRADIENT, _DUAL, _BUFFER, _BUFFER_SQ, _BUFFER_MAX = range(6)
_SCALE_1, _SCALE_2, _LR, _COUPLED = range(4)
_KIND, _DECAY, _MOMENTUM, _NESTEROV = range(4)
_BETA1, _BETA2, _EPS, _SIGN, _AMSGRAD = range(2, 7)
_POWER = 7
_CORRECTION_SQ = 3  # of Adam's second moment, in the column where descent keeps its coupled decay

# Rows of scratch memory above the three that power_block uses.
_ROW_X, _ROW_NEW = range(3, 5)


@inlined
def _keep(old, value, u, moved, zero):
    """The weight after the move: untouched, to the bit, where the dual did not change.

    Written without a branch, and with a zero that the compiler cannot see through: it would
    make a masked store of "keep the old value", which some processors run 20 times slower.
    """
    chosen = old if (moved == u) | (u != u) else value
    return bits_float(i32(float_bits(chosen) | zero))


@inlined
def _hidden_zero(num):
    return i32(num >> 32)


@inlined
def _signed_root(x):
    return math.copysign(math.sqrt(abs(x)), x)


@inlined
def _signed_square(x):
    return x * abs(x)


@inlined
def _identity(x):
    return x


def _closed_form(to_dual, to_primal):
    """The pair (add c u to x, move) for an exponent whose u is computed from w on the spot."""

    @leaf
    def add_dual(x_address, w_address, num, c):
        x, w = floats(x_address, num), floats(w_address, num)
        for i in range(num):
            x[i] = fma(c, to_dual(w[i]), x[i])

    @leaf
    def move(w_address, x_address, num, decay, lr):
        w, x = floats(w_address, num), floats(x_address, num)
        zero = _hidden_zero(num)
        for i in range(num):
            old = w[i]
            u = to_dual(old)
            moved = fma(-lr, x[i], decay * u)
            w[i] = _keep(old, to_primal(moved), u, moved, zero)

    return add_dual, move


_add_dual_2, _move_2 = _closed_form(_identity, _identity)
_add_dual_3_2, _move_3_2 = _closed_form(_signed_root, _signed_square)
_add_dual_3, _move_3 = _closed_form(_signed_square, _signed_root)


@leaf
def _add_dual(kind, x, w, dual, num, c):
    if kind == _GENERAL:
        _add_dual_2(x, dual, num, c)
    elif kind == _P2:
        _add_dual_2(x, w, num, c)
    elif kind == _P3_2:
        _add_dual_3_2(x, w, num, c)
    else:
        _add_dual_3(x, w, num, c)


@leaf
def _move(kind, w, dual, x, num, decay, lr, power, scratch):
    """u' = decay u - lr x and w' = to_primal(u'), leaving entries with u' = u alone."""
    if kind == _GENERAL:
        _move_general(w, dual, x, num, decay, lr, power, scratch)
    elif kind == _P2:
        _move_2(w, x, num, decay, lr)
    elif kind == _P3_2:
        _move_3_2(w, x, num, decay, lr)
    else:
        _move_3(w, x, num, decay, lr)


@leaf
def _move_general(w, dual, x, num, decay, lr, power, scratch):
    """The stages of ``power_block``; the first also moves u, the last also writes u and w.

    Memory traffic and arithmetic overlap only inside one loop, and here both are long.
    """
    new = offset(scratch, _ROW_NEW * BLOCK)
    if power[0] >= HIGH_POWER:
        top = _move_split_high(dual, x, new, num, decay, lr, f32(power[8]), scratch)
        if top < power[10]:
            exponent_high(num, power, scratch)
            _finish_commit_high(w, dual, new, num, scratch)
            return
    else:
        bottom, top = _move_split_low(dual, x, new, num, decay, lr, scratch)
        if top < power[10] and bottom >= power[9]:
            exponent_low(num, power, scratch)
            _finish_commit_low(w, dual, new, num, scratch)
            return
    power_plain(new, scratch, num, power[0])
    _commit(w, dual, new, scratch, num)


@leaf
def _move_split_high(dual_address, x_address, new_address, num, decay, lr, clamp, scratch):
    dual, x, new = floats(dual_address, num), floats(x_address, num), floats(new_address, num)
    exponent = floats(scratch, num)
    s_high, s_low = floats(offset(scratch, BLOCK), num), floats(offset(scratch, 2 * BLOCK), num)
    top = i32(0)
    for i in range(num):
        moved = fma(-lr, x[i], decay * dual[i])
        new[i] = moved
        a = abs(moved)
        top = max(top, float_bits(a))
        exponent[i], s_high[i], s_low[i] = split_high(a, clamp)
    return top


@leaf
def _move_split_low(dual_address, x_address, new_address, num, decay, lr, scratch):
    dual, x, new = floats(dual_address, num), floats(x_address, num), floats(new_address, num)
    exponent, ratio = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    bottom, top = i32(0x7FFFFFFF), i32(0)
    for i in range(num):
        moved = fma(-lr, x[i], decay * dual[i])
        new[i] = moved
        a = abs(moved)
        top = max(top, float_bits(a))
        bottom = min(bottom, float_bits(a))
        exponent[i], ratio[i] = split_low(a)
    return bottom, top


@leaf
def _finish_commit_high(w_address, dual_address, new_address, num, scratch):
    w, dual, new = floats(w_address, num), floats(dual_address, num), floats(new_address, num)
    rounded, fraction = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    zero = _hidden_zero(num)
    for i in range(num):
        u, moved, old = dual[i], new[i], w[i]
        value = finish_high(rounded[i], fraction[i], moved)
        dual[i] = moved
        w[i] = _keep(old, value, u, moved, zero)


@leaf
def _finish_commit_low(w_address, dual_address, new_address, num, scratch):
    w, dual, new = floats(w_address, num), floats(dual_address, num), floats(new_address, num)
    rounded, fraction = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    zero = _hidden_zero(num)
    for i in range(num):
        u, moved, old = dual[i], new[i], w[i]
        value = finish_low(rounded[i], fraction[i], moved)
        dual[i] = moved
        w[i] = _keep(old, value, u, moved, zero)


@leaf
def _commit(w_address, dual_address, new_address, y_address, num):
    w, dual = floats(w_address, num), floats(dual_address, num)
    new, y = floats(new_address, num), floats(y_address, num)
    zero = _hidden_zero(num)
    for i in range(num):
        u, moved, old, value = dual[i], new[i], w[i], y[i]
        dual[i] = moved
        w[i] = _keep(old, value, u, moved, zero)


@Kernel
def _descent_kernel(version):
    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        kind, decay = int(options[_KIND]), f32(options[_DECAY])
        momentum, nesterov = f32(options[_MOMENTUM]), options[_NESTEROV] != 0
        power = options[_POWER:]
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            s1, s2 = f32(scalars[tensor, _SCALE_1]), f32(scalars[tensor, _SCALE_2])
            lr, coupled = f32(scalars[tensor, _LR]), f32(scalars[tensor, _COUPLED])
            plain = momentum == 0 and coupled == 0 and s1 == 1
            for low in range(start, stop, BLOCK):
                num = min(BLOCK, stop - low)
                w, g = (
                    offset(pointers[_WEIGHT, tensor], low),
                    offset(pointers[_GRADIENT, tensor], low),
                )
                dual = offset(pointers[_DUAL, tensor], low)
                if plain:
                    _move(kind, w, dual, g, num, decay, s2 * lr, power, scratch)
                    continue
                x = offset(scratch, _ROW_X * BLOCK)
                _scale(g, x, num, s1, s2)
                if coupled != 0:
                    _add_dual(kind, x, w, dual, num, coupled)
                if momentum != 0:
                    _average(offset(pointers[_BUFFER, tensor], low), x, num, momentum, nesterov)
                _move(kind, w, dual, x, num, decay, lr, power, scratch)
            k = take_chunk(counters)

    return work


@leaf
def _scale(g_address, x_address, num, s1, s2):
    g, x = floats(g_address, num), floats(x_address, num)
    for i in range(num):
        x[i] = (g[i] * s1) * s2


@leaf
def _average(buffer_address, x_address, num, momentum, nesterov):
    """b <- mu b + x, then x <- b, or x + mu b."""
    buffer, x = floats(buffer_address, num), floats(x_address, num)
    if nesterov:
        for i in range(num):
            average = fma(momentum, buffer[i], x[i])
            buffer[i] = average
            x[i] = fma(momentum, average, x[i])
    else:
        for i in range(num):
            average = fma(momentum, buffer[i], x[i])
            buffer[i] = average
            x[i] = average


@Kernel
def _adam_kernel(version):
    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        kind, decay = int(options[_KIND]), f32(options[_DECAY])
        beta2, rest1, rest2 = (
            f32(options[_BETA2]),
            f32(1 - options[_BETA1]),
            f32(1 - options[_BETA2]),
        )
        eps = f32(options[_EPS])
        sign, amsgrad = f32(options[_SIGN]), options[_AMSGRAD] != 0
        power = options[_POWER:]
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            lr, correction = f32(scalars[tensor, _LR]), f32(scalars[tensor, _CORRECTION_SQ])
            for low in range(start, stop, BLOCK):
                num, x = min(BLOCK, stop - low), offset(scratch, _ROW_X * BLOCK)
                g = offset(pointers[_GRADIENT, tensor], low)
                m, v = (
                    offset(pointers[_BUFFER, tensor], low),
                    offset(pointers[_BUFFER_SQ, tensor], low),
                )
                if amsgrad:
                    v_max = offset(pointers[_BUFFER_MAX, tensor], low)
                    _amsgrad_direction(
                        x, g, m, v, v_max, num, sign, rest1, beta2, rest2, correction, eps
                    )
                else:
                    _adam_direction(x, g, m, v, num, sign, rest1, beta2, rest2, correction, eps)
                w, dual = (
                    offset(pointers[_WEIGHT, tensor], low),
                    offset(pointers[_DUAL, tensor], low),
                )
                _move(kind, w, dual, x, num, decay, lr, power, scratch)
            k = take_chunk(counters)

    return work


@leaf
def _adam_direction(
    x_address, g_address, m_address, v_address, num, sign, rest1, beta2, rest2, correction, eps
):
    x, g = floats(x_address, num), floats(g_address, num)
    m, v = floats(m_address, num), floats(v_address, num)
    for i in range(num):
        gradient = sign * g[i]
        mean = fma(rest1, gradient - m[i], m[i])
        square = fma(rest2 * gradient, gradient, beta2 * v[i])
        m[i] = mean
        v[i] = square
        x[i] = mean / fma(math.sqrt(square), correction, eps)


@leaf
def _amsgrad_direction(
    x_address, g_address, m_address, v_address, v_max_address, num, sign, rest1, beta2, rest2,
    correction, eps,
):  # fmt: skip
    x, v_max = floats(x_address, num), floats(v_max_address, num)
    _adam_direction(
        x_address, g_address, m_address, v_address, num, sign, rest1, beta2, rest2, correction, eps
    )
    m, v = floats(m_address, num), floats(v_address, num)
    for i in range(num):
        largest = v_max[i] if v_max[i] > v[i] else v[i]
        v_max[i] = largest
        x[i] = m[i] / fma(math.sqrt(largest), correction, eps)


def fused_mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    buffers: list[Tensor | None],
    *,
    potential,
    grad_scales: list[float],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step on contiguous float32 CPU tensors; arguments as in ``plain.py``."""
    pointers = [_addresses(params), _addresses(grads), _addresses(duals), _addresses(buffers)]
    scalars = np.zeros((len(params), 4))
    # 1 / norm exceeds float32 for denormal gradients: two factors never do.
    tiny = np.abs(grad_scales) > 2.0**100
    scalars[:, _SCALE_1] = np.where(tiny, 2.0**100, 1.0)
    scalars[:, _SCALE_2] = np.asarray(grad_scales) / scalars[:, _SCALE_1]
    scalars[:, _LR], scalars[:, _COUPLED] = lrs, coupled_decays
    options = _options(potential.p, decay, [momentum, float(nesterov)])
    run(_descent_kernel, _sizes(params), pointers, scalars, options)
    torch.autograd.graph.increment_version(params)


def fused_mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor | None],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor | None],
    *,
    potential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
) -> None:
    """One step on contiguous float32 CPU tensors; arguments as in ``plain.py``."""
    amsgrad = any(t is not None for t in max_exp_avg_sqs)
    pointers = [
        _addresses(tensors)
        for tensors in (params, grads, duals, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
    ]
    scalars = np.zeros((len(params), 4))
    scalars[:, _LR], scalars[:, _CORRECTION_SQ] = lrs, sq_corrections
    options = _options(potential.p, decay, [*betas, eps, -1.0 if maximize else 1.0, float(amsgrad)])
    run(_adam_kernel, _sizes(params), pointers, scalars, options)
    torch.autograd.graph.increment_version(params)


def _options(p: float, decay: float, rest: list[float]) -> np.ndarray:
    head = np.zeros(_POWER)
    head[: 2 + len(rest)] = [_KINDS.get(p, _GENERAL), decay, *rest]
    return np.concatenate([head, power_constants(1 / (p - 1))])


def _addresses(tensors: list[Tensor] | list[Tensor | None]) -> list[int]:
    return [0 if t is None else t.data_ptr() for t in tensors]


def _sizes(tensors: list[Tensor]) -> list[int]:
    return [t.numel() for t in tensors]
