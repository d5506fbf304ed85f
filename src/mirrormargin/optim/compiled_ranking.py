r"""The ranking of float32 weights on the CPU, compiled: weights are read, and few are copied.

    key = bits(|w|) + 1,      0 for a weight that is removed and still 0

A sample of the weights tells between which two keys the count-th smallest of all is; the weights
below are counted, and those between are collected and sorted. Where that fails, because too many
are equal, digits are counted as in the generic twin, ``ranking.py``. The smallest are then removed:
mask, weight, u and the average of gradients of such an entry become 0. A removed weight that
someone has written to takes part, and may return.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.geometry.float32_kernels import BLOCK, CHUNK, kernel, open_job, run, take_chunk
from mirrormargin.geometry.float32_memory import (
    booleans,
    compiled,
    float_bits,
    floats,
    integers,
    longs,
    offset,
)
from mirrormargin.optim.ranking import Threshold, find_threshold

__all__ = ["remove_smallest"]

_SOURCES = (__file__,)

f32, i32 = np.float32, np.int32

WIDTH, NUM_BITS = 11, 32  # of a digit, and of a key: 2,048 counts for each chunk
EVERY = 64  # one block in so many is in the sample
SPREAD = 4.0  # standard deviations of the sample's rank between which the right one is
ROOM = CHUNK // 16  # keys that a chunk may collect
_WEIGHT, _MASK, _DUAL, _AVERAGE = range(4)
_FOUND = 4  # the row of addresses where keys are collected


@compiled
def _find_key(w, is_left):
    bits = float_bits(abs(w))
    return i32(bits + 1) if (is_left != 0) | (bits != 0) else i32(0)


@kernel(*_SOURCES)
def _count_kernel(version):
    """How often each digit occurs in a chunk."""

    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        shift, prefix = np.int64(options[0]), np.int64(options[1])
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            weight = offset(pointers[_WEIGHT, tensor], start)
            mask = pointers[_MASK, tensor] + np.uint64(start)
            _count(out[k], weight, mask, stop - start, shift, prefix)
            k = take_chunk(counters)

    return work


@compiled
def _count(counts, weight_address, mask_address, num, shift, prefix):
    w, mask = floats(weight_address, num), booleans(mask_address, num)
    for i in range(num):
        digits = np.int64(_find_key(w[i], mask[i])) >> shift
        if digits >> WIDTH == prefix:
            counts[digits & ((1 << WIDTH) - 1)] += 1.0


@kernel(*_SOURCES)
def _collect_kernel(version):
    """Of a chunk how many keys are below ``low``, and those from there to ``high`` themselves."""

    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        low, high = i32(options[0]), i32(options[1])
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            found = integers(offset(pointers[_FOUND, tensor], k * ROOM), ROOM)
            num_below, num_found = 0, 0
            for first in range(start, stop, BLOCK):
                num = min(BLOCK, stop - first)
                weight = offset(pointers[_WEIGHT, tensor], first)
                mask = pointers[_MASK, tensor] + np.uint64(first)
                below, inside = _compare(weight, mask, num, low, high)
                num_below += below
                if (inside != 0) & (num_found + num <= ROOM):
                    num_found = _collect(found, num_found, weight, mask, num, low, high)
                elif inside != 0:
                    num_found = ROOM + 1  # no room
            out[k, 0], out[k, 1] = num_below, num_found
            k = take_chunk(counters)

    return work


@compiled
def _compare(weight_address, mask_address, num, low, high):
    w, mask = floats(weight_address, num), booleans(mask_address, num)
    below, inside = i32(0), i32(0)
    for i in range(num):
        bits = i32(float_bits(abs(w[i])))
        key = i32(bits + i32((mask[i] != 0) | (bits != 0)))
        below += i32(key < low)
        inside += i32((key >= low) & (key < high))
    return below, inside


@compiled
def _collect(found, num_found, weight_address, mask_address, num, low, high):
    w, mask = floats(weight_address, num), booleans(mask_address, num)
    for i in range(num):
        key = _find_key(w[i], mask[i])
        if (key >= low) & (key < high):
            found[num_found] = key
            num_found += 1
    return num_found


@kernel(*_SOURCES)
def _remove_kernel(version):
    """Remove keys below ``key``, and those equal to it behind a tensor's last that is kept."""

    def work(counters):
        chunks, pointers, scalars, options, out, scratch = open_job(counters, version)
        key = i32(options[0])
        k = take_chunk(counters)
        while k < len(chunks):
            tensor, start, stop = chunks[k]
            last = np.int64(scalars[tensor, 0])
            for first in range(start, stop, BLOCK):
                num = min(BLOCK, stop - first)
                weight = offset(pointers[_WEIGHT, tensor], first)
                mask = pointers[_MASK, tensor] + np.uint64(first)
                if _mark_changes(scratch, weight, mask, num, key) != 0:
                    dual, average = pointers[_DUAL, tensor], pointers[_AVERAGE, tensor]
                    dual = offset(dual, first) if dual != 0 else dual
                    average = offset(average, first) if average != 0 else average
                    _remove(scratch, weight, mask, dual, average, num, key, last - first)
            k = take_chunk(counters)

    return work


