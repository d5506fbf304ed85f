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
from numba import carray
from numba.core import types

from mirrormargin.geometry import float32_memory
from mirrormargin.geometry.compiler import CompiledFunction
from mirrormargin.geometry.float32_memory import (
    compiled,
    double_pointer,
    instruction,
    int_pointer,
    offset,
    rename,
    uint_pointer,
)

__all__ = [
    "BLOCK",
    "CHUNK",
    "SOURCES",
    "KernelFamily",
    "kernel",
    "kernel_family",
    "open_job",
    "run",
    "take_chunk",
]

SOURCES = (*float32_memory.SOURCES, __file__)

CHUNK = 32768  # floats in the unit of work that threads share
BLOCK = 256  # floats in a row of scratch memory: ten such rows fit the L1 cache with room
SCRATCH_ROWS = 5
_MIN_PARALLEL = 4 * CHUNK  # below this a second thread costs more than it saves


@instruction
def _take_next(typing, counters, index):
    """Add one to ``counters[index]``, atomically; return what it was."""

    def emit(context, builder, signature, args):
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), one, "monotonic")

    return types.int64(counters, index), emit


# The job that a callback receives, an int64 array: the next chunk, the next worker's seat (its
# part of the scratch memory: kernels allocate nothing), shapes, and the addresses of the arrays.
_NEXT, _SEAT, _CHUNKS, _TENSORS, _POINTER_ROWS, _SCALAR_COLUMNS, _OPTIONS, _OUT_COLUMNS = range(8)
_ADDRESSES = 8


@compiled
def open_job(counters, version):
    """The arrays of a job and the address of the caller's own scratch memory."""
    job = carray(counters, (_ADDRESSES + 6,))
    num_chunks, num_tensors = job[_CHUNKS], job[_TENSORS]
    chunks = carray(int_pointer(job[_ADDRESSES]), (num_chunks, 3))
    pointers = carray(uint_pointer(job[_ADDRESSES + 1]), (job[_POINTER_ROWS], num_tensors))
    scalars = carray(double_pointer(job[_ADDRESSES + 2]), (num_tensors, job[_SCALAR_COLUMNS]))
    options = carray(double_pointer(job[_ADDRESSES + 3]), (job[_OPTIONS],))
    out = carray(double_pointer(job[_ADDRESSES + 4]), (num_chunks, job[_OUT_COLUMNS]))
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
