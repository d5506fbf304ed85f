"""The compiled move of one block of weights that are written from u, in another form than u.

    u' = decay u - lr x
    w' = c + to_primal(u')   where u' differs from u,  w elsewhere, bit for bit

Here w is of half precision, rounded to nearest, or has a centre c, or both; u is state at every p.
Half-precision weights and gradients are opened block by block, so that there are no copies of whole
tensors.
"""

from __future__ import annotations

import numpy as np
import torch

from mirrormargin.geometry.float32_kernels import BLOCK
from mirrormargin.geometry.float32_memory import (
    bits_float,
    compiled,
    float_bits,
    floats,
    inlined,
    offset,
    shorts,
)
from mirrormargin.geometry.float32_powers import power_block
from mirrormargin.optim import compiled_move
from mirrormargin.optim.compiled_move import (
    FREE_ROW,
    P2,
    P3,
    P3_2,
    ROW_NEW,
    hidden_zero,
    keep,
    move_euclidean,
)

__all__ = ["IN_PLACE", "Form", "find_address", "find_form", "move_image", "open_gradient"]

SOURCES = (*compiled_move.SOURCES, __file__)

i16, i32, f32 = np.int16, np.int32, np.float32

# In which form weights are kept beside u. IN_PLACE is float32 without a centre, which
# ``compiled_move`` moves; the others are numbered by dtype, centre, and dtype of the gradients.
IN_PLACE = 0
_FLOAT32, _BFLOAT16, _FLOAT16 = range(3)
_DTYPES = {torch.float32: _FLOAT32, torch.bfloat16: _BFLOAT16, torch.float16: _FLOAT16}


def find_form(dtype: torch.dtype, grad_dtype: torch.dtype, is_centered: bool) -> int:
    """The number of a form."""
    if dtype is torch.float32 and not is_centered:
        return IN_PLACE
    return 1 + _DTYPES[dtype] + 3 * is_centered + 6 * _DTYPES[grad_dtype]


class Form:
    """What the number of a form says.

    Attributes:
        is_in_place: Whether ``compiled_move`` moves such weights.
        dtype: Of weights and centre, as a number.
        grad_dtype: Of gradients.
        is_centered: Whether there is a centre.
    """

    def __init__(self, number: int) -> None:
        self.is_in_place = number == IN_PLACE
        rest = max(number - 1, 0)
        self.dtype, self.is_centered, self.grad_dtype = rest % 3, rest // 3 % 2 == 1, rest // 6


@inlined
def find_address(dtype, address, count):
    """The address ``count`` values further on."""
    if dtype == _FLOAT32:
        return offset(address, count)
    return address + np.uint64(2 * count)


@inlined
def open_gradient(dtype, address, scratch, num):
    """The address of a block of gradients in float32: its own, or the first row of scratch memory.

    The power needs that row only after u has moved.
    """
    if dtype == _FLOAT32:
        return address
    _widen_block(dtype, address, scratch, num)
    return scratch


@inlined
def move_image(kind, dtype, is_centered, w, dual, x, center, num, decay, lr, power, scratch):
    """Move u, then write w'; the row of x may be overwritten."""
    old, value = offset(scratch, ROW_NEW * BLOCK), offset(scratch, FREE_ROW * BLOCK)
    _copy(dual, old, num)
    move_euclidean(dual, x, num, decay, lr)
    if kind == P2:
        _copy(dual, value, num)
    elif kind == P3_2:
        _square(dual, value, num)
    elif kind == P3:
        _root(dual, value, num)
    else:
        power_block(kind, dual, value, num, power, scratch)
    if is_centered:
        _widen_block(dtype, center, scratch, num)  # the power is done with that row
        _add(value, scratch, num)
    if dtype == _FLOAT32:
        _write_floats(w, value, old, dual, num)
    elif dtype == _BFLOAT16:
        _write_bfloats(w, value, old, dual, num)
    else:
        _write_halves(w, value, old, dual, num)


@compiled
def _copy(x_address, y_address, num):
    x, y = floats(x_address, num), floats(y_address, num)
    for i in range(num):
        y[i] = x[i]


@compiled
def _add(x_address, y_address, num):
    x, y = floats(x_address, num), floats(y_address, num)
    for i in range(num):
        x[i] = y[i] + x[i]


@compiled
def _square(x_address, y_address, num):
    x, y = floats(x_address, num), floats(y_address, num)
    for i in range(num):
        y[i] = x[i] * abs(x[i])


