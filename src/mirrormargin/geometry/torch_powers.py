r"""The power  y = sign(x) |x|^r  in float32 torch operations, where float64 is slow or missing.

    |x|^r = 2^t,   t = r log2|x| = r e + c artanh(s),   c = 2 r / ln 2
    |x| = 2^e m,   m in [sqrt(1/2), sqrt(2)),   s = (m - 1) / (m + 1)

A result within 4 ulp needs t to about 2^-22, and |t| reaches 150: more digits than float32 has. So
every number in a product that counts is the sum of two, the first with few bits:

    r = r_high + r_low   16 bits: e r_high is exact
    c = c_high + c_low   12 bits: c_high s_high is exact
    s = s_high + s_low   12 bits: so are s_high and both halves of m + 1

What is left over adds up in one float32. No error of a product is ever measured, so a compiler may
contract a product and a sum to one operation: an exact product stays what it is.
``triton_powers.py`` has the same formulas for Triton.

Accelerators compute float64 up to 64 times slower than float32, and some not at all. On the CPU
float64 is used (``norms.signed_power``), which is what this is tested against. Where a device
flushes denormal numbers to zero, those count as zero here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "ARTANH",
    "EXP2",
    "INTEGER_POWERS",
    "LARGEST_POWER",
    "SMALLEST_NORMAL",
    "SQRT_HALF",
    "PowerConstants",
    "signed_power",
    "split_exponent",
    "to_integer",
]

INTEGER_POWERS = (4, 5, 10, 20)  # p = 1.25, 1.2, 1.1, 1.05: kernels have a shorter way
LARGEST_POWER = 102.0  # above it two float32 are not enough. q = 101 is the dual of p = 1.01

# artanh(s) / s = 1 + z (A1 + A2 z + A3 z^2), z = s^2 <= 0.0295, relative error 8.1e-10;
# 2^f = 1 + f (E1 + E2 f + ...), |f| <= 1/2, relative error 2.0e-9. Both minimax.
ARTANH = (0.33333388274702286, 0.1998875928439677, 0.14936200418277745)
EXP2 = (
    0.6931472028551288,
    0.24022647913619685,
    0.055503324710266214,
    0.009618437358292046,
    0.0013398874445477334,
    0.00015353361816606605,
)

SMALLEST_NORMAL = 2.0**-126
SQRT_HALF = int(np.float32(math.sqrt(0.5)).view(np.int32))
_EXPONENT_BITS = -(2**23)
_FIRST_12 = -(2**12)  # of the 24 bits of a significand


class PowerConstants(NamedTuple):
    """The numbers, each a float32, that an exponent r > 0 needs."""

    r_high: float
    r_low: float
    c_high: float
    c_low: float
    c1: float
    c2: float
    c3: float
    lowest: float
    highest: float


def split_exponent(r: float) -> PowerConstants:
    """The constants of an exponent; beyond ``lowest`` and ``highest`` the power is 0 or inf."""
    r_high, c = _keep_bits(r, 16), 2 * r / math.log(2)
    c_high = _keep_bits(c, 12)
    numbers = (
        *(r_high, r - r_high, c_high, c - c_high),
        *(c * a for a in ARTANH),
        2.0 ** max(-152 / r, -149),
        min(2.0 ** min(129 / r, 128), float(np.finfo(np.float32).max)),
    )
    return PowerConstants(*(float(np.float32(number)) for number in numbers))


def _keep_bits(x: float, count: int) -> float:
    mask = np.uint32(2**32 - 2 ** (24 - count))
    return float((np.float32(x).view(np.uint32) & mask).view(np.float32))


def signed_power(x: Tensor, r: float) -> Tensor:
    """sign(x) |x|^r of a float32 tensor, within 4 ulp for 0 < r <= ``LARGEST_POWER``.

    Example:
        >>> signed_power(torch.tensor([-4.0, 9.0]), 0.5)
        tensor([-2.,  3.])
    """
    k = split_exponent(r)
    a = x.abs()
    e, m = _split_number(a.clamp(k.lowest, k.highest), k.lowest < SMALLEST_NORMAL)
    s_high, s_low = _find_ratio(m)
    s = s_high + s_low
    z = s * s
    whole, part = e * k.r_high, s_high * k.c_high
    tail = (s * z) * ((k.c3 * z + k.c2) * z + k.c1) + (
        s_low * k.c_high + (s * k.c_low + e * k.r_low)
    )
    n = (whole + (part + tail)).round()
    y = _exp2(((whole - n) + part) + tail)
    half = n.to(torch.int32) >> 1  # in two factors, for 2^n itself may be out of range
    y = (y * _two_to(half)) * _two_to(n.to(torch.int32) - half)
    return torch.where((a == 0) | ~(a < math.inf), a, y).copysign(x)  # 0, inf and nan stay


def _split_number(a: Tensor, may_be_denormal: bool) -> tuple[Tensor, Tensor]:
    """(e, m) with a = 2^e m."""
    offset = 0.0
    if may_be_denormal:
        offset = torch.where(a < SMALLEST_NORMAL, 24.0, 0.0)
        a = torch.where(a < SMALLEST_NORMAL, a * 2.0**24, a)
    bits = a.view(torch.int32)
    shift = (bits - SQRT_HALF) & _EXPONENT_BITS
    return (shift >> 23).to(torch.float32) - offset, (bits - shift).view(torch.float32)


def _find_ratio(m: Tensor) -> tuple[Tensor, Tensor]:
    """(m - 1) / (m + 1) as the sum of a number of 12 bits and the rest."""
    numerator, denominator = m - 1, m + 1
    rounded_off = m - (denominator - 1)
    s_high, d_high = _first_bits(numerator / denominator), _first_bits(denominator)
    rest = (numerator - s_high * d_high) - s_high * (denominator - d_high) - s_high * rounded_off
    return s_high, rest / denominator


def _first_bits(x: Tensor) -> Tensor:
    return (x.view(torch.int32) & _FIRST_12).view(torch.float32)


def _exp2(f: Tensor) -> Tensor:
    y = f * EXP2[5] + EXP2[4]
    for coefficient in EXP2[3::-1]:
        y = y * f + coefficient
    return y * f + 1


def _two_to(n: Tensor) -> Tensor:
    return ((n + 127) << 23).view(torch.float32)


def to_integer(r: float) -> int:
    """The integer that may stand for ``r``, or 0.

    1 / (1.1 - 1) is 9.999999999999991. Over the float32 range, |log2 x| <= 149, replacing it by
    10 changes the result by 1e-12.
    """
    n = round(r)
    return n if n in INTEGER_POWERS and abs(r - n) * 149 < 1e-9 else 0
