r"""Norms and signed powers, of torch tensors and of NumPy arrays.

    ||x||_r = m (sum_i (|x_i| / m)^r)^(1/r),    m = max |x_i|

Straight sums leave the range of floating point long before the norm does: at r = 11, the dual
exponent of p = 1.1, a gradient of 1e-5 has |g|^r = 1e-55. So entries are divided by the largest one
and added in float64.

Powers of float32 tensors are computed in float64 on the CPU. On accelerators, where that is slow or
missing, ``torch_powers.py`` computes them in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.arguments import read_numbers
from mirrormargin.errors import GeometryError, NotNumbersError
from mirrormargin.geometry import torch_powers

__all__ = [
    "bregman_terms",
    "check_dense",
    "lp_norm",
    "scaled_power_sum",
    "signed_power",
    "sum_powers",
    "widen",
    "working_copy",
]


def lp_norm(array: Any, exponent: float, axis: int | tuple[int, ...] | None = None) -> Any:
    """The l_r norm, for any ``exponent`` r >= 1 (``math.inf`` included).

    Args:
        array: A tensor, whose norm is a tensor; or an array, a number or nested sequences.
        exponent: r.
        axis: Along which axes; None for all entries.

    Returns:
        nan where an entry is nan, else inf where one is infinite, and 0 of no entries.

    Raises:
        GeometryError: If the exponent is below 1.

    Example:
        >>> float(lp_norm([3e-200, 4e-200], 2.0)) / 1e-200
        5.0
        >>> lp_norm(np.array([[3.0, 4.0], [0.0, 2.0]]), 2.0, axis=1)
        array([5., 2.])
    """
    if not exponent >= 1:
        raise GeometryError(f"a norm needs an exponent >= 1, got {exponent!r}")
    if isinstance(array, Tensor):
        check_dense(array)
        return _tensor_norm(array, exponent, axis)
    x = read_numbers("the array", array, error=NotNumbersError)
    norm = _array_norm(x, exponent, axis)
    return norm if x.dtype.kind != "f" else norm.astype(x.dtype)


def check_dense(tensor: Tensor) -> None:
    """Refuse tensors that hold no numbers, or hold them in another layout.

    Raises:
        NotNumbersError: (a ValueError and a TypeError) If it is one.
    """
    if tensor.is_complex():
        raise NotNumbersError(f"the array has dtype {tensor.dtype}: give real numbers")
    if tensor.layout is not torch.strided:
        raise NotNumbersError(f"the array is a {tensor.layout} tensor: give tensor.to_dense()")
    if tensor.is_meta:
        raise NotNumbersError("the array is a tensor without contents, on the device meta")


def _array_norm(x: NDArray[Any], exponent: float, axis: int | tuple[int, ...] | None) -> Any:
    size = np.abs(x, dtype=np.float64)
    if axis is None:  # the same, but faster for the short vectors of a solver
        largest = float(size.max()) if size.size else 0.0
        if not 0 < largest < math.inf or exponent == math.inf:
            return np.float64(largest)
        total = float(((size / largest) ** exponent).sum())
        return np.float64(largest * total ** (1 / exponent))
    largest = size.max(axis=axis, keepdims=True, initial=0.0)
    if exponent == math.inf:
        return largest.squeeze(axis)
    unit = np.where((largest > 0) & (largest < math.inf), largest, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        total = ((size / unit) ** exponent).sum(axis=axis)
        return largest.squeeze(axis) * total ** (1 / exponent)


def _tensor_norm(x: Tensor, exponent: float, axis: int | tuple[int, ...] | None) -> Tensor:
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    if axis is None:
        largest, total = scaled_power_sum(x, exponent)
        value = largest if exponent == math.inf else largest * total ** (1 / exponent)
        return value.to(dtype)
    size = working_copy(x.detach()).abs()
    largest = size.amax(axis, keepdim=True)
    if exponent == math.inf:
        return largest.squeeze(axis).to(dtype)
    unit = torch.where((largest > 0) & largest.isfinite(), largest, 1.0)
    total = sum_powers(size / unit, exponent, axis)
    return (largest.squeeze(axis) * total.pow(1 / exponent)).to(dtype)


def scaled_power_sum(x: Tensor, exponent: float) -> tuple[Tensor, Tensor]:
    """``(m, s)``: m = max |x|, nan or inf if x has any, and s = sum (|x| / m)^exponent.

    Both stay on the device of x: nothing waits for it. Terms are added in the order of the entries:
    torch adds in the order of memory, and a transposed tensor would have another last bit.
    """
    magnitude = working_copy(x.detach()).abs().contiguous()
    if x.numel() == 0:
        return widen(magnitude).sum(), widen(magnitude).sum()
    largest = magnitude.max()
    is_usual = (largest > 0) & largest.isfinite()
    total = sum_powers(magnitude / torch.where(is_usual, largest, 1.0), exponent)
    return widen(largest), torch.where(is_usual, total, (largest != 0).to(total.dtype))


def sum_powers(size: Tensor, exponent: float, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """sum |x|^exponent of entries that are at least 0; added in float64 where the device has it."""
    dtype = torch.float64 if size.device.type != "mps" else torch.float32
    return signed_power(size, exponent).sum(axis, dtype=dtype)


def signed_power(x: Any, r: float) -> Any:
    """sign(x) |x|^r of a tensor or an array, of the same type.

    float32 goes through float64, for torch rounds the exponent to the tensor's type, or through
    two float32. Pinned by ``test_every_path_is_within_four_ulp``.

    Example:
        >>> signed_power(np.array([-4.0, 9.0]), 0.5)
        array([-2.,  3.])
    """
    if not isinstance(x, Tensor):
        return np.copysign(np.abs(x) ** r, x)
    if _has_slow_float64(x) and (r <= torch_powers.LARGEST_POWER or x.device.type == "mps"):
        return torch_powers.signed_power(x.float(), r).to(x.dtype)
    return widen(x).abs().pow(r).to(x.dtype).copysign(x)


def _has_slow_float64(x: Tensor) -> bool:
    """Whether to compute powers in float32; not where they are to be differentiated."""
    is_differentiated = x.requires_grad and torch.is_grad_enabled()
    return x.dtype != torch.float64 and x.device.type != "cpu" and not is_differentiated


def bregman_terms(a: Any, b: Any, p: float) -> Any:
    """The summands of D_psi(a, b), of tensors or arrays.

    Each is at least 0 (Young's inequality), so that large entries cannot drown small ones.
    """
    return abs(a) ** p / p + abs(b) ** p * ((p - 1) / p) - signed_power(b, p - 1) * a


def widen(tensor: Tensor) -> Tensor:
    """float64 where the device has it: for sums, and for measures in which terms cancel."""
    return tensor.double() if tensor.device.type != "mps" else tensor.float()


def working_copy(tensor: Tensor) -> Tensor:
    """In the type for operations on each entry: float64, but float32 on accelerators."""
    return tensor.float() if _has_slow_float64(tensor) else widen(tensor)
