r"""Increasing positions as a stream of bits: gaps in Rice's code.

Positions ``0 <= i_1 < i_2 < ... < i_n`` become gaps, and each gap a quotient and k low bits:

    g_j = i_j - i_(j-1) - 1,   i_0 = -1,
    g_j = q_j 2^k + r_j,       0 <= r_j < 2^k .

One stream has each quotient in unary, q_j zeros and then a one; another one has the remainders in k
bits each. Both run from the high to the low bit of each byte and end with zeros. Of all k, the one
with the fewest bits is taken. Gaps between n positions that are spread evenly over N places take
about log2(N/n) + 1.6 bits, within 0.15 of the entropy; those of a cluster take less.

``tests/deltas/test_rice.py`` has the slow twin, bit by bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_K", "RiceCode", "decode_positions", "encode_positions"]

MOST_K = 52
ROWS = 1 << 16  # remainders that are packed at a time; a multiple of 8


class RiceCode(NamedTuple):
    """Positions, encoded.

    Attributes:
        k: Bits of a remainder.
        quotients: The unary stream, bytes.
        remainders: The other stream, bytes.
    """

    k: int
    quotients: NDArray[np.uint8]
    remainders: NDArray[np.uint8]


def encode_positions(positions: NDArray[np.int64]) -> RiceCode:
    """Encode increasing positions.

    Example:
        >>> encode_positions(np.array([0, 5, 6])).k
        0
    """
    gaps = np.diff(positions, prepend=-1) - 1
    k = _choose_k(gaps)
    ends = np.cumsum((gaps >> k) + 1) - 1  # where the one of each quotient stands
    unary = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, np.uint8)
    unary[ends] = 1
    return RiceCode(k, np.packbits(unary), _pack_low_bits(gaps, k))


def decode_positions(code: RiceCode, count: int, size: int) -> NDArray[np.int64]:
    """The positions again.

    Args:
        code: May be untrusted.
        count: How many positions there must be.
        size: What all of them must be below.

    Raises:
        ValueError: If the streams are not those of such positions.
    """
    if not 0 <= code.k <= MOST_K:
        raise ValueError(f"remainders of {code.k} bits")
    if len(code.remainders) != -(-count * code.k // 8):
        raise ValueError(f"{len(code.remainders):,} bytes of remainders for {count:,} positions")
    if count > 8 * len(code.quotients):
        raise ValueError(f"{len(code.quotients):,} bytes of quotients for {count:,} positions")
    ends = np.flatnonzero(np.unpackbits(code.quotients))
    length = -(-(int(ends[-1]) + 1) // 8) if len(ends) else 0
    if len(ends) != count or length != len(code.quotients):
        raise ValueError(f"{len(ends):,} quotients for {count:,} positions")
    quotients = np.diff(ends, prepend=-1) - 1
    remainders = _unpack_low_bits(code.remainders, count, code.k)
    # In Python's integers, before they could overflow.
    total = (int(quotients.sum()) << code.k) + int(remainders.sum()) + count
    if total > size:
        raise ValueError(f"position {total - 1:,} among {size:,}")
    return np.cumsum((quotients << code.k) + remainders + 1) - 1


def _choose_k(gaps: NDArray[np.int64]) -> int:
    """The k of the fewest bits; the length is convex in k up to rounding, so all near are tried."""
    if not len(gaps):
        return 0
    middle = max(int(gaps.mean()), 1).bit_length()
    near = range(max(middle - 4, 0), min(middle + 3, MOST_K) + 1)
    return min(near, key=lambda k: int((gaps >> k).sum()) + k * len(gaps))


def _pack_low_bits(numbers: NDArray[np.int64], k: int) -> NDArray[np.uint8]:
    shifts = np.arange(k - 1, -1, -1)
    parts = [
        np.packbits((numbers[start : start + ROWS, None] >> shifts & 1).astype(np.uint8))
        for start in range(0, len(numbers) if k else 0, ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def _unpack_low_bits(packed: NDArray[np.uint8], count: int, k: int) -> NDArray[np.int64]:
    numbers = np.zeros(count, np.int64)
    if k == 0:
        return numbers
    weights = np.int64(1) << np.arange(k - 1, -1, -1)
    for start in range(0, count, ROWS):
        rows = min(ROWS, count - start)
        first = start * k // 8
        bits = np.unpackbits(packed[first : first + -(-rows * k // 8)], count=rows * k)
        numbers[start : start + rows] = bits.reshape(rows, k) @ weights
    return numbers
