"""The compiled move of one block:  u' = decay u - lr x,  w' = to_primal(u').

For p = 1.5, 2 and 3 the dual u is recomputed from w by a square or a square root; for every other
p it is read from the optimizer's state and written back. There is one function per exponent and
not one with a branch inside: where two names may mean the same memory, such as u and w at p = 2,
the compiler cannot vectorise.
"""

from __future__ import annotations

import math

import numpy as np

from mirrormargin.geometry import float32_powers
from mirrormargin.geometry.float32_kernels import BLOCK
from mirrormargin.geometry.float32_memory import (
    bits_float,
    compiled,
    float_bits,
    floats,
    fma,
    inlined,
    offset,
    rename,
    stream,
)
from mirrormargin.geometry.float32_powers import (
    HIGH,
    MIDDLE,
    exponent_high,
    exponent_low,
    finish_high,
    finish_low,
    power_kind,
    power_plain,
    split_high,
    split_low,
    split_middle,
)
from mirrormargin.geometry.integer_powers import integer_power, with_sign
from mirrormargin.optim.dual_state import WITHOUT_DUAL

__all__ = [
    "FREE_ROW",
    "P2",
    "P3",
    "P3_2",
    "ROW_NEW",
    "add_dual",
    "add_kept_dual",
    "hidden_zero",
    "keep",
    "move",
    "move_euclidean",
    "move_kind",
]

SOURCES = (*float32_powers.SOURCES, __file__)

f32, i32 = np.float32, np.int32

# The kinds of exponent: closed forms, beside those of ``power_kind``, which are not negative.
P2, P3_2, P3 = -1, -2, -3
_CLOSED_FORMS = dict(zip(WITHOUT_DUAL, (P3_2, P2, P3), strict=True))


def move_kind(p: float) -> int:
    """Which of the functions below moves weights at the exponent ``p``."""
    return _CLOSED_FORMS[p] if p in _CLOSED_FORMS else power_kind(1 / (p - 1))


ROW_NEW = 3  # above the three rows of scratch memory that the stages of the power use
FREE_ROW = 4


@inlined
def keep(old, value, u, moved, zero):
    """The weight after the move: untouched, to the bit, where the dual did not change.

    Written without a branch, and with a zero that the compiler cannot see through: it would
    make a masked store of "keep the old value", which some processors run 20 times slower.
    """
    chosen = old if (moved == u) | (u != u) else value
    return bits_float(i32(float_bits(chosen) | zero))


@inlined
def hidden_zero(num):
    return i32(num >> 32)


@inlined
def _signed_root(x):
    return math.copysign(math.sqrt(abs(x)), x)


@inlined
def _signed_square(x):
    return x * abs(x)


@inlined
def _identity(x):
    return x


def _closed_form(name, to_dual, to_primal):
    """The pair (add c u to x, move) for an exponent whose u is computed from w on the spot."""

    @compiled
    @rename(name)
    def add_dual(x_address, w_address, num, c):
        x, w = floats(x_address, num), floats(w_address, num)
        for i in range(num):
            x[i] = fma(c, to_dual(w[i]), x[i])

    @compiled
    @rename(name)
    def move(w_address, x_address, num, decay, lr):
        w, x = floats(w_address, num), floats(x_address, num)
        zero = hidden_zero(num)
        for i in range(num):
            old = w[i]
            u = to_dual(old)
            moved = fma(-lr, x[i], decay * u)
            w[i] = keep(old, to_primal(moved), u, moved, zero)

    return add_dual, move


_add_dual_2, _move_2 = _closed_form("2", _identity, _identity)
add_kept_dual, move_euclidean = _add_dual_2, _move_2  # u in the place of w
_add_dual_3_2, _move_3_2 = _closed_form("3_2", _signed_root, _signed_square)
_add_dual_3, _move_3 = _closed_form("3", _signed_square, _signed_root)