@compiled
def _mark_changes(marks_address, weight_address, mask_address, num, key):
    """Mark what may have to be changed, all of equal keys among it; return how many they are.

    Few entries of a block are: they are found eight at a time, as one word of marks.
    """
    w, mask = floats(weight_address, num), booleans(mask_address, num)
    words, marks = longs(marks_address, BLOCK // 8), booleans(marks_address, num)
    for j in range(num // 8, min(num // 8 + 1, BLOCK // 8)):
        words[j] = 0
    changes = i32(0)
    for i in range(num):
        bits, is_left = i32(float_bits(abs(w[i]))), i32(mask[i])
        own = i32(bits + i32((is_left != 0) | (bits != 0)))
        change = i32(((own <= key) & (own != 0)) | ((own > key) & (is_left == 0)))
        marks[i] = change
        changes += change
    return changes


@compiled
def _remove(
    marks_address, weight_address, mask_address, dual_address, average_address, num, key, last
):
    w, mask = floats(weight_address, num), booleans(mask_address, num)
    words, marks = longs(marks_address, BLOCK // 8), booleans(marks_address, num)
    for j in range(-(-num // 8)):
        if words[j] == 0:
            continue
        for i in range(8 * j, min(8 * j + 8, num)):
            if marks[i] == 0:
                continue
            own = _find_key(w[i], mask[i])
            if (own < key) | ((own == key) & (i > last)):
                mask[i] = 0
                w[i] = f32(0.0)
                if dual_address != 0:
                    floats(dual_address, num)[i] = f32(0.0)
                if average_address != 0:
                    floats(average_address, num)[i] = f32(0.0)
            else:
                mask[i] = 1


def remove_smallest(
    weights: Sequence[Tensor],
    masks: Sequence[Tensor],
    duals: Sequence[Tensor | None],
    averages: Sequence[Tensor | None],
    count: int,
) -> None:
    """Remove the ``count`` smallest weights of all tensors together, in place.

    Args:
        weights: Contiguous float32 CPU tensors.
        masks: Booleans, False where a weight is removed already.
        duals: Of each tensor its u; None where u is computed from w.
        averages: Of each tensor the average of its gradients; None where none is kept.
        count: How many weights are removed afterwards.
    """
    sizes = [w.numel() for w in weights]
    rows = [weights, masks, duals, averages]
    pointers = [[0 if one is None else one.data_ptr() for one in row] for row in rows]
    if count == 0:
        for mask in masks:
            mask.fill_(True)
        return
    found = _find_quickly(weights, masks, sizes, pointers, count)
    if found is None:
        found = _find_by_digits(sizes, pointers, count)
    last = _find_last_kept(weights, masks, found.key, found.num_equal - found.num_taken)
    torch.autograd.graph.increment_version([*weights, *masks])
    run(_remove_kernel, sizes, pointers, last[:, None], [float(found.key)])


def _find_quickly(
    weights: Sequence[Tensor],
    masks: Sequence[Tensor],
    sizes: list[int],
    pointers: list[list[int]],
    count: int,
) -> Threshold | None:
    """From a sample; None if that is too small, or fails."""
    total = sum(sizes)
    sample = [_sample(w, mask) for w, mask in zip(weights, masks, strict=True)]
    keys = np.concatenate(sample)
    share = count / total
    spread = SPREAD * math.sqrt(share * (1 - share) * keys.size) + 1
    first, last = math.floor(share * keys.size - spread), math.ceil(share * keys.size + spread)
    if keys.size < 64 * spread:
        return None
    keys.sort()
    low = int(keys[first]) if first > 0 else 0
    high = int(keys[last]) + 1 if last < keys.size else np.iinfo(np.int32).max
    num_chunks = sum(-(-size // CHUNK) for size in sizes)
    room = np.empty((num_chunks, ROOM), np.int32)
    rows = [*pointers, [room.ctypes.data] * len(sizes)]
    _, out = run(_collect_kernel, sizes, rows, None, [float(low), float(high)], 2)
    below, numbers = int(out[:, 0].sum()), out[:, 1].astype(np.int64)
    if (numbers > ROOM).any():
        return None
    between = np.concatenate([row[:size] for row, size in zip(room, numbers, strict=True)])
    place = count - below - 1
    if not 0 <= place < between.size:
        return None
    key = int(np.partition(between, place)[place])
    num_equal = int(np.count_nonzero(between == key))
    num_taken = count - below - int(np.count_nonzero(between < key))
    return Threshold(key, num_taken, num_equal)


def _sample(weight: Tensor, mask: Tensor) -> NDArray[np.int32]:
    """The keys of one block in so many, and of a short rest."""
    w, left = weight.detach().numpy().ravel(), mask.numpy().ravel()
    whole = w.size // (EVERY * BLOCK) * (EVERY * BLOCK)
    w = np.concatenate([w[:whole].reshape(-1, EVERY, BLOCK)[:, 0].ravel(), w[whole:][::EVERY]])
    left = np.concatenate(
        [left[:whole].reshape(-1, EVERY, BLOCK)[:, 0].ravel(), left[whole:][::EVERY]]
    )
    return _read_keys(w, left)


def _read_keys(w: NDArray[np.float32], is_left: NDArray[np.bool_]) -> NDArray[np.int32]:
    bits = np.abs(w).view(np.int32)
    return bits + (is_left | (bits != 0)).astype(np.int32)


def _find_by_digits(sizes: list[int], pointers: list[list[int]], count: int) -> Threshold:
    def count_digits(shift: int, prefix: int) -> Tensor:
        _, out = run(_count_kernel, sizes, pointers, None, [shift, prefix], 1 << WIDTH)
        return torch.from_numpy(out.sum(axis=0)).to(torch.int64)

    return find_threshold(count_digits, count, NUM_BITS, WIDTH)


def _find_last_kept(
    weights: Sequence[Tensor], masks: Sequence[Tensor], key: int, num_kept: int
) -> NDArray[np.float64]:
    """Of each tensor the index of the last weight with this key that is kept; -1 if none is."""
    last = np.full(len(weights), -1.0)
    for i, (weight, mask) in enumerate(zip(weights, masks, strict=True)):
        if num_kept == 0:
            break
        keys = _read_keys(weight.detach().numpy().ravel(), mask.numpy().ravel())
        equal = np.flatnonzero(keys == key)
        chosen = equal[:num_kept]
        num_kept -= chosen.size
        if chosen.size:
            last[i] = chosen[-1]
    return last
