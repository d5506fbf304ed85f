"""The compiled float32 power  y = sign(x) |x|^r,  within 4 ulp.

    |x|^r = 2^t,   t = r log2|x| = r e + r log2(m),   |x| = 2^e m,  m in [sqrt(1/2), sqrt(2))
    log2(m) = (2 / ln 2) artanh(s),   s = (m - 1) / (m + 1)

A result within a few ulp needs t to about 2^-25, and |t| reaches 150: more digits than float32
has. The product r e is made exact by splitting r, and for larger r, where the error of log2(m)
grows r-fold, s and the product with it carry a second float32. Then 2^t = 2^n 2^f with integer n
and |f| <= 1/2.

Work runs in short loops over blocks that stay in the first-level cache. One long loop would
be slower: its chain of dependent operations outgrows the processor's scheduling window.
"""

from __future__ import annotations

import math

import numpy as np

from mirrormargin.geometry import integer_powers
from mirrormargin.geometry.float32_kernels import BLOCK, kernel_family, open_job, run, take_chunk
from mirrormargin.geometry.float32_memory import (
    bits_float,
    compiled,
    float_bits,
    floats,
    fma,
    inlined,
    offset,
)
from mirrormargin.geometry.integer_powers import power_block_of, to_integer, with_sign

__all__ = [
    "HIGH",
    "LOW",
    "MIDDLE",
    "SOURCES",
    "power_block",
    "power_constants",
    "power_kind",
    "power_tensors",
]

SOURCES = (*integer_powers.SOURCES, __file__)

f32, i32 = np.float32, np.int32


_ONE, _ZERO = f32(1), f32(0)
_EXPONENT_BITS = i32(-(2**23))
_SQRT_HALF = i32(np.float32(math.sqrt(0.5)).view(np.int32))
_SMALLEST_NORMAL = f32(2.0**-126)
_UPSCALE = f32(2.0**24)
_UPSCALE_EXPONENT = f32(24 * 2**23)
# Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. The 26 more keep 2^n
# in the normal range down to n = -152; _DOWNSCALE takes them back, rounding denormals once.
_ROUND_HIGH = f32(1.5 * 2**23 + 26)
_DOWNSCALE = f32(2.0**-26)
_ROUND_LOW = f32(1.5 * 2**23)

# 2^f = 1 + f (E1 + E2 f + ...), |f| <= 1/2, relative error 2.0e-9;
# artanh(s) / s = 1 + z (A1 + A2 z + A3 z^2), z = s^2 <= 0.0295, error 8.1e-10. Both minimax.
_E1, _E2, _E3, _E4, _E5, _E6 = (
    f32(c)
    for c in (
        0.6931472028551288,
        0.24022647913619685,
        0.055503324710266214,
        0.009618437358292046,
        0.0013398874445477334,
        0.00015353361816606605,
    )
)
_ARTANH = (0.33333388274702286, 0.1998875928439677, 0.14936200418277745)

_MIDDLE_POWER = 1.25  # from here on results can underflow, and tiny |x| need no care
_HIGH_POWER = 3.5  # from here on r log2|x| needs more than one float32
_LARGEST_FAST_POWER = 100.0  # above it two float32 are not enough: p < 1.01 is rare and slow

# The kinds of exponent, each with a kernel of its own; INTEGER_POWERS are kinds as well.
LOW, MIDDLE, HIGH = range(3)


def power_kind(r: float) -> int:
    """The kind of the exponent ``r > 0``."""
    integer = to_integer(r)
    if integer:
        return integer
    return LOW if r < _MIDDLE_POWER else MIDDLE if r < _HIGH_POWER else HIGH


def power_constants(r: float) -> np.ndarray:
    """The constants that the kernels need for the exponent ``r > 0``, as float64.

    Order: r, its two parts times 2^-23, 2r/ln 2 in two parts, three artanh coefficients times
    that, the smallest |x| the fast path takes literally, and the bit patterns of |x| between which
    the fast path is valid.
    """
    split = np.float32(r).view(np.uint32) & np.uint32(0xFFFFFF00)  # 16 bits: e * r_high is exact
    r_high = float(split.view(np.float32))
    slope = 2 * r / math.log(2)
    slope_high = float(np.float32(slope))
    if r >= _MIDDLE_POWER:
        clamp, lowest = 2.0 ** (-152 / r), 0.0
        highest = 2.0 ** (100 / r) if r <= _LARGEST_FAST_POWER else 0.0
    else:
        clamp = 0.0
        lowest = 2.0 ** (-125 / r) if 125 / r < 149 else 0.0
        highest = 2.0 ** (126 / r) if 126 / r < 128 else math.inf
    bits = [float(np.float32(x).view(np.int32)) for x in (lowest, highest)]
    return np.array(
        [r, r_high * 2.0**-23, (r - r_high) * 2.0**-23, slope_high, slope - slope_high]
        + [slope * c for c in _ARTANH]
        + [clamp]
        + bits
    )