@inlined
def add_dual(kind, x, w, dual, num, c):
    if kind == P2:
        _add_dual_2(x, w, num, c)
    elif kind == P3_2:
        _add_dual_3_2(x, w, num, c)
    elif kind == P3:
        _add_dual_3(x, w, num, c)
    else:
        _add_dual_2(x, dual, num, c)


@inlined
def move(kind, w, dual, x, num, decay, lr, power, scratch, streams):
    """u' = decay u - lr x and w' = to_primal(u'), leaving entries with u' = u alone.

    With ``streams`` weights are written past the cache where the power is a short product.
    Elsewhere arithmetic hides what their way through the cache takes.
    """
    if kind == P2:
        _move_2(w, x, num, decay, lr)
    elif kind == P3_2:
        _move_3_2(w, x, num, decay, lr)
    elif kind == P3:
        _move_3(w, x, num, decay, lr)
    elif kind == 4:
        _move_power_4(w, dual, x, num, decay, lr, scratch, streams)
    elif kind == 5:
        _move_power_5(w, dual, x, num, decay, lr, scratch, streams)
    elif kind == 10:
        _move_power_10(w, dual, x, num, decay, lr, scratch, streams)
    elif kind == 20:
        _move_power_20(w, dual, x, num, decay, lr, scratch, streams)
    else:
        _move_by_power(kind, w, dual, x, num, decay, lr, power, scratch)


@inlined
def _move_by_power(kind, w, dual, x, num, decay, lr, power, scratch):
    """The stages of ``power_block``; the first also moves u, the last also writes u and w.

    Memory traffic and arithmetic overlap only inside one loop, and here both are long.
    """
    new = offset(scratch, ROW_NEW * BLOCK)
    if kind == HIGH:
        if _move_split_high(dual, x, new, num, decay, lr, power, scratch):
            exponent_high(num, power, scratch)
            _finish_commit_high(w, dual, new, num, scratch)
        else:
            _move_plainly(w, dual, new, num, power, scratch)
    elif kind == MIDDLE:
        if _move_split_middle(dual, x, new, num, decay, lr, power, scratch):
            exponent_low(num, power, scratch)
            _finish_commit_high(w, dual, new, num, scratch)
        else:
            _move_plainly(w, dual, new, num, power, scratch)
    elif _move_split_low(dual, x, new, num, decay, lr, power, scratch):
        exponent_low(num, power, scratch)
        _finish_commit_low(w, dual, new, num, scratch)
    else:
        _move_plainly(w, dual, new, num, power, scratch)


def _integer_move(n):
    power = integer_power(n)

    @compiled
    @rename(f"power_{n}")
    def update(w_address, dual_address, x_address, num, decay, lr):
        w, dual, x = floats(w_address, num), floats(dual_address, num), floats(x_address, num)
        zero = hidden_zero(num)
        for i in range(num):
            u, old = dual[i], w[i]
            moved = fma(-lr, x[i], decay * u)
            dual[i] = moved
            w[i] = keep(old, with_sign(power(abs(moved)), moved), u, moved, zero)

    @compiled
    @rename(f"power_{n}")
    def prepare(value_address, still_address, dual_address, x_address, num, decay, lr):
        """The move of u, with w' and whether u' = u in scratch memory; how many did not move.

        Where u is 0, so is w: such weights, those that a schedule has removed among them, may be
        written.
        """
        value, still = floats(value_address, num), floats(still_address, num)
        dual, x, num_still = floats(dual_address, num), floats(x_address, num), i32(0)
        for i in range(num):
            u = dual[i]
            moved = fma(-lr, x[i], decay * u)
            is_still = i32((moved == u) | (u != u))
            dual[i] = moved
            value[i] = with_sign(power(abs(moved)), moved)
            still[i] = f32(is_still)
            num_still += is_still & i32(u != 0)
        return num_still

    @inlined
    @rename(f"power_{n}")
    def move(w, dual, x, num, decay, lr, scratch, streams):
        if streams:
            value = offset(scratch, ROW_NEW * BLOCK)
            if prepare(value, scratch, dual, x, num, decay, lr) == 0:
                stream(value, w, num)
            else:
                _write_moved(w, value, scratch, num)
        else:
            update(w, dual, x, num, decay, lr)

    return move


