r"""Compiled loops over float64 arrays: powers, exponentials, sums, and products with few rows.

    |x|^r = 2^(r e + r log2 m),   |x| = 2^e m,   m in [sqrt(1/2), sqrt(2))
    log2 m = (2 / ln 2) artanh(s),   s = (m - 1) / (m + 1),       2^t = 2^n 2^f,   |f| <= 1/2

r e is carried with the rounding of its product, so that a power is within a few ulp as long as r is
of the order of ten. All of it is arithmetic on floats and bits that LLVM turns into vector
instructions, three to ten times as fast as the library's functions.

Addresses are given as integers: passing an array to a function that is not inlined costs more than
a short loop.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit
from numba.core import cgutils, types

from mirrormargin.geometry.compiled import fma

__all__ = [
    "WIDTH",
    "absolute_sum",
    "exponentials",
    "largest",
    "leaf",
    "power_sum",
    "signed_powers",
    "weigh_rows",
]

WIDTH = 4  # of the vectors of weigh_rows: rows are padded to a multiple of it
_FAR = 4  # vectors that it adds up side by side, to hide the latency of an addition

# Called by other compiled functions alone, so they need no wrappers.
_plain: Any = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
leaf: Any = njit(**_plain)
_inlined: Any = njit(inline="always", error_model="numpy")
# Sums and maxima of nonnegative numbers, in whichever order is fastest.
_sum: Any = njit(fastmath={"reassoc", "nsz"}, **_plain)
_maximum: Any = njit(fastmath={"nnan", "nsz"}, **_plain)
_intrinsic: Any = extending.intrinsic


@_intrinsic
def _bits(typing, value):
    """The 64 bits of a float64."""
    return types.uint64(types.float64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(64)
    )


@_intrinsic
def _from_bits(typing, value):
    return types.float64(types.uint64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.DoubleType()
    )


def _pattern(value: float) -> np.uint64:
    return np.float64(value).view(np.uint64)


_MANTISSA = np.uint64(52)  # bits of a mantissa
_BIAS = np.uint64(1023)
_ONE, _SIGN = _pattern(1.0), _pattern(-0.0)
_HALF_ROOT = np.uint64((int(_pattern(math.sqrt(0.5))) - int(_ONE)) % 2**64)
_TWO52 = _pattern(2.0**52)
# Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits.
_ROUND = 1.5 * 2.0**52
_ROUND_BITS = _pattern(_ROUND)
_LEAST, _MOST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
# log2(e) in two parts: the second is what rounding took from the first.
_LOG2E, _LOG2E_REST = 1.4426950408889634, 2.0355273740931033e-17
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8, _A9, _A10 = (
    2 / math.log(2) / (2 * k + 1) for k in range(11)
)
_E0, _E1, _E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (
    math.log(2) ** k / math.factorial(k) for k in range(14)
)


@_inlined
def _exp2(rounded, f):
    """2^(n + f), where ``rounded`` is n + 1.5 * 2^52."""
    # In pairs of pairs (Estrin): one long chain of operations would wait for each of them.
    f2 = f * f
    f4 = f2 * f2
    first = fma(fma(_E3, f, _E2), f2, fma(_E1, f, _E0))
    second = fma(fma(_E7, f, _E6), f2, fma(_E5, f, _E4))
    third = fma(fma(_E11, f, _E10), f2, fma(_E9, f, _E8))
    y = fma(fma(fma(_E13, f, _E12), f4, third), f4 * f4, fma(second, f4, first))
    return y * _from_bits((_bits(rounded) - _ROUND_BITS + _BIAS) << _MANTISSA)


@_inlined
def _power(x, r):
    """x^r for x >= 0; zero where x or the result is below the normal numbers.

    inf from 2^1023.5 on; inf and nan stay what they are.
    """
    bits = _bits(x)
    biased = (bits - _HALF_ROOT) >> _MANTISSA
    m = _from_bits(bits - ((biased << _MANTISSA) - _ONE))
    e = _from_bits(biased | _TWO52) - (2.0**52 + 1023.0)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    first = fma(fma(_A3, z, _A2), z2, fma(_A1, z, _A0))
    second = fma(fma(_A7, z, _A6), z2, fma(_A5, z, _A4))
    log = fma(fma(fma(fma(_A10, z, _A9), z, _A8), z4, second), z4, first) * s
    high = e * r
    low = fma(e, r, -high)
    t = fma(r, log, high)
    rounded = t + _ROUND
    y = _exp2(rounded, (high - (rounded - _ROUND)) + fma(r, log, low))
    y = y if t > -1022.0 else 0.0
    y = y if t < 1023.5 else np.inf
    y = y if x >= _LEAST else 0.0
    return y if x <= _MOST else x


@_inlined
def _with_sign(size, x):
    return _from_bits(_bits(size) | (_bits(x) & _SIGN))


@leaf
def signed_powers(x, r, out):
    """``out = sign(x) |x|^r``, with exact or correctly rounded ways for r = 1, 2 and 1/2."""
    if r == 1.0:
        for j in range(len(out)):
            out[j] = x[j]
    elif r == 2.0:
        for j in range(len(out)):
            out[j] = x[j] * abs(x[j])
    elif r == 0.5:
        for j in range(len(out)):
            out[j] = _with_sign(math.sqrt(abs(x[j])), x[j])
    else:
        for j in range(len(out)):
            out[j] = _with_sign(_power(abs(x[j]), r), x[j])


@leaf
def exponentials(x, out):
    """``out = e^x`` for x <= 0, zero below the normal numbers; nan stays nan."""
    for j in range(len(out)):
        t = x[j] * _LOG2E
        rounded = t + _ROUND
        f = fma(x[j], _LOG2E, -(rounded - _ROUND)) + x[j] * _LOG2E_REST
        out[j] = 0.0 if t <= -1022.0 else _exp2(rounded, f)


@_maximum
def largest(x):
    """max |x_j|. Without a promise for nan: look at :func:`absolute_sum` first."""
    top = 0.0
    for j in range(len(x)):
        size = abs(x[j])
        top = size if size > top else top
    return top


@_sum
def absolute_sum(x):
    """sum |x_j|; not finite if an entry is not."""
    total = 0.0
    for j in range(len(x)):
        total += abs(x[j])
    return total


@_sum
def _add_up(x):
    total = 0.0
    for j in range(len(x)):
        total += x[j]
    return total


@leaf
def power_sum(x, factor, r, out):
    """``sum_j (factor |x_j|)^r``; ``out`` is overwritten."""
    if r == 2.0:
        for j in range(len(x)):
            size = factor * x[j]
            out[j] = size * size
    elif r == 3.0:
        for j in range(len(x)):
            size = factor * abs(x[j])
            out[j] = size * size * size
    elif r == 1.5:
        for j in range(len(x)):
            size = factor * abs(x[j])
            out[j] = size * math.sqrt(size)
    else:
        for j in range(len(x)):
            out[j] = _power(factor * abs(x[j]), r)
    return _add_up(out)


_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(32)


def _emit_rows(count: int) -> Any:
    """An intrinsic that makes ``count`` vectors of a weighted sum of rows."""

    def emit(context, builder, signature, args):
        out, weights, weight_stride, rows, row_stride, num = args
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        splat = ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH)
        vector_fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{WIDTH}f64"
        )
        bytes_each = [ir.Constant(ir.IntType(64), 8 * WIDTH * k) for k in range(count)]
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]
        for place in sums:
            builder.store(ir.Constant(_VECTOR, [0.0] * WIDTH), place)
        with cgutils.for_range(builder, num) as loop:
            address = builder.add(weights, builder.mul(loop.index, weight_stride))
            weight = builder.load(builder.inttoptr(address, _DOUBLE.as_pointer()))
            one = builder.insert_element(undefined, weight, ir.Constant(_INDEX, 0))
            weight = builder.shuffle_vector(one, undefined, splat)
            row = builder.add(rows, builder.mul(loop.index, row_stride))
            for place, shift in zip(sums, bytes_each, strict=True):
                pointer = builder.inttoptr(builder.add(row, shift), _VECTOR.as_pointer())
                entries = builder.load(pointer, align=8)
                builder.store(
                    builder.call(vector_fma, [weight, entries, builder.load(place)]), place
                )
        for place, shift in zip(sums, bytes_each, strict=True):
            pointer = builder.inttoptr(builder.add(out, shift), _VECTOR.as_pointer())
            builder.store(builder.load(place), pointer, align=8)
        return context.get_dummy_value()

    @_intrinsic
    def add_rows(typing, out, weights, weight_stride, rows, row_stride, num):
        integer = types.int64
        return types.void(integer, integer, integer, integer, integer, integer), emit

    return add_rows


_one_vector, _many_vectors = _emit_rows(1), _emit_rows(_FAR)


@leaf
def weigh_rows(weights, weight_block, weight_stride, rows, row_block, width, out, blocks, num):
    """For each block i: ``out[i, :] = sum_k weights[i, k] rows[i, k, :]``, rows of ``width``.

    ``weights``, ``rows`` and ``out`` are addresses. Entry (i, k) of the weights is
    ``i * weight_block + k * weight_stride`` doubles further on, row (i, k)
    ``i * row_block + k * width``.
    """
    for i in range(blocks):
        first, start, target = 8 * i * weight_block, 8 * i * row_block, 8 * i * width
        j = 0
        while j + _FAR * WIDTH <= width:
            _many_vectors(
                out + target + 8 * j,
                weights + first,
                8 * weight_stride,
                rows + start + 8 * j,
                8 * width,
                num,
            )
            j += _FAR * WIDTH
        while j < width:
            _one_vector(
                out + target + 8 * j,
                weights + first,
                8 * weight_stride,
                rows + start + 8 * j,
                8 * width,
                num,
            )
            j += WIDTH