@compiled
def _root(x_address, y_address, num):
    x, y = floats(x_address, num), floats(y_address, num)
    for i in range(num):
        y[i] = np.copysign(np.sqrt(abs(x[i])), x[i])


@compiled
def _write_floats(w_address, value_address, old_address, dual_address, num):
    w, value = floats(w_address, num), floats(value_address, num)
    old, dual = floats(old_address, num), floats(dual_address, num)
    zero = hidden_zero(num)
    for i in range(num):
        w[i] = keep(w[i], value[i], old[i], dual[i], zero)


@compiled
def _write_bfloats(w_address, value_address, old_address, dual_address, num):
    w, value = shorts(w_address, num), floats(value_address, num)
    old, dual = floats(old_address, num), floats(dual_address, num)
    for i in range(num):
        w[i] = _keep_bits(w[i], _to_bfloat16(value[i]), old[i], dual[i])


@compiled
def _write_halves(w_address, value_address, old_address, dual_address, num):
    w, value = shorts(w_address, num), floats(value_address, num)
    old, dual = floats(old_address, num), floats(dual_address, num)
    for i in range(num):
        w[i] = _keep_bits(w[i], _to_float16(value[i]), old[i], dual[i])


@inlined
def _keep_bits(before, bits, u, moved):
    return before if (moved == u) | (u != u) else bits


@inlined
def _widen_block(dtype, source_address, target_address, num):
    if dtype == _FLOAT32:
        _copy(source_address, target_address, num)
    elif dtype == _BFLOAT16:
        _widen_bfloats(source_address, target_address, num)
    else:
        _widen_halves(source_address, target_address, num)


@compiled
def _widen_bfloats(source_address, target_address, num):
    source, target = shorts(source_address, num), floats(target_address, num)
    for i in range(num):
        target[i] = bits_float(i32(i32(source[i]) << i32(16)))


@compiled
def _widen_halves(source_address, target_address, num):
    source, target = shorts(source_address, num), floats(target_address, num)
    for i in range(num):
        target[i] = _from_float16(source[i])


# Rounding to nearest, ties to even, by the bits of float32: 8 + 23 of exponent and significand
# against 8 + 7 of bfloat16 and 5 + 10 of float16.


@inlined
def _to_bfloat16(x):
    bits = float_bits(x)
    rounded = i32(bits + i32(0x7FFF) + (i32(bits >> i32(16)) & i32(1))) >> i32(16)
    is_nan = x != x
    return i16(i32(bits >> i32(16)) | i32(0x40)) if is_nan else i16(rounded)


_LEAST_INFINITE = i32((127 + 16) << 23)  # from 2^16 on; below, rounding up may give infinity too
_LEAST_NORMAL = i32((127 - 14) << 23)
_REBIAS = i32((15 - 127) << 23)
# Adding 2^-1 to less than 2^-14 rounds to a multiple of 2^-24, which the low bits count.
_HALF, _HALF_BITS = f32(0.5), i32(126 << 23)


@inlined
def _to_float16(x):
    bits = float_bits(x)
    size = i32(bits & i32(0x7FFFFFFF))
    sign = i32(i32(bits >> i32(16)) & i32(0x8000))
    odd = i32(i32(size >> i32(13)) & i32(1))
    normal = i32(i32(size + _REBIAS + i32(0xFFF) + odd) >> i32(13))
    denormal = i32(float_bits(f32(bits_float(size) + _HALF)) - _HALF_BITS)
    finite = denormal if size < _LEAST_NORMAL else normal
    special = i32(0x7E00) if x != x else i32(0x7C00)
    rounded = special if size >= _LEAST_INFINITE else finite
    return i16(rounded | sign)


_MAGIC = f32(2.0**-14)


@inlined
def _from_float16(bits):
    size = i32(i32(bits & i16(0x7FFF)) << i32(13))
    exponent = i32(size & i32(0x7C00 << 13))
    normal = i32(size + i32((127 - 15) << 23))
    infinite = i32(normal + i32((128 - 16) << 23))
    # A denormal one: with a leading one put before its bits, which is then taken away.
    small = f32(bits_float(i32(normal + i32(1 << 23))) - _MAGIC)
    value = bits_float(infinite if exponent == i32(0x7C00 << 13) else normal)
    size_of = small if exponent == i32(0) else value
    sign = i32(i32(bits) & i32(-0x80000000))  # int16 is widened with its sign
    return bits_float(i32(float_bits(size_of) | sign))