@compiled
def _write_moved(w_address, value_address, still_address, num):
    w, value, still = floats(w_address, num), floats(value_address, num), floats(still_address, num)
    zero = hidden_zero(num)
    for i in range(num):
        chosen = w[i] if still[i] != 0 else value[i]
        w[i] = bits_float(i32(float_bits(chosen) | zero))  # as in keep


_move_power_4, _move_power_5, _move_power_10, _move_power_20 = map(_integer_move, (4, 5, 10, 20))


@compiled
def _move_split_high(dual_address, x_address, new_address, num, decay, lr, power, scratch):
    dual, x, new = floats(dual_address, num), floats(x_address, num), floats(new_address, num)
    exponent = floats(scratch, num)
    s_high, s_low = floats(offset(scratch, BLOCK), num), floats(offset(scratch, 2 * BLOCK), num)
    clamp, top = f32(power[8]), i32(0)
    for i in range(num):
        moved = fma(-lr, x[i], decay * dual[i])
        new[i] = moved
        top = max(top, float_bits(abs(moved)))
        exponent[i], s_high[i], s_low[i] = split_high(abs(moved), clamp)
    return top < power[10]


@compiled
def _move_split_middle(dual_address, x_address, new_address, num, decay, lr, power, scratch):
    dual, x, new = floats(dual_address, num), floats(x_address, num), floats(new_address, num)
    exponent, ratio = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    clamp, top = f32(power[8]), i32(0)
    for i in range(num):
        moved = fma(-lr, x[i], decay * dual[i])
        new[i] = moved
        top = max(top, float_bits(abs(moved)))
        exponent[i], ratio[i] = split_middle(abs(moved), clamp)
    return top < power[10]


@compiled
def _move_split_low(dual_address, x_address, new_address, num, decay, lr, power, scratch):
    dual, x, new = floats(dual_address, num), floats(x_address, num), floats(new_address, num)
    exponent, ratio = floats(scratch, num), floats(offset(scratch, BLOCK), num)
    bottom, top = i32(0x7FFFFFFF), i32(0)
    for i in range(num):
        moved = fma(-lr, x[i], decay * dual[i])
        new[i] = moved
        a = abs(moved)
        top = max(top, float_bits(a))
        bottom = min(bottom, float_bits(a))
        exponent[i], ratio[i] = split_low(a)
    return top < power[10] and bottom >= power[9]


def _finish_and_commit(name, finish):
    """The last stage of the power, which also writes u' and w'."""

    @compiled
    @rename(name)
    def finish_and_commit(w_address, dual_address, new_address, num, scratch):
        w, dual, new = floats(w_address, num), floats(dual_address, num), floats(new_address, num)
        rounded, fraction = floats(scratch, num), floats(offset(scratch, BLOCK), num)
        zero = hidden_zero(num)
        for i in range(num):
            u, moved, old = dual[i], new[i], w[i]
            value = finish(rounded[i], fraction[i], moved)
            dual[i] = moved
            w[i] = keep(old, value, u, moved, zero)

    return finish_and_commit


_finish_commit_high = _finish_and_commit("high", finish_high)
_finish_commit_low = _finish_and_commit("low", finish_low)


@compiled
def _move_plainly(w_address, dual_address, new_address, num, power, scratch):
    """The last stage where the fast path is not valid."""
    power_plain(new_address, scratch, num, power[0])
    w, dual = floats(w_address, num), floats(dual_address, num)
    new, y = floats(new_address, num), floats(scratch, num)
    zero = hidden_zero(num)
    for i in range(num):
        u, moved, old, value = dual[i], new[i], w[i], y[i]
        dual[i] = moved
        w[i] = keep(old, value, u, moved, zero)
