r"""Compiled loops over float64 arrays: powers, exponentials, sums, and products with few rows.

    |x|^r = 2^(r e + r log2 m),   |x| = 2^e m,   m in [sqrt(1/2), sqrt(2))
    log2 m = (2 / ln 2) artanh(s),   s = (m - 1) / (m + 1),       2^t = 2^n 2^f,   |f| <= 1/2

r e is carried with the rounding of its product, so that what is left is that of the logarithm: a
power is within 2.5 + 1.3 r ulp. All of it is arithmetic on floats and bits that LLVM turns into
vector instructions, three to ten times as fast as the library's functions.

Addresses are given as integers: passing an array to a function that is not inlined costs more than
a short loop.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit
from numba.core import cgutils, options, types

from mirrormargin.geometry import float32_memory
from mirrormargin.geometry.float32_memory import fma, inlined

__all__ = [
    "SOURCES",
    "WIDTH",
    "absolute_sum",
    "add_up",
    "compiled",
    "exponential",
    "exponentials",
    "keep_apart",
    "largest",
    "power_sum",
    "raise_all",
    "raise_one",
    "signed_powers",
    "weigh_rows",
]

SOURCES = (*float32_memory.SOURCES, __file__)

WIDTH = 4  # of the vectors of weigh_rows: rows are padded to a multiple of it
_FAR, _HIGH = 4, 4  # vectors, and sums of the same rows, that it adds up side by side

# Called by other compiled functions alone, so they need no wrappers. A division by zero gives inf,
# as in NumPy: callers look for numbers that are not finite.
_plain: Any = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Whoever calls from outside holds on to the arrays. Counting references to them at each use would
# take half the time of small problems. What is decorated here may neither make nor return arrays.
# Pinned by ``test_no_compiled_function_counts_references``.
if hasattr(options.DefaultOptions, "_nrt"):
    _plain["_nrt"] = False
compiled: Any = njit(**_plain)
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


@_intrinsic
def keep_apart(typing):
    """Forbid LLVM to inline the function that calls this."""

    def emit(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), emit


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


@inlined
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


@inlined
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


@inlined
def _with_sign(size, x):
    return _from_bits(_bits(size) | (_bits(x) & _SIGN))


@compiled
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


@inlined
def exponential(x):
    """e^x; zero below the normal numbers, inf from 2^1023.5 on, and nan stays nan."""
    t = x * _LOG2E
    rounded = t + _ROUND
    y = _exp2(rounded, fma(x, _LOG2E, -(rounded - _ROUND)) + x * _LOG2E_REST)
    y = 0.0 if t <= -1022.0 else y
    return np.inf if t >= 1023.5 else y


@compiled
def exponentials(x, out):
    """``out = e^x``, see :func:`exponential`."""
    for j in range(len(out)):
        out[j] = exponential(x[j])


@_maximum
def largest(x):
    """max |x_j|. Without a promise for nan: look at :func:`absolute_sum` first."""
    top = 0.0
    for j in range(len(x)):
        size = abs(x[j])
        top = size if size > top else top
    return top


_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_DOUBLE, _INDEX, _ADDRESS = ir.DoubleType(), ir.IntType(32), ir.IntType(64)


def _emit_sum(magnitudes: bool) -> Any:
    """An intrinsic: the sum of ``num`` vectors, or of their absolute values, and of its entries."""

    def emit(context, builder, signature, args):
        address, num = args
        size = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.fabs.v{WIDTH}f64"
        )
        place = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * WIDTH))
        with cgutils.for_range(builder, num) as loop:
            offset = builder.mul(loop.index, ir.Constant(_ADDRESS, 8 * WIDTH))
            pointer = builder.inttoptr(builder.add(address, offset), _VECTOR.as_pointer())
            entry = builder.load(pointer, align=8)
            entry = builder.call(size, [entry]) if magnitudes else entry
            builder.store(builder.fadd(builder.load(place), entry), place)
        total = builder.load(place)
        a, b, c, d = (builder.extract_element(total, ir.Constant(_INDEX, k)) for k in range(WIDTH))
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    @_intrinsic
    def add_vectors(typing, address, num):
        return types.float64(types.int64, types.int64), emit

    return add_vectors


_add_vectors, _add_magnitudes = _emit_sum(False), _emit_sum(True)

# The order of a sum is fixed, not the fastest of the CPU at hand: vectors of four, one by one.


@compiled
def add_up(x):
    """sum x_j."""
    whole = len(x) // WIDTH
    total = _add_vectors(x.ctypes.data, whole)
    for j in range(whole * WIDTH, len(x)):
        total += x[j]
    return total


@compiled
def absolute_sum(x):
    """sum |x_j|; not finite if an entry is not."""
    whole = len(x) // WIDTH
    total = _add_magnitudes(x.ctypes.data, whole)
    for j in range(whole * WIDTH, len(x)):
        total += abs(x[j])
    return total


@compiled
def power_sum(x, factor, r, out):
    """``sum_j (factor |x_j|)^r``; ``out`` is overwritten."""
    for j in range(len(x)):
        out[j] = factor * abs(x[j])
    raise_all(out, r)
    return add_up(out)


@compiled
def raise_all(x, r):
    """``x = x^r`` for x >= 0."""
    if r == 2.0:
        for j in range(len(x)):
            x[j] = x[j] * x[j]
    elif r == 3.0:
        for j in range(len(x)):
            x[j] = x[j] * x[j] * x[j]
    elif r == 1.5:
        for j in range(len(x)):
            x[j] = x[j] * math.sqrt(x[j])
    else:
        for j in range(len(x)):
            x[j] = _power(x[j], r)


@inlined
def raise_one(x, r):
    """x^r for x >= 0 and r < 1, as :func:`signed_powers` computes it."""
    return math.sqrt(x) if r == 0.5 else _power(x, r)


def _emit_block(height: int, count: int) -> Any:
    """An intrinsic: ``height`` weighted sums of the same rows, ``count`` vectors of each."""

    def emit(context, builder, signature, args):
        out, out_stride, weights, weight_block, weight_stride, rows, row_stride, num = args
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        splat = ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH)
        vector_fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{WIDTH}f64"
        )

        def shift(address, stride, times):
            return builder.add(address, builder.mul(stride, ir.Constant(_ADDRESS, times)))

        vector_bytes = ir.Constant(_ADDRESS, 8 * WIDTH)
        sums = [
            [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)] for _ in range(height)
        ]
        for place in itertools.chain(*sums):
            builder.store(ir.Constant(_VECTOR, [0.0] * WIDTH), place)
        with cgutils.for_range(builder, num) as loop:
            row = builder.add(rows, builder.mul(loop.index, row_stride))
            pointers = [
                builder.inttoptr(shift(row, vector_bytes, c), _VECTOR.as_pointer())
                for c in range(count)
            ]
            entries = [builder.load(pointer, align=8) for pointer in pointers]
            first = builder.add(weights, builder.mul(loop.index, weight_stride))
            for r in range(height):
                pointer = builder.inttoptr(shift(first, weight_block, r), _DOUBLE.as_pointer())
                one = builder.insert_element(
                    undefined, builder.load(pointer), ir.Constant(_INDEX, 0)
                )
                weight = builder.shuffle_vector(one, undefined, splat)
                for place, vector in zip(sums[r], entries, strict=True):
                    added = builder.call(vector_fma, [weight, vector, builder.load(place)])
                    builder.store(added, place)
        for r, c in itertools.product(range(height), range(count)):
            target = shift(shift(out, out_stride, r), vector_bytes, c)
            pointer = builder.inttoptr(target, _VECTOR.as_pointer())
            builder.store(builder.load(sums[r][c]), pointer, align=8)
        return context.get_dummy_value()

    @_intrinsic
    def add_rows(
        typing, out, out_stride, weights, weight_block, weight_stride, rows, row_stride, num
    ):
        return types.void(*(types.int64,) * 8), emit

    return add_rows


# Sums side by side hide the latency of an addition; several sums of the same rows load them once.
_one, _wide, _block = _emit_block(1, 1), _emit_block(1, _FAR), _emit_block(_HIGH, _FAR // 2)


@compiled
def weigh_rows(weights, weight_block, weight_stride, rows, row_block, width, out, blocks, num):
    """For each block i: ``out[i, :] = sum_k weights[i, k] rows[i, k, :]``, rows of ``width``.

    ``weights``, ``rows`` and ``out`` are addresses. Entry (i, k) of the weights is
    ``i * weight_block + k * weight_stride`` doubles further on, row (i, k)
    ``i * row_block + k * width``. Each entry is added up in the order of k.
    """
    stride, across, along = 8 * width, 8 * weight_block, 8 * weight_stride
    i = 0
    while row_block == 0 and i + _HIGH <= blocks:
        first, target = weights + i * across, out + i * stride
        j = 0
        while j + _FAR // 2 * WIDTH <= width:
            at = 8 * j
            _block(target + at, stride, first, across, along, rows + at, stride, num)
            j += _FAR // 2 * WIDTH
        while j < width:
            at = 8 * j
            for r in range(_HIGH):
                above = target + r * stride + at
                _one(above, stride, first + r * across, across, along, rows + at, stride, num)
            j += WIDTH
        i += _HIGH
    while i < blocks:
        first, target, start = weights + i * across, out + i * stride, rows + 8 * i * row_block
        j = 0
        while j + _FAR * WIDTH <= width:
            at = 8 * j
            _wide(target + at, stride, first, across, along, start + at, stride, num)
            j += _FAR * WIDTH
        while j < width:
            at = 8 * j
            _one(target + at, stride, first, across, along, start + at, stride, num)
            j += WIDTH
        i += 1
