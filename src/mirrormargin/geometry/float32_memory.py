"""What compiled loops on float32 are made of: instructions, and memory at an address.

Numba exposes none of these: one LLVM instruction each, and arrays of given length and type where
torch has its numbers.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, extending, njit
from numba.core import types

__all__ = [
    "SOURCES",
    "bits_float",
    "booleans",
    "compiled",
    "double_pointer",
    "float_bits",
    "floats",
    "fma",
    "inlined",
    "instruction",
    "int_pointer",
    "integers",
    "longs",
    "offset",
    "rename",
    "shorts",
    "stream",
    "uint_pointer",
]

SOURCES = (__file__,)

inlined: Any = njit(inline="always", error_model="numpy")
# A loop over one block. It takes addresses and not arrays: passing an array costs more than the
# loop, and LLVM vectorises small functions of pointers reliably. Only kernels call it: wrappers
# for other callers would take a quarter of the time to compile.
_without_wrappers: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled: Any = njit(error_model="numpy", **_without_wrappers)


def rename(suffix: object) -> Callable[[Any], Any]:
    """Decorate a closure that is made several times, with different contents, below ``compiled``.

    Kernels from the disk cache may come from different processes. Where they contain functions
    with equal names, the linker takes any one of them for all: names must tell them apart.
    Pinned by ``test_kernels_cached_by_different_processes_work_together``.
    """

    def apply(function: Any) -> Any:
        function.__name__ = f"{function.__name__}_{suffix}"
        function.__qualname__ = f"{function.__qualname__}_{suffix}"
        return function

    return apply


# One LLVM instruction each; Numba exposes none of them. The odd signatures are Numba's.

instruction: Any = extending.intrinsic


@instruction
def fma(typing, a, b, c):
    """a * b + c with one rounding."""
    return a(a, a, a), lambda context, builder, signature, args: builder.fma(*args)


@instruction
def float_bits(typing, value):
    """The 32 bits of a float32 as an int32."""
    return types.int32(types.float32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(32)
    )


@instruction
def bits_float(typing, value):
    """The float32 whose bits are the given int32."""
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.FloatType()
    )


def _pointer_to(kind: types.Type, width: ir.Type) -> Any:
    @instruction
    def pointer(typing, address):
        return types.CPointer(kind)(
            address
        ), lambda context, builder, signature, args: builder.inttoptr(args[0], width.as_pointer())

    return pointer


_float_pointer = _pointer_to(types.float32, ir.FloatType())
_short_pointer = _pointer_to(types.int16, ir.IntType(16))
_byte_pointer = _pointer_to(types.int8, ir.IntType(8))
_word_pointer = _pointer_to(types.int32, ir.IntType(32))
int_pointer = _pointer_to(types.int64, ir.IntType(64))
uint_pointer = _pointer_to(types.uint64, ir.IntType(64))
double_pointer = _pointer_to(types.float64, ir.DoubleType())


@inlined
def floats(address, num):
    """``num`` float32 values at an address, as an array."""
    return carray(_float_pointer(address), (num,))


@inlined
def shorts(address, num):
    """``num`` values of 16 bits at an address, as an array of int16."""
    return carray(_short_pointer(address), (num,))


@inlined
def integers(address, num):
    """``num`` values of 32 bits at an address, as an array of int32."""
    return carray(_word_pointer(address), (num,))


@inlined
def longs(address, num):
    """``num`` values of 64 bits at an address, as an array of int64."""
    return carray(int_pointer(address), (num,))


@inlined
def booleans(address, num):
    """``num`` booleans of torch at an address, as an array of int8, 0 or 1."""
    return carray(_byte_pointer(address), (num,))


@inlined
def offset(address, count):
    """The address ``count`` floats further on."""
    return address + np.uint64(4 * count)


_LINE = 16  # floats in a cache line


@instruction
def _stream_line(typing, source, target):
    """Copy a cache line past the cache; ``target`` is aligned to one."""

    def emit(context, builder, signature, args):
        line = ir.VectorType(ir.FloatType(), _LINE).as_pointer()
        value = builder.load(builder.bitcast(args[0], line), align=4)
        store = builder.store(value, builder.bitcast(args[1], line), align=4 * _LINE)
        hint = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.none(source, target), emit


@compiled
def stream(source_address, target_address, num):
    """Copy a row of scratch memory to where nothing has to be read first.

    An ordinary store reads the cache line that it changes. For a tensor that does not fit the
    cache, and is not read otherwise, that is as much traffic again. Other threads see the values
    once this one takes its next chunk: an atomic operation waits for such stores.
    """
    whole = num // _LINE * _LINE if target_address % np.uint64(4 * _LINE) == 0 else 0
    for i in range(0, whole, _LINE):
        source, target = offset(source_address, i), offset(target_address, i)
        _stream_line(_float_pointer(source), _float_pointer(target))
    source, target = floats(source_address, num), floats(target_address, num)
    for i in range(whole, num):
        target[i] = source[i]
