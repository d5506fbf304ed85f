"""|x|^n for a few integers n, in a handful of multiplications: the exponents p = 1 + 1/n.

    (h + l)^2 = h^2 + (2 h l + rounding error of h^2),      rounding errors by fma

Two float32 carry each intermediate result, so the last addition is the only rounding that
counts: half an ulp where repeated squaring in one float32 would lose nine.
"""

from __future__ import annotations

import numpy as np

from mirrormargin.geometry import float32_memory
from mirrormargin.geometry.float32_memory import (
    bits_float,
    compiled,
    float_bits,
    floats,
    fma,
    inlined,
    rename,
)
from mirrormargin.geometry.torch_powers import INTEGER_POWERS, to_integer

__all__ = [
    "INTEGER_POWERS",
    "SOURCES",
    "integer_power",
    "power_block_of",
    "to_integer",
    "with_sign",
]

SOURCES = (*float32_memory.SOURCES, __file__)

f32, i32 = np.float32, np.int32

_SIGN = i32(-(2**31))
_INFINITY = f32(np.inf)


@inlined
def with_sign(y, x):
    """y >= 0 with the sign of x."""
    return bits_float(i32(float_bits(y) | i32(float_bits(x) & _SIGN)))


@inlined
def _square(high, low):
    square = high * high
    return square, fma(high + high, low, fma(high, high, -square))


@inlined
def _times(high, low, x):
    product = high * x
    return product, fma(low, x, fma(high, x, -product))


@inlined
def _first_square(x):
    square = x * x
    return square, fma(x, x, -square)


def _chain(n: int):
    """a -> a^n as an unevaluated sum of two float32, by squaring and multiplying."""
    if n == 2:
        return _first_square
    root = _chain(n // 2)

    @inlined
    @rename(n)
    def even(a):
        high, low = root(a)
        return _square(high, low)

    @inlined
    @rename(n)
    def odd(a):
        high, low = root(a)
        square, rest = _square(high, low)
        return _times(square, rest, a)

    return odd if n % 2 else even


def integer_power(n: int):
    """The compiled function a -> a^n for a >= 0."""
    chain = _chain(n)

    @inlined
    @rename(n)
    def power(a):
        high, low = chain(a)
        return high + low if high < _INFINITY else high  # inf - inf is nan; nan stays nan

    return power


def power_block_of(n: int):
    """The compiled loop y = sign(x) |x|^n over addresses; x and y may be equal."""
    power = integer_power(n)

    @compiled
    @rename(n)
    def block(x_address, y_address, num):
        x, y = floats(x_address, num), floats(y_address, num)
        for i in range(num):
            y[i] = with_sign(power(abs(x[i])), x[i])

    return block