@inlined
def _exp2(f):
    f2 = f * f
    tail = fma(fma(_E6, f, _E5), f2, fma(_E4, f, _E3))
    return fma(fma(tail, f, _E2), f2, fma(_E1, f, _ONE))


# The three stages of |x|^r, for one entry. Stages hand over through rows of scratch memory; the
# caller writes the loops, so that it can read and write its own arrays in the same pass.


@inlined
def split_high(a, clamp):
    """|x| = 2^e m as (e 2^23, s, the part of s that float32 loses)."""
    a = clamp if a < clamp else a
    bits = float_bits(a)
    k = i32(i32(bits - _SQRT_HALF) & _EXPONENT_BITS)
    m = bits_float(i32(bits - k))
    numerator, denominator = m - _ONE, m + _ONE
    rounded_off = m - (denominator - _ONE)
    inverse = _ONE / denominator
    s = numerator * inverse
    return f32(k), s, fma(-s, rounded_off, fma(-s, denominator, numerator)) * inverse


@compiled
def exponent_high(num, constants, scratch):
    """t = r log2|x| from rows 0 to 2, as its nearest integer (row 0) and the rest (row 1)."""
    exponent = floats(scratch, num)
    s_high, s_low = floats(offset(scratch, BLOCK), num), floats(offset(scratch, 2 * BLOCK), num)
    r_high, r_low = f32(constants[1]), f32(constants[2])
    slope, slope_low = f32(constants[3]), f32(constants[4])
    c1, c2, c3 = f32(constants[5]), f32(constants[6]), f32(constants[7])
    for i in range(num):
        s, e = s_high[i], exponent[i]
        z = s * s
        whole = e * r_high
        part = slope * s
        tail = fma(e, r_low, fma(slope, s, -part))
        tail = fma(slope, s_low[i], fma(slope_low, s, tail))
        tail = fma(s * z, fma(fma(c3, z, c2), z, c1), tail)
        rounded = (whole + (part + tail)) + _ROUND_HIGH
        exponent[i] = rounded
        s_high[i] = ((whole - (rounded - _ROUND_HIGH)) + part) + tail


@inlined
def finish_high(rounded, fraction, x):
    """2^t with the sign of x; results below the normal range are rounded once."""
    n = i32(float_bits(rounded) << i32(23))
    return with_sign(bits_float(i32(float_bits(_exp2(fraction)) + n)) * _DOWNSCALE, x)


@inlined
def split_middle(a, clamp):
    """|x| = 2^e m as (e 2^23, s)."""
    a = clamp if a < clamp else a
    bits = float_bits(a)
    k = i32(i32(bits - _SQRT_HALF) & _EXPONENT_BITS)
    m = bits_float(i32(bits - k))
    return f32(k), (m - _ONE) / (m + _ONE)


@inlined
def split_low(a):
    """|x| = 2^e m as (e 2^23, s), denormals included."""
    denormal = a < _SMALLEST_NORMAL
    bits = float_bits(a * _UPSCALE if denormal else a)
    k = i32(i32(bits - _SQRT_HALF) & _EXPONENT_BITS)
    m = bits_float(i32(bits - k))
    return f32(k) - (_UPSCALE_EXPONENT if denormal else _ZERO), (m - _ONE) / (m + _ONE)


@compiled
def exponent_low(num, constants, scratch):
    """As ``exponent_high`` where one float32 of s is enough."""
    shift = f32(_ROUND_LOW if constants[0] < _MIDDLE_POWER else _ROUND_HIGH)
    exponent, ratio = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    r_high, r_low = f32(constants[1]), f32(constants[2])
    slope, slope_low = f32(constants[3]), f32(constants[4])
    c1, c2, c3 = f32(constants[5]), f32(constants[6]), f32(constants[7])
    for i in range(num):
        s, e = ratio[i], exponent[i]
        z = s * s
        whole = e * r_high
        tail = fma(s * z, fma(fma(c3, z, c2), z, c1), fma(slope_low, s, e * r_low))
        part = fma(slope, s, tail)
        rounded = (whole + part) + shift
        exponent[i] = rounded
        ratio[i] = (whole - (rounded - shift)) + part


