"""The compiled step on dense CPU tensors: a whole batch in one call, no temporaries.

    x  = scale_1 scale_2 g + coupled u              (momentum: b <- mu b + x,  x <- b or x + mu b)
    u' = decay u - lr x                             (Adam: x = m^ / (sqrt(v^) + eps))
    w' = to_primal(u')  where u' differs from u,  w elsewhere, bit for bit

for float32 weights, and for bfloat16 and float16 ones, whose u is float32. The last two lines are
in ``compiled_move.py``, and for half precision and centres in ``compiled_image.py``; Adam's x is in
``compiled_direction.py``. The functions
are those of ``plain.py``, which documents their arguments; ``reference.py`` has the formulas that
both are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormargin.geometry import LpPotential
from mirrormargin.geometry.float32_kernels import (
    BLOCK,
    KernelFamily,
    kernel_family,
    open_job,
    run,
    take_chunk,
)
from mirrormargin.geometry.float32_memory import compiled, floats, fma, offset
from mirrormargin.geometry.float32_norms import scaled_power_sums as sum_float32_powers
from mirrormargin.geometry.float32_powers import power_constants, power_tensors
from mirrormargin.optim import compiled_direction, compiled_image
from mirrormargin.optim.compiled_direction import (
    adam_direction,
    amsgrad_direction,
    hold_block,
)
from mirrormargin.optim.compiled_image import (
    Form,
    find_address,
    find_form,
    move_image,
    open_gradient,
)
from mirrormargin.optim.compiled_move import FREE_ROW, add_dual, add_kept_dual, move, move_kind
from mirrormargin.optim.dual_state import WITHOUT_DUAL

__all__ = ["mirror_adam", "mirror_descent", "scaled_power_sums", "to_dual", "to_primal"]

takes_masks = True

_SOURCES = (*compiled_image.SOURCES, *compiled_direction.SOURCES, __file__)

f32 = np.float32

# Rows of pointers, columns of scalars, options; power constants follow the options.
_WEIGHT, _GRADIENT, _DUAL, _CENTER, _MASK, _BUFFER, _BUFFER_SQ, _BUFFER_MAX = range(8)
_SCALE_1, _SCALE_2, _LR, _COUPLED = range(4)
_CORRECTION_SQ = 3  # Adam's, in the column where descent has its coupled decay
_DECAY, _MOMENTUM, _NESTEROV = range(3)
_BETA1, _BETA2, _EPS, _SIGN, _AMSGRAD = range(1, 6)
_STREAMS = 6
_POWER = 7

# From so many values on, what a step of Adam writes has left the cache before anyone reads it.
# Descent does not stream: many of its steps are too short to move every u of a block.
_MIN_STREAMED = 4_000_000

_LEAST_KIND = min(map(move_kind, WITHOUT_DUAL))


def mirror_descent(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    buffers: list[Tensor] | None,
    *,
    potential: LpPotential,
    grad_scales: list[tuple[float, float]],
    lrs: list[float],
    coupled_decays: list[float],
    decay: float,
    momentum: float,
    nesterov: bool,
    centers: list[Tensor] | None = None,
    masks: list[Tensor | None] | None = None,
) -> None:
    """Take one step of mirror descent; arguments as in ``plain.py``.

    Entries where ``masks`` are False are held still: their gradients count as 0.
    """
    if _are_equal(grad_scales):  # mostly (1, 1)
        first, second = ([scale] * len(params) for scale in grad_scales[0])
    else:
        first, second = zip(*grad_scales, strict=True)
    scalars = _make_columns([first, second, lrs, coupled_decays])
    options = [decay, momentum, float(nesterov)]
    tensors = [params, grads, duals, centers, masks, buffers]
    _run(_descent_kernels, potential.p, tensors, scalars, options)


def mirror_adam(
    params: list[Tensor],
    grads: list[Tensor],
    duals: list[Tensor] | None,
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor] | None,
    *,
    potential: LpPotential,
    lrs: list[float],
    sq_corrections: list[float],
    decay: float,
    betas: tuple[float, float],
    eps: float,
    maximize: bool,
    centers: list[Tensor] | None = None,
    masks: list[Tensor | None] | None = None,
) -> None:
    """Take one step of MirrorAdam; arguments as in ``plain.py``, masks as above."""
    unused = [0.0] * len(params)
    scalars = _make_columns([unused, unused, lrs, sq_corrections])
    sign, amsgrad = -1.0 if maximize else 1.0, float(max_exp_avg_sqs is not None)
    options = [decay, *betas, eps, sign, amsgrad]
    tensors = [params, grads, duals, centers, masks, exp_avgs, exp_avg_sqs, max_exp_avg_sqs]
    _run(_adam_kernels, potential.p, tensors, scalars, options)


def scaled_power_sums(tensors: list[Tensor], exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """As in ``plain.py``."""
    return sum_float32_powers([x.float() for x in tensors], exponent)


def to_dual(weight: Tensor, potential: LpPotential) -> Tensor:
    """u of a tensor, in float32."""
    w = weight.float()
    return potential.to_dual(w) if potential.p in WITHOUT_DUAL else _power(w, potential.p - 1)


def to_primal(dual: Tensor, potential: LpPotential) -> Tensor:
    """w of a tensor in float32, to the bit as the step computes it from u."""
    if potential.p in WITHOUT_DUAL:
        return potential.to_primal(dual)
    return _power(dual, 1 / (potential.p - 1))


def _power(x: Tensor, r: float) -> Tensor:
    y = torch.empty_like(x)
    power_tensors([x], [y], r)
    return y


def _make_columns(columns: list[Sequence[float]]) -> np.ndarray:
    """The numbers of each tensor as a row; mostly the same for all, and then made at once."""
    scalars = np.empty((len(columns[0]), len(columns)))
    for k, column in enumerate(columns):
        scalars[:, k] = column[0] if _are_equal(column) else column
    return scalars


def _are_equal(values: Sequence[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _run(
    kernels: KernelFamily,
    p: float,
    tensors: list[Any],
    scalars: np.ndarray,
    options: list[float],
) -> None:
    """Run the kernel for p on tensors given role by role, weights first.

    A role may be absent, None, and so may a tensor of a role.
    """
    params, grads, _, centers = tensors[:4]
    assert params is not None
    assert grads is not None
    form = find_form(params[0].dtype, grads[0].dtype, centers is not None)
    pointers = np.zeros((len(tensors), len(params)), np.uint64)
    for row, role in zip(pointers, tensors, strict=True):
        if role is not None:
            row[:] = [0 if tensor is None else tensor.data_ptr() for tensor in role]
    numbers = np.zeros(_POWER)
    numbers[: len(options)] = options
    sizes = [w.numel() for w in params]
    numbers[_STREAMS] = sum(sizes) >= _MIN_STREAMED
    numbers = np.concatenate([numbers, power_constants(1 / (p - 1))])
    # Before the kernel, which drives all that Python knows of the tensors out of the cache.
    torch.autograd.graph.increment_version(params)
    run(kernels[_encode(move_kind(p), form)], sizes, pointers, scalars, numbers)


_FORMS = 64  # more than there are kinds


def _encode(kind: int, form: int) -> int:
    """The kind of exponent and the form of weights in one number: each has a kernel of its own."""
    return _FORMS * form + kind - _LEAST_KIND


def _decode(code: int) -> tuple[int, Form]:
    return code % _FORMS + _LEAST_KIND, Form(code // _FORMS)


@kernel_family(*_SOURCES)
def _descent_kernels(version, code):
    kind, form = _decode(code)
    in_place, dtype, grad_dtype = form.is_in_place, form.dtype, form.grad_dtype
    centered = form.is_centered

    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        decay = f32(options[_DECAY])
        momentum, nesterov = f32(options[_MOMENTUM]), options[_NESTEROV] != 0
        power = options[_POWER:]
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            s1, s2 = f32(scalars[tensor, _SCALE_1]), f32(scalars[tensor, _SCALE_2])
            lr, coupled = f32(scalars[tensor, _LR]), f32(scalars[tensor, _COUPLED])
            mask = pointers[_MASK, tensor]
            plain = momentum == 0 and coupled == 0 and s1 == 1 and mask == 0
            for low in range(start, stop, BLOCK):
                num = min(BLOCK, stop - low)
                w = find_address(dtype, pointers[_WEIGHT, tensor], low)
                g = find_address(grad_dtype, pointers[_GRADIENT, tensor], low)
                g = open_gradient(grad_dtype, g, scratch, num)
                if mask != 0:
                    hold_block(g, scratch, mask + np.uint64(low), num)
                    g = scratch  # the power needs that row only after u has moved
                dual = offset(pointers[_DUAL, tensor], low)
                x, rate = g, s2 * lr
                if not plain:
                    x, rate = offset(scratch, FREE_ROW * BLOCK), lr
                    _scale(g, x, num, s1, s2)
                    if coupled != 0:
                        if in_place:
                            add_dual(kind, x, w, dual, num, coupled)
                        else:
                            add_kept_dual(x, dual, num, coupled)
                    if momentum != 0:
                        buffer = offset(pointers[_BUFFER, tensor], low)
                        _average(buffer, x, num, momentum, nesterov)
                if in_place:
                    move(kind, w, dual, x, num, decay, rate, power, scratch, False)
                else:
                    center = find_address(dtype, pointers[_CENTER, tensor], low)
                    move_image(
                        kind, dtype, centered, w, dual, x, center, num, decay, rate, power, scratch
                    )
            k = take_chunk(counters)

    return work


@compiled
def _scale(g_address, x_address, num, s1, s2):
    g, x = floats(g_address, num), floats(x_address, num)
    for i in range(num):
        x[i] = (g[i] * s1) * s2


@compiled
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


@kernel_family(*_SOURCES)
def _adam_kernels(version, code):
    kind, form = _decode(code)
    in_place, dtype, grad_dtype = form.is_in_place, form.dtype, form.grad_dtype
    centered = form.is_centered

    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        decay = f32(options[_DECAY])
        beta1, rest1 = f32(options[_BETA1]), f32(1 - options[_BETA1])
        beta2, rest2 = f32(options[_BETA2]), f32(1 - options[_BETA2])
        eps = f32(options[_EPS])
        sign, amsgrad = f32(options[_SIGN]), options[_AMSGRAD] != 0
        power, streams = options[_POWER:], options[_STREAMS] != 0
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            lr, correction = f32(scalars[tensor, _LR]), f32(scalars[tensor, _CORRECTION_SQ])
            mask = pointers[_MASK, tensor]
            for low in range(start, stop, BLOCK):
                num, x = min(BLOCK, stop - low), offset(scratch, FREE_ROW * BLOCK)
                g = find_address(grad_dtype, pointers[_GRADIENT, tensor], low)
                g = open_gradient(grad_dtype, g, scratch, num)
                held = mask + np.uint64(low) if mask != 0 else mask
                m, v = (
                    offset(pointers[_BUFFER, tensor], low),
                    offset(pointers[_BUFFER_SQ, tensor], low),
                )
                if amsgrad:
                    v_max = offset(pointers[_BUFFER_MAX, tensor], low)
                    amsgrad_direction(
                        x, g, m, v, v_max, held, num, sign, beta1, rest1, beta2, rest2,
                        correction, eps,
                    )  # fmt: skip
                else:
                    adam_direction(
                        x, g, m, v, held, num, sign, beta1, rest1, beta2, rest2, correction, eps
                    )
                w = find_address(dtype, pointers[_WEIGHT, tensor], low)
                dual = offset(pointers[_DUAL, tensor], low)
                if in_place:
                    move(kind, w, dual, x, num, decay, lr, power, scratch, streams)
                else:
                    center = find_address(dtype, pointers[_CENTER, tensor], low)
                    move_image(
                        kind, dtype, centered, w, dual, x, center, num, decay, lr, power, scratch
                    )
            k = take_chunk(counters)

    return work
