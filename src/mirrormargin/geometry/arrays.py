"""Arrays in, arrays out: torch tensors stay torch tensors, everything else becomes NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["as_tensors", "widen"]


def as_tensors(*arrays: Any) -> tuple[list[Tensor], Callable[[Tensor], Any]]:
    """Return floating tensors, and the function that turns a result into the caller's kind."""
    tensors = [a if isinstance(a, Tensor) else torch.from_numpy(_to_numpy(a)) for a in arrays]
    for tensor in tensors:
        if tensor.is_complex():
            raise TypeError(f"expected an array of real numbers, got dtype {tensor.dtype}")
    tensors = [t if t.is_floating_point() else t.double() for t in tensors]
    if any(isinstance(a, Tensor) for a in arrays):
        return tensors, lambda result: result
    return tensors, lambda result: result.numpy()[()]


def _to_numpy(array: Any) -> np.ndarray:
    converted = np.asarray(array)
    if converted.dtype.kind not in "fiub":
        raise TypeError(f"expected an array of real numbers, got dtype {converted.dtype}")
    native = converted.dtype.newbyteorder("=")
    # torch shares memory and wants it writable, native and without negative strides.
    return np.array(converted, dtype=native, order="C")


def widen(tensor: Tensor) -> Tensor:
    """float64 where the device has it: one wide operation beats a page of float32 care."""
    return tensor.double() if tensor.device.type != "mps" else tensor.float()
