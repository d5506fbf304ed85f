"""Triton kernels over many tensors at once: one launch, one table that tells where they lie.

    table:   16 numbers for all tensors (options), then rows with one entry for each tensor:
             its size, its first block, then addresses by role (weights, gradients, ...) and numbers
    owners:  for each block of ``BLOCK`` values the tensor that it belongs to

A kernel finds its place by :func:`find_block` and reads the rest from the table. All entries are
int64, so that one copy to the device is enough; a number is a float32 given by its bits.

We assume that the compiler neither flushes denormal numbers nor reorders sums. That is Triton's
default, and ``test_kernels_compile_for_gpus`` checks it. Kernels are launched without contraction
of products and sums: a step and ``to_primal`` have to agree to the bit.

bfloat16 is read and written as bits, because Triton's interpreter cuts it off where GPUs round.
"""

# What Triton compiles is not quite Python.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportMissingImports=false
from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = [
    "DTYPES",
    "agree_on_type",
    "find_address",
    "find_block",
    "find_number",
    "launch",
    "load_floats",
    "load_number",
    "store_floats",
]

BLOCK = 1024
_NUM_OPTIONS = 16
_SIZE, _FIRST, _POINTERS = 0, 1, 2
DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}

_OPTIONS = tl.constexpr(_NUM_OPTIONS)
_BFLOAT16_NAN = tl.constexpr(0x40)


def launch(
    kernel: Any,
    roles: Sequence[Sequence[Tensor] | None],
    numbers: Sequence[Sequence[float]] = (),
    options: Sequence[float] = (),
    out: int = 0,
    **constants: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Run a kernel on tensors of one device; return each block's tensor and its outputs.

    Args:
        kernel: Takes the table, the owners, the number of tensors, the outputs, and ``BLOCK``.
        roles: Lists of tensors, the first of them complete; their addresses are rows of the table.
        numbers: Rows with one number for each tensor, after the addresses.
        options: At most 16 numbers for all tensors.
        out: How many float32 each block writes.
        constants: Compile-time constants of the kernel.
    """
    first = roles[0]
    assert first is not None
    assert len(options) <= _NUM_OPTIONS
    if not first:
        return np.zeros(0, np.int64), np.zeros((0, out))
    device = first[0].device
    sizes = tuple(tensor.numel() for tensor in first)
    starts, owners, owners_there = _cut(sizes, BLOCK, device)
    table = np.zeros(_NUM_OPTIONS + (2 + len(roles) + len(numbers)) * len(sizes), np.int64)
    table[: len(options)] = _bits(options)
    rows = table[_NUM_OPTIONS:].reshape(-1, len(sizes))
    rows[_SIZE], rows[_FIRST] = sizes, starts
    for row, tensors in enumerate(roles, _POINTERS):
        if tensors is not None:
            rows[row] = [tensor.data_ptr() for tensor in tensors]
    for row, values in enumerate(numbers, _POINTERS + len(roles)):
        rows[row] = _bits(values)
    results = torch.empty((len(owners), out), dtype=torch.float32, device=device)
    if len(owners):
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            kernel[(len(owners),)](
                torch.from_numpy(table).to(device),
                owners_there,
                len(sizes),
                results,
                BLOCK=BLOCK,
                **constants,
                enable_fp_fusion=False,
            )
    return owners, results.cpu().double().numpy() if out else np.zeros((len(owners), 0))


def agree_on_type(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors in one type, for a kernel reads all of them alike: their own, else float32."""
    is_one = all(tensor.dtype is tensors[0].dtype for tensor in tensors)
    return tensors if is_one else [tensor.float() for tensor in tensors]


def _bits(numbers: Sequence[float]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float64).astype(np.float32).view(np.int32)


@functools.lru_cache(maxsize=32)
def _cut(
    sizes: tuple[int, ...], block: int, device: torch.device
) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """The first block of each tensor and the tensor of each block, here and on the device."""
    counts = -(-np.array(sizes, np.int64) // block)
    owners = np.repeat(np.arange(len(sizes)), counts)
    return np.cumsum(counts) - counts, owners, torch.from_numpy(owners.astype(np.int32)).to(device)


@triton.jit
def find_block(table, owners, num_tensors, BLOCK: tl.constexpr):
    """The tensor of this program, the indices of its values, and which of them exist."""
    tensor = tl.load(owners + tl.program_id(0))
    size = tl.load(table + _OPTIONS + tensor)
    first = tl.load(table + _OPTIONS + num_tensors + tensor)
    indices = (tl.program_id(0) - first) * BLOCK + tl.arange(0, BLOCK)
    return tensor, indices, indices < size


@triton.jit
def find_address(table, num_tensors, tensor, ROLE: tl.constexpr):
    """Where the tensor of a role lies."""
    return tl.load(table + _OPTIONS + (2 + ROLE) * num_tensors + tensor)


@triton.jit
def find_number(table, num_tensors, tensor, ROW: tl.constexpr):
    """A number of this tensor; rows are counted from the first role."""
    return load_number(table, _OPTIONS + (2 + ROW) * num_tensors + tensor)


@triton.jit
def load_number(table, index):
    """A float32 that the table holds by its bits."""
    return tl.load(table + index).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def load_floats(address, indices, mask, DTYPE: tl.constexpr):
    """Values of any type as float32, 0 where there are none."""
    if tl.bfloat16 == DTYPE:
        bits = tl.load(address.to(tl.pointer_type(tl.int16)) + indices, mask=mask, other=0)
        values = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        values = tl.load(address.to(tl.pointer_type(DTYPE)) + indices, mask=mask, other=0.0)
    return values.to(tl.float32)


@triton.jit
def store_floats(address, indices, values, mask, DTYPE: tl.constexpr):
    """Write float32 values, rounded to nearest, ties to even."""
    if tl.bfloat16 == DTYPE:
        bits = values.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded = tl.where(values == values, rounded, (bits >> 16) | _BFLOAT16_NAN)
        tl.store(address.to(tl.pointer_type(tl.int16)) + indices, rounded.to(tl.int16), mask=mask)
    else:
        tl.store(address.to(tl.pointer_type(DTYPE)) + indices, values.to(DTYPE), mask=mask)
