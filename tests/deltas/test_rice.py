"""The coder of positions, against a twin that writes bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormargin.deltas.rice import MOST_K, ROWS, RiceCode, decode_positions, encode_positions

sets = st.one_of(
    st.sets(st.integers(0, 300), max_size=200),
    st.sets(st.integers(0, 2**40), max_size=40),
    st.sets(st.sampled_from([0, 1, 2, 3, 2**52, 2**53 - 1])),
)


def encode_slowly(positions, k):
    """The two streams as texts of 0 and 1."""
    unary = low = ""
    last = -1
    for position in positions:
        gap = position - last - 1
        unary += "0" * (gap >> k) + "1"
        low += "".join(str(gap >> bit & 1) for bit in reversed(range(k)))
        last = position
    return unary, low


def to_bytes(bits):
    padded = bits + "0" * (-len(bits) % 8)
    return bytes(int(padded[start : start + 8], 2) for start in range(0, len(padded), 8))


@given(sets)
def test_the_streams_are_those_of_the_slow_twin(found):
    positions = np.array(sorted(found), dtype=np.int64)
    code = encode_positions(positions)
    unary, low = encode_slowly(positions.tolist(), code.k)
    assert code.quotients.tobytes() == to_bytes(unary)
    assert code.remainders.tobytes() == to_bytes(low)


@given(sets)
def test_what_is_decoded_is_what_was_encoded(found):
    positions = np.array(sorted(found), dtype=np.int64)
    size = max(found, default=-1) + 1
    back = decode_positions(encode_positions(positions), len(positions), size)
    assert back.dtype == np.int64
    assert np.array_equal(back, positions)
    if size:
        with pytest.raises(ValueError, match="position"):
            decode_positions(encode_positions(positions), len(positions), size - 1)


@given(sets.filter(bool))
def test_no_other_k_takes_fewer_bits(found):
    positions = sorted(found)
    gaps = np.diff(positions, prepend=-1) - 1

    def length(k):
        return sum(int(gap) >> k for gap in gaps) + len(gaps) * (k + 1)

    k = encode_positions(np.array(positions, dtype=np.int64)).k
    assert length(k) == min(length(one) for one in range(MOST_K + 1))


def test_spread_positions_take_nearly_their_entropy():
    generator = np.random.default_rng(0)
    size, count = 10_600_000, 10_000
    positions = np.sort(generator.choice(size, count, replace=False))
    code = encode_positions(positions)
    bits = 8 * (len(code.quotients) + len(code.remainders)) / count
    share = count / size
    entropy = -np.log2(share) - (1 - share) / share * np.log2(1 - share)
    assert entropy < bits < entropy + 0.15
    assert np.array_equal(decode_positions(code, count, size), positions)


def test_many_blocks_of_remainders_come_back():
    positions = np.cumsum(np.random.default_rng(1).geometric(0.2, 3 * ROWS + 5)) - 1
    size = int(positions[-1]) + 1
    assert np.array_equal(
        decode_positions(encode_positions(positions), len(positions), size), positions
    )


@pytest.mark.parametrize(
    ("k", "quotients", "remainders", "count"),
    [
        (-1, [128], [], 1),
        (53, [128], [0] * 7, 1),
        (0, [], [], 1),
        (0, [128], [0], 1),  # a byte too much
        (0, [128, 0], [], 1),
        (0, [0], [], 1),  # no end of the first quotient
        (0, [192], [], 1),  # two quotients
        (8, [128], [], 1),
        (52, [0] * 100 + [128], [255] * 7, 1),  # beyond 64 bits
        (0, [128], [], 10**12),
    ],
)
def test_streams_that_are_none_are_refused(k, quotients, remainders, count):
    code = RiceCode(k, np.array(quotients, np.uint8), np.array(remainders, np.uint8))
    with pytest.raises(ValueError):
        decode_positions(code, count, 2**53)
