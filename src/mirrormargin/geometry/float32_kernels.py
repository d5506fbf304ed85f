"""Kernels on float32 tensors: their chunks of work, and the threads that share them.

A kernel works on tensors given by address, one chunk at a time::

    @kernel(__file__)
    def square(version):
        def work(counters):
            chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
            k = take_chunk(counters)
            while k < len(chunks):
                ...  # chunks[k] is (tensor, start, stop)
                k = take_chunk(counters)
        return work

    run(square, sizes, pointers)

``@kernel_family`` makes one such kernel for each kind of exponent, and compiles those in use.

Numba compiles it, without fast-math, into a C callback that takes chunks until none is left.
The calling thread runs it alone, or shares the chunks with torch's own OpenMP threads or with
Python threads. OpenMP comes first because torch's idle threads spin for milliseconds after each
torch operation, and a second set of threads would fight them for the cores. Numba's threading
layers are not used: they abort after a fork or when entered from two threads at once.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, extending, njit
from numba.core import types

from mirrormargin.geometry.compiler import CompiledFunction

__all__ = [
    "BLOCK",
    "CHUNK",
    "SOURCES",
    "KernelFamily",
    "bits_float",
    "booleans",
    "compiled",
    "float_bits",
    "floats",
    "fma",
    "inlined",
    "integers",
    "kernel",
    "kernel_family",
    "longs",
    "offset",
    "open_job",
    "rename",
    "run",
    "shorts",
    "stream",
    "take_chunk",
]

SOURCES = (__file__,)

CHUNK = 32768  # floats in the unit of work that threads share
BLOCK = 256  # floats in a row of scratch memory: ten such rows fit the L1 cache with room
SCRATCH_ROWS = 5
_MIN_PARALLEL = 4 * CHUNK  # below this a second thread costs more than it saves

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

_instruction: Any = extending.intrinsic


@_instruction
def fma(typing, a, b, c):
    """a * b + c with one rounding."""
    return a(a, a, a), lambda context, builder, signature, args: builder.fma(*args)


@_instruction
def float_bits(typing, value):
    """The 32 bits of a float32 as an int32."""
    return types.int32(types.float32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(32)
    )


@_instruction
def bits_float(typing, value):
    """The float32 whose bits are the given int32."""
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.FloatType()
    )


def _pointer_to(kind: types.Type, width: ir.Type) -> Any:
    @_instruction
    def pointer(typing, address):
        return types.CPointer(kind)(
            address
        ), lambda context, builder, signature, args: builder.inttoptr(args[0], width.as_pointer())

    return pointer


_float_pointer = _pointer_to(types.float32, ir.FloatType())
_short_pointer = _pointer_to(types.int16, ir.IntType(16))
_byte_pointer = _pointer_to(types.int8, ir.IntType(8))
_word_pointer = _pointer_to(types.int32, ir.IntType(32))
_int_pointer = _pointer_to(types.int64, ir.IntType(64))
_uint_pointer = _pointer_to(types.uint64, ir.IntType(64))
_double_pointer = _pointer_to(types.float64, ir.DoubleType())


@_instruction
def _take_next(typing, counters, index):
    """Add one to ``counters[index]``, atomically; return what it was."""

    def emit(context, builder, signature, args):
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), one, "monotonic")

    return types.int64(counters, index), emit


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
    return carray(_int_pointer(address), (num,))


@inlined
def booleans(address, num):
    """``num`` booleans of torch at an address, as an array of int8, 0 or 1."""
    return carray(_byte_pointer(address), (num,))


@inlined
def offset(address, count):
    """The address ``count`` floats further on."""
    return address + np.uint64(4 * count)


_LINE = 16  # floats in a cache line


@_instruction
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


# The job that a callback receives, an int64 array: the next chunk, the next worker's seat (its
# part of the scratch memory: kernels allocate nothing), shapes, and the addresses of the arrays.
_NEXT, _SEAT, _CHUNKS, _TENSORS, _POINTER_ROWS, _SCALAR_COLUMNS, _OPTIONS, _OUT_COLUMNS = range(8)
_ADDRESSES = 8


@compiled
def open_job(counters, version):
    """The arrays of a job and the address of the caller's own scratch memory."""
    job = carray(counters, (_ADDRESSES + 6,))
    num_chunks, num_tensors = job[_CHUNKS], job[_TENSORS]
    chunks = carray(_int_pointer(job[_ADDRESSES]), (num_chunks, 3))
    pointers = carray(_uint_pointer(job[_ADDRESSES + 1]), (job[_POINTER_ROWS], num_tensors))
    scalars = carray(_double_pointer(job[_ADDRESSES + 2]), (num_tensors, job[_SCALAR_COLUMNS]))
    options = carray(_double_pointer(job[_ADDRESSES + 3]), (job[_OPTIONS],))
    out = carray(_double_pointer(job[_ADDRESSES + 4]), (num_chunks, job[_OUT_COLUMNS]))
    seat = _take_next(counters, _SEAT)
    scratch = offset(np.uint64(job[_ADDRESSES + 5]), seat * SCRATCH_ROWS * BLOCK)
    return chunks, pointers, scalars, options, out, scratch


@compiled
def take_chunk(counters):
    """The number of the next chunk to do; past the last one when none is left."""
    return _take_next(counters, _NEXT)


