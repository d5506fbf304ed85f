r"""Vectors of eight float64 as a number type of compiled code: eight problems in one loop.

    x = load(list, j),    y = x * x + splat(2.0),    y = select(y > x, y, x),    store(list, j, y)

The lanes of a vector never meet. Each operation rounds as the scalar one does, so a loop that does
in lanes what another does to one number after the other computes the same bits in every lane,
whatever its neighbours hold. A vector is one register with AVX-512 and two with AVX2; there are
eight lanes everywhere, since memory is laid out for them.

A list of vectors is an array of float64 that begins at a multiple of their size, see
:func:`make_lists`.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numpy.typing import NDArray

from mirrormargin.geometry import float64_loops

__all__ = [
    "LANES",
    "SOURCES",
    "any_of",
    "load",
    "make_lists",
    "multiply",
    "select",
    "splat",
    "store",
]

SOURCES = (*float64_loops.SOURCES, __file__)

LANES = 8
_BYTES = 8 * LANES
_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
_VECTOR, _BITS = ir.VectorType(_DOUBLE, LANES), ir.VectorType(ir.IntType(1), LANES)


class _Vector(types.Type):
    """Eight float64."""


class _Mask(types.Type):
    """Eight truth values."""


_vector, _mask = _Vector("lanes of float64"), _Mask("lanes of truth values")


def _keep_as(kind: ir.Type) -> Any:
    class Model(extending.models.PrimitiveModel):
        def __init__(self, manager: Any, numba_type: Any) -> None:
            super().__init__(manager, numba_type, kind)

    return Model


extending.register_model(_Vector)(_keep_as(_VECTOR))
extending.register_model(_Mask)(_keep_as(_BITS))


def _define(function: Any, arguments: tuple[Any, ...], result: Any, emit: Any) -> None:
    """Give an operator or a built-in function a meaning for vectors."""

    @extending.type_callable(function)
    def choose(context: Any) -> Any:
        if len(arguments) == 1:
            return lambda a: result if a == arguments[0] else None
        return lambda a, b: result if (a, b) == arguments else None

    @extending.lower_builtin(function, *arguments)
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit(builder, *args)


def _compare(sign: str) -> Any:
    # nan differs from everything, as in Python.
    ordered = "fcmp_unordered" if sign == "!=" else "fcmp_ordered"
    return lambda builder, a, b: getattr(builder, ordered)(sign, a, b)


for _operator, _name in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul"), ("truediv", "fdiv")):
    _define(
        getattr(operator, _operator),
        (_vector, _vector),
        _vector,
        lambda builder, a, b, name=_name: getattr(builder, name)(a, b),
    )
for _operator, _sign in (("lt", "<"), ("gt", ">"), ("eq", "=="), ("ne", "!=")):
    _define(getattr(operator, _operator), (_vector, _vector), _mask, _compare(_sign))
_define(operator.and_, (_mask, _mask), _mask, lambda builder, a, b: builder.and_(a, b))
_define(operator.or_, (_mask, _mask), _mask, lambda builder, a, b: builder.or_(a, b))
_define(operator.invert, (_mask,), _mask, lambda builder, a: builder.not_(a))
_define(abs, (_vector,), _vector, lambda builder, a: _call(builder, "fabs", a))

_intrinsic: Any = extending.intrinsic


def _call(builder: Any, name: str, *args: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(args))
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f64")
    return builder.call(function, args)


def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """The pointer to a vector of a list."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _VECTOR.as_pointer()), [index])


@_intrinsic
def load(typing, vectors, index):
    """Vector ``index`` of a list."""

    def emit(context, builder, signature, args):
        return builder.load(_place(context, builder, signature.args[0], *args), align=_BYTES)

    return _vector(vectors, types.int64), emit


@_intrinsic
def store(typing, vectors, index, value):
    def emit(context, builder, signature, args):
        array, where, vector = args
        place = _place(context, builder, signature.args[0], array, where)
        builder.store(vector, place, align=_BYTES)
        return context.get_dummy_value()

    return types.void(vectors, types.int64, _vector), emit


