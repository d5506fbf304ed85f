"""Compiled sums of powers of float32 tensors:  m = max |x|  and  sum (|x| / m)^r.

The parts from which dual norms are made: kept apart, those of several tensors combine without
overflow. The slow twin is ``norms.scaled_power_sum``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mirrormargin.geometry import float32_powers
from mirrormargin.geometry.float32_kernels import (
    BLOCK,
    kernel,
    kernel_family,
    open_job,
    run,
    take_chunk,
)
from mirrormargin.geometry.float32_memory import bits_float, compiled, float_bits, floats, offset
from mirrormargin.geometry.float32_powers import power_block, power_constants, power_kind

__all__ = ["largest_entries", "scaled_power_sums"]

_SOURCES = (*float32_powers.SOURCES, __file__)

f32, i32 = np.float32, np.int32


@kernel(*_SOURCES)
def _largest_kernel(version):
    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            out[k, 0] = _largest(offset(pointers[0, tensor], start), stop - start)
            k = take_chunk(counters)

    return work


@compiled
def _largest(address, num):
    """Compared as integers: that order is total, and nan is the largest."""
    x = floats(address, num)
    largest = i32(0)
    for i in range(num):
        largest = max(largest, float_bits(abs(x[i])))
    return bits_float(largest)


@njit(error_model="numpy", fastmath={"reassoc"})
def _sum(address, num):
    """Terms are >= 0, so the order of addition costs no accuracy and may be the fast one."""
    values = floats(address, num)
    total = 0.0
    for i in range(num):
        total += np.float64(values[i])
    return total


_SQUARE = -1  # a kind of exponent beside those of ``power_kind``


@kernel_family(*_SOURCES)
def _power_sum_kernels(version, kind):
    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            total = 0.0
            for low in range(start, stop, BLOCK):
                x, num = offset(pointers[0, tensor], low), min(BLOCK, stop - low)
                row = offset(scratch, 3 * BLOCK)
                _scale(x, row, num, scalars[tensor, 0])
                if kind == _SQUARE:
                    _square(row, num)
                else:
                    power_block(kind, row, row, num, options, scratch)
                total += _sum(row, num)
            out[k, 0] = total
            k = take_chunk(counters)

    return work


@compiled
def _scale(x_address, row, num, scale):
    x, scaled = floats(x_address, num), floats(row, num)
    for i in range(num):
        scaled[i] = f32(scale * abs(np.float64(x[i])))


@compiled
def _square(row, num):
    scaled = floats(row, num)
    for i in range(num):
        scaled[i] = scaled[i] * scaled[i]


def largest_entries(tensors) -> np.ndarray:
    """max |x| of each contiguous float32 CPU tensor: 0 if empty, nan if any entry is nan."""
    owner, out = run(
        _largest_kernel,
        [x.numel() for x in tensors],
        [[x.data_ptr() for x in tensors]],
        None,
        None,
        1,
    )
    largest = np.zeros(len(tensors))
    with np.errstate(invalid="ignore"):
        np.maximum.at(largest, owner, out[:, 0])
    return largest


def scaled_power_sums(tensors, exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """``(m, s)`` with m = max |x| and s = sum (|x| / m)^exponent for each tensor."""
    largest = largest_entries(tensors)
    usable = np.isfinite(largest) & (largest > 0)
    inverse = np.where(usable, 1.0 / np.where(usable, largest, 1.0), 0.0)
    owner, out = run(
        _power_sum_kernels[_SQUARE if exponent == 2 else power_kind(exponent)],
        [x.numel() for x in tensors],
        [[x.data_ptr() for x in tensors]],
        inverse[:, None],
        power_constants(exponent),
        1,
    )
    sums = np.zeros(len(tensors))
    np.add.at(sums, owner, out[:, 0])
    return largest, np.where(usable, sums, largest != 0)