@inlined
def finish_low(rounded, fraction, x):
    """2^t with the sign of x; 0 for 0."""
    n = i32(float_bits(rounded) << i32(23))
    power = bits_float(i32(float_bits(_exp2(fraction)) + n))
    return with_sign(power if x != _ZERO else _ZERO, x)


@inlined
def power_block(kind, x, y, num, constants, scratch):
    """y = sign(x) |x|^r for num <= BLOCK floats at the addresses x and y, which may be equal."""
    if kind == 4:
        _power_4(x, y, num)
    elif kind == 5:
        _power_5(x, y, num)
    elif kind == 10:
        _power_10(x, y, num)
    elif kind == 20:
        _power_20(x, y, num)
    elif kind == HIGH:
        if _split_high_block(x, num, constants, scratch):
            exponent_high(num, constants, scratch)
            _finish_high_block(x, y, num, scratch)
        else:
            power_plain(x, y, num, constants[0])
    elif kind == MIDDLE:
        if _split_middle_block(x, num, constants, scratch):
            exponent_low(num, constants, scratch)
            _finish_high_block(x, y, num, scratch)
        else:
            power_plain(x, y, num, constants[0])
    elif _split_low_block(x, num, constants, scratch):
        exponent_low(num, constants, scratch)
        _finish_low_block(x, y, num, scratch)
    else:
        power_plain(x, y, num, constants[0])


_power_4, _power_5, _power_10, _power_20 = (power_block_of(n) for n in (4, 5, 10, 20))


@compiled
def power_plain(x_address, y_address, num, r):
    """For values near overflow, infinities and nans (and underflow for r near 1): rare."""
    x, y = floats(x_address, num), floats(y_address, num)
    for i in range(num):
        y[i] = math.copysign(math.pow(abs(np.float64(x[i])), r), np.float64(x[i]))


# The first stage also says whether the fast path is valid for all entries of the block.


@compiled
def _split_high_block(x_address, num, constants, scratch):
    x, exponent = floats(x_address, num), floats(scratch, num)
    s_high, s_low = floats(offset(scratch, BLOCK), num), floats(offset(scratch, 2 * BLOCK), num)
    clamp, top = f32(constants[8]), i32(0)
    for i in range(num):
        a = abs(x[i])
        top = max(top, float_bits(a))
        exponent[i], s_high[i], s_low[i] = split_high(a, clamp)
    return top < constants[10]


@compiled
def _split_middle_block(x_address, num, constants, scratch):
    x, exponent = floats(x_address, num), floats(scratch, num)
    ratio = floats(offset(scratch, BLOCK), num)
    clamp, top = f32(constants[8]), i32(0)
    for i in range(num):
        a = abs(x[i])
        top = max(top, float_bits(a))
        exponent[i], ratio[i] = split_middle(a, clamp)
    return top < constants[10]


@compiled
def _finish_high_block(x_address, y_address, num, scratch):
    x, y = floats(x_address, num), floats(y_address, num)
    rounded, fraction = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    for i in range(num):
        y[i] = finish_high(rounded[i], fraction[i], x[i])


@compiled
def _split_low_block(x_address, num, constants, scratch):
    x = floats(x_address, num)
    exponent, ratio = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    bottom, top = i32(0x7FFFFFFF), i32(0)
    for i in range(num):
        a = abs(x[i])
        top = max(top, float_bits(a))
        bottom = min(bottom, float_bits(a))
        exponent[i], ratio[i] = split_low(a)
    return top < constants[10] and bottom >= constants[9]


@compiled
def _finish_low_block(x_address, y_address, num, scratch):
    x, y = floats(x_address, num), floats(y_address, num)
    rounded, fraction = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    for i in range(num):
        y[i] = finish_low(rounded[i], fraction[i], x[i])


@kernel_family(*SOURCES)
def _power_kernels(version, kind):
    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            for low in range(start, stop, BLOCK):
                x, y = offset(pointers[0, tensor], low), offset(pointers[1, tensor], low)
                power_block(kind, x, y, min(BLOCK, stop - low), options, scratch)
            k = take_chunk(counters)

    return work


def power_tensors(sources, targets, r: float) -> None:
    """targets = sign(x) |x|^r for lists of contiguous float32 CPU tensors."""
    run(
        _power_kernels[power_kind(r)],
        [x.numel() for x in sources],
        [[x.data_ptr() for x in sources], [y.data_ptr() for y in targets]],
        options=power_constants(r),
    )