@_intrinsic
def splat(typing, value):
    """The same number in all lanes."""

    def emit(context, builder, signature, args):
        undefined, index = ir.Constant(_VECTOR, ir.Undefined), ir.IntType(32)
        one = builder.insert_element(undefined, args[0], ir.Constant(index, 0))
        zeros = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
        return builder.shuffle_vector(one, undefined, zeros)

    return _vector(types.float64), emit


@_intrinsic
def select(typing, mask, a, b):
    """a where the mask is true, else b."""
    return _vector(
        _mask, _vector, _vector
    ), lambda context, builder, signature, args: builder.select(*args)


@_intrinsic
def any_of(typing, mask):
    """Whether a lane is true."""

    def emit(context, builder, signature, args):
        bits = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(_mask), emit


def _emit_block(height: int, width: int) -> Any:
    """An intrinsic: sums of products for ``height`` rows and ``width`` columns of a result."""

    def emit(context, builder, signature, args):
        a, a_row, a_next, b, b_column, b_next, out, out_row, count = args

        def along(address, stride, times):
            return builder.add(address, builder.mul(stride, ir.Constant(_WORD, times)))

        def at(address):
            return builder.inttoptr(address, _VECTOR.as_pointer())

        cells = list(itertools.product(range(height), range(width)))
        sums = {cell: cgutils.alloca_once(builder, _VECTOR) for cell in cells}
        for place in sums.values():
            builder.store(ir.Constant(_VECTOR, [0.0] * LANES), place)
        with cgutils.for_range(builder, count) as loop:
            first = builder.add(a, builder.mul(loop.index, a_next))
            second = builder.add(b, builder.mul(loop.index, b_next))
            left = [builder.load(at(along(first, a_row, r)), align=_BYTES) for r in range(height)]
            right = [
                builder.load(at(along(second, b_column, c)), align=_BYTES) for c in range(width)
            ]
            for (r, c), place in sums.items():
                total = _call(builder, "fma", left[r], right[c], builder.load(place))
                builder.store(total, place)
        for (r, c), place in sums.items():
            target = builder.add(along(out, out_row, r), ir.Constant(_WORD, _BYTES * c))
            builder.store(builder.load(place), at(target), align=_BYTES)
        return context.get_dummy_value()

    @_intrinsic
    def add_products(typing, a, a_row, a_next, b, b_column, b_next, out, out_row, count):
        return types.void(*(types.int64,) * 9), emit

    return add_products


_block, _tall, _wide, _one = (_emit_block(*size) for size in ((2, 4), (2, 1), (1, 4), (1, 1)))


@float64_loops.compiled
def multiply(a, a_row, a_next, b, b_column, b_next, out, rows, columns, count):
    """``out[r, c] = sum_k a[r, k] b[k, c]`` in each lane, added up by fma in the order of k.

    ``a``, ``b`` and ``out`` are addresses. Entry (r, k) of a is vector ``r * a_row + k * a_next``,
    entry (k, c) of b vector ``c * b_column + k * b_next``; out is (rows, columns).
    """
    ar, ak, bc, bk = _BYTES * a_row, _BYTES * a_next, _BYTES * b_column, _BYTES * b_next
    width = _BYTES * columns
    r = 0
    while r < rows:
        is_pair = r + 2 <= rows
        c = 0
        while c < columns:
            target = out + r * width + c * _BYTES
            place = (a + r * ar, ar, ak, b + c * bc, bc, bk, target, width, count)
            if c + 4 <= columns:
                if is_pair:
                    _block(*place)
                else:
                    _wide(*place)
                c += 4
            else:
                if is_pair:
                    _tall(*place)
                else:
                    _one(*place)
                c += 1
        r += 2


def make_lists(*counts: int) -> list[NDArray[np.float64]]:
    """Lists of so many vectors, zeros."""
    memory = np.zeros(LANES * (sum(counts) + 1))
    start = -memory.ctypes.data % _BYTES // 8
    stops = start + LANES * np.cumsum(counts)
    return [memory[stop - LANES * count : stop] for stop, count in zip(stops, counts, strict=True)]
