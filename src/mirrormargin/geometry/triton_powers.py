r"""The power  y = sign(x) |x|^r  in Triton, within 4 ulp, and sums of powers.

    r = 1, 2, 1/2       x,  x |x|,  a correctly rounded square root
    r = 4, 5, 10, 20    products, (h + l)^2 = h^2 + (2 h l + rounding error of h^2)
    any other           2^t, t = r log2|x|, by the formulas of ``torch_powers.py``

Only products, sums and bits: the interpreter evaluates Triton's own ``exp2`` and ``log2`` with
NumPy, so their accuracy there would say nothing about a GPU. The rounding error of a product comes
from fma, and so does the product itself, as fma(a, b, 0): a compiler that contracted it with a
later sum would count the error twice.
"""

# What Triton compiles is not quite Python.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportMissingImports=false
from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from mirrormargin.geometry import torch_powers
from mirrormargin.geometry.torch_powers import split_exponent, to_integer
from mirrormargin.geometry.triton_kernels import (
    DTYPES,
    agree_on_type,
    find_address,
    find_block,
    launch,
    load_floats,
    load_number,
    store_floats,
)

__all__ = ["find_kind", "power_tensors", "scaled_power_sums", "signed_power"]

_ROOT, _REAL = tl.constexpr(-2), tl.constexpr(0)
_SQRT_HALF = tl.constexpr(torch_powers.SQRT_HALF)
_SMALLEST_NORMAL = tl.constexpr(torch_powers.SMALLEST_NORMAL)
_EXPONENT_BITS = tl.constexpr(-(2**23))
_FIRST_12 = tl.constexpr(-(2**12))
_SIGN = tl.constexpr(-(2**31))
_UPSCALE = tl.constexpr(2.0**24)
_ROUND = tl.constexpr(1.5 * 2**23)  # adding it rounds to an integer
_INFINITY = tl.constexpr(float("inf"))
_E1, _E2, _E3, _E4, _E5, _E6 = (tl.constexpr(c) for c in torch_powers.EXP2)


def find_kind(r: float) -> int:
    """How r is computed: r itself where that takes a few products, -2 for 1/2, 0 otherwise."""
    closed = {0.5: _ROOT.value, 1.0: 1, 2.0: 2}
    return closed.get(r) or to_integer(r)


@triton.jit
def signed_power(x, constants, KIND: tl.constexpr):
    """sign(x) |x|^r; ``constants`` points to those of ``split_exponent(r)`` in the table."""
    if KIND == 1:
        y = x
    elif KIND == 2:
        y = x * tl.abs(x)
    elif KIND == _ROOT:
        y = _with_sign(tl.sqrt_rn(tl.abs(x)), x)
    elif KIND == _REAL:
        y = _with_sign(_real_power(tl.abs(x), constants), x)
    else:
        y = _with_sign(_integer_power(tl.abs(x), KIND), x)
    return y