def kernel(*sources: str) -> Callable[[Callable[[int], Callable[..., None]]], CompiledFunction]:
    """Decorate the factory of a kernel; ``sources`` are the files that it calls into."""
    signature = types.void(types.CPointer(types.int64))
    return lambda factory: CompiledFunction(
        factory, signature, (*SOURCES, *sources), is_callback=True
    )


class KernelFamily:
    """One kernel for each kind of exponent: ``family[kind]``.

    Each is compiled when it is first used. ``kind`` is a constant in its code, so Numba drops the
    branches of other kinds before it compiles them; one kernel with all branches would take
    four times as long.
    """

    def __init__(
        self, factory: Callable[[int, int], Callable[..., None]], sources: tuple[str, ...]
    ):
        self.sources = (*SOURCES, *sources)
        self._factory = factory
        self._kernels: dict[int, CompiledFunction] = {}

    def __getitem__(self, kind: int) -> CompiledFunction:
        if kind not in self._kernels:
            # The name tells the members apart, for Numba's cache and for the linker.
            make = kernel(*self.sources)
            self._kernels.setdefault(kind, make(lambda v: rename(kind)(self._factory(v, kind))))
        return self._kernels[kind]


def kernel_family(
    *sources: str,
) -> Callable[[Callable[[int, int], Callable[..., None]]], KernelFamily]:
    """Decorate the factory of a kernel that takes the digest and the kind of exponent."""
    return lambda factory: KernelFamily(factory, sources)


def run(
    body: CompiledFunction,
    sizes: list[int],
    pointers: np.ndarray | list[list[int]],
    scalars: np.ndarray | None = None,
    options: np.ndarray | list[float] | None = None,
    out_columns: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Run a kernel over all chunks of the tensors; return each chunk's tensor and its outputs.

    Each chunk is computed in the same way on every thread, so results do not depend on the
    number of threads.

    Args:
        body: The kernel.
        sizes: Number of elements of each tensor.
        pointers: One row per role (weights, gradients, ...), one address per tensor.
        scalars: (tensor, k) numbers of each tensor.
        options: Numbers that all tensors share.
        out_columns: How many numbers each chunk writes.
    """
    chunks = _make_chunks(tuple(sizes))
    addresses = np.ascontiguousarray(np.asarray(pointers, np.uint64).reshape(-1, len(sizes)))
    if scalars is None:
        scalars = np.empty((len(sizes), 0))
    scalars = np.ascontiguousarray(scalars, np.float64)
    numbers = np.ascontiguousarray([] if options is None else options, np.float64)
    out = np.zeros((len(chunks), out_columns))
    num_threads = 1 if sum(sizes) < _MIN_PARALLEL else min(torch.get_num_threads(), len(chunks))
    scratch = np.empty((num_threads, SCRATCH_ROWS, BLOCK), np.float32)
    shape = (len(chunks), len(sizes), len(addresses), scalars.shape[1], len(numbers), out_columns)
    arrays = (chunks, addresses, scalars, numbers, out, scratch)
    job = np.array([0, 0, *shape, *(a.ctypes.data for a in arrays)], np.int64)
    if len(chunks):
        _call(body.address, job.ctypes.data, num_threads)
    return chunks[:, 0], out


@lru_cache(maxsize=64)
def _make_chunks(numbers: tuple[int, ...]) -> np.ndarray:
    sizes = np.asarray(numbers, np.int64)
    counts = -(-sizes // CHUNK)
    tensor = np.repeat(np.arange(len(sizes)), counts)
    start = (np.arange(len(tensor)) - np.repeat(np.cumsum(counts) - counts, counts)) * CHUNK
    stop = np.minimum(start + CHUNK, sizes[tensor])
    chunks = np.ascontiguousarray(np.stack([tensor, start, stop], axis=1), np.int64)
    chunks.flags.writeable = False  # every step with these sizes gets the same array
    return chunks


_entry_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _call(address: int, job: int, num_threads: int) -> None:
    if num_threads == 1:
        _entry_type(address)(job)
    elif _openmp is not None:
        _openmp(address, job, num_threads, 0)
    else:
        entry = _entry_type(address)
        pool = _workers(num_threads - 1)
        futures = [pool.submit(entry, job) for _ in range(num_threads - 1)]
        try:
            entry(job)
        finally:
            _wait_for(futures)


def _wait_for(futures: list[Any]) -> None:
    """Wait until the workers have left the job's memory, even when interrupted meanwhile."""
    interrupt = None
    while True:
        try:
            wait(futures)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _find_openmp() -> Any:
    """``GOMP_parallel`` of the OpenMP library that torch itself has loaded, if it has."""
    try:
        loaded = ctypes.CDLL("libgomp.so.1", mode=getattr(os, "RTLD_NOLOAD", 4))
        function = loaded.GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


_openmp = _find_openmp()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def _workers(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < size:
        # An outgrown pool is dropped, not shut down: another thread may be using it.
        _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="mirrormargin"), size
    return _pool


def _after_fork() -> None:
    """The child has neither the OpenMP threads nor the pool's: waiting on them would hang."""
    global _openmp, _pool, _pool_size
    _openmp, _pool, _pool_size = None, None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def threading_layer() -> str:
    """Who runs the kernels here, for reports."""
    return "torch's OpenMP threads" if _openmp is not None else "Python threads"