@triton.jit
def _with_sign(y, x):
    sign = x.to(tl.int32, bitcast=True) & _SIGN
    return (y.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def _integer_power(a, N: tl.constexpr):
    """a^4, a^5, a^10 or a^20 as the sum of two float32."""
    high = tl.fma(a, a, 0.0)
    low = tl.fma(a, a, -high)
    high, low = _square(high, low)
    if N % 5 == 0:
        product = tl.fma(high, a, 0.0)
        low = tl.fma(low, a, tl.fma(high, a, -product))
        high = product
    if N >= 10:
        high, low = _square(high, low)
    if N == 20:
        high, low = _square(high, low)
    return tl.where(high < _INFINITY, high + low, high)  # inf - inf is nan; nan stays nan


@triton.jit
def _square(high, low):
    square = tl.fma(high, high, 0.0)
    return square, tl.fma(high + high, low, tl.fma(high, high, -square))


@triton.jit
def _real_power(a, constants):
    r_high, r_low = load_number(constants, 0), load_number(constants, 1)
    c_high, c_low = load_number(constants, 2), load_number(constants, 3)
    c1, c2, c3 = load_number(constants, 4), load_number(constants, 5), load_number(constants, 6)
    lowest, highest = load_number(constants, 7), load_number(constants, 8)
    # a = 2^e m
    clamped = tl.where(a < lowest, lowest, tl.where(a > highest, highest, a))
    denormal = clamped < _SMALLEST_NORMAL
    bits = tl.where(denormal, clamped * _UPSCALE, clamped).to(tl.int32, bitcast=True)
    shift = (bits - _SQRT_HALF) & _EXPONENT_BITS
    m = (bits - shift).to(tl.float32, bitcast=True)
    e = (shift >> 23).to(tl.float32) - tl.where(denormal, 24.0, 0.0)
    # s = (m - 1) / (m + 1)
    numerator, denominator = m - 1.0, m + 1.0
    rounded_off = m - (denominator - 1.0)
    s_high, d_high = _first_bits(numerator / denominator), _first_bits(denominator)
    rest = (numerator - s_high * d_high) - s_high * (denominator - d_high)
    s_low = (rest - s_high * rounded_off) / denominator
    # t = n + f
    s = s_high + s_low
    z = s * s
    whole, part = e * r_high, s_high * c_high
    tail = tl.fma(s_low, c_high, tl.fma(s, c_low, e * r_low))
    tail = tl.fma(s * z, tl.fma(tl.fma(c3, z, c2), z, c1), tail)
    n = ((whole + (part + tail)) + _ROUND) - _ROUND
    f = ((whole - n) + part) + tail
    # 2^f 2^n, in two factors, for 2^n itself may be out of range
    y = tl.fma(tl.fma(tl.fma(_E6, f, _E5), f, _E4), f, _E3)
    y = tl.fma(tl.fma(tl.fma(y, f, _E2), f, _E1), f, 1.0)
    whole_n = n.to(tl.int32)
    half = whole_n >> 1
    y = (y * _two_to(half)) * _two_to(whole_n - half)
    return tl.where((a > 0.0) & (a < _INFINITY), y, a)  # 0, inf and nan stay


@triton.jit
def _first_bits(x):
    return (x.to(tl.int32, bitcast=True) & _FIRST_12).to(tl.float32, bitcast=True)


@triton.jit
def _two_to(n):
    return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def power_kernel(
    table, owners, num_tensors, out, KIND: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr
):
    """float32 y = sign(x) |x|^r of any x."""
    tensor, indices, mask = find_block(table, owners, num_tensors, BLOCK)
    x = load_floats(find_address(table, num_tensors, tensor, 0), indices, mask, DTYPE)
    y = signed_power(x, table, KIND)
    store_floats(find_address(table, num_tensors, tensor, 1), indices, y, mask, tl.float32)


@triton.jit
def power_sum_kernel(
    table, owners, num_tensors, out, KIND: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr
):
    """m = max |x| of each block, nan if it has one, and sum (|x| / m)^r."""
    tensor, indices, mask = find_block(table, owners, num_tensors, BLOCK)
    x = load_floats(find_address(table, num_tensors, tensor, 0), indices, mask, DTYPE)
    # Compared as integers: that order is total, and nan is the largest.
    m = tl.max(tl.abs(x).to(tl.int32, bitcast=True), 0).to(tl.float32, bitcast=True)
    scaled = tl.div_rn(tl.abs(x), tl.where((m > 0.0) & (m < _INFINITY), m, 1.0))
    total = tl.sum(signed_power(scaled, table, KIND), 0)
    tl.store(out + 2 * tl.program_id(0), m)
    tl.store(out + 2 * tl.program_id(0) + 1, total)


def power_tensors(sources: list[Tensor], targets: list[Tensor], r: float) -> None:
    """targets = sign(x) |x|^r, float32, of dense tensors of one device and type."""
    dtype = DTYPES[sources[0].dtype] if sources else None
    launch(
        power_kernel,
        [sources, targets],
        options=split_exponent(r),
        KIND=find_kind(r),
        DTYPE=dtype,
    )


def scaled_power_sums(tensors: list[Tensor], exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """``(m, s)`` with m = max |x| and s = sum (|x| / m)^exponent for each tensor.

    Each block has its own m and s; those are combined here, in float64.
    """
    tensors = list(agree_on_type(tensors))
    dtype = DTYPES[tensors[0].dtype] if tensors else None
    owners, out = launch(
        power_sum_kernel,
        [tensors],
        options=split_exponent(exponent),
        out=2,
        KIND=find_kind(exponent),
        DTYPE=dtype,
    )
    largest, sums = np.zeros(len(tensors)), np.zeros(len(tensors))
    with np.errstate(invalid="ignore"):
        np.maximum.at(largest, owners, out[:, 0])
        usable = np.isfinite(largest) & (largest > 0)
        share = out[:, 0] / np.where(usable, largest, 1.0)[owners]
        np.add.at(sums, owners, out[:, 1] * share**exponent)
    return largest, np.where(usable, sums, largest != 0)
