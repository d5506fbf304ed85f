r"""Rounding float32 to bfloat16 at random, so that many short steps add up.

    x between its neighbours a, b in bfloat16 becomes b with probability (x - a) / (b - a), else a

so that the mean is x, and what bfloat16 can hold stays as it is. The random bits are a hash of
what is rounded, and no generator is involved: a step can be repeated to the bit from a checkpoint,
and torch's random numbers stay untouched.

    key   = h(h(4 number + role) ^ step)          number of the parameter, role of the state tensor
    noise = h(key ^ index) mod 2^16               index of the element

:func:`round_literally` is the slow twin of :func:`round_to_bfloat16`, in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["AVERAGE", "DUAL", "LARGEST", "SQUARE", "Rounding", "mix", "round_literally"]

DUAL, AVERAGE, SQUARE, LARGEST = range(4)  # roles: u, buffer or m, v, and AMSGrad's largest v

_MOST = torch.finfo(torch.bfloat16).max
_LOW = 0xFFFF  # the bits of float32 that bfloat16 lacks
# The constants of "lowbias32", a 32-bit hash that its author, Chris Wellons, gave to the public.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B


class Rounding:
    """Rounds the state of the tensors of one batch.

    Args:
        numbers: The index of each parameter in its optimizer.
        steps: The count of steps of each parameter, a tensor without axes.
        entries: The index of each element, of parameters that are spread over processes.
    """

    def __init__(
        self, numbers: list[int], steps: list[Tensor], entries: list[Tensor | None]
    ) -> None:
        self.numbers, self.steps, self.entries = numbers, steps, entries

    def __call__(self, i: int, role: int, x: Tensor) -> Tensor:
        """Tensor i of the batch, in bfloat16."""
        key = mix(self.steps[i].to(torch.int32) ^ _find_prefix(self.numbers[i], role))
        return round_to_bfloat16(x, key, self.entries[i])


def round_to_bfloat16(x: Tensor, key: Tensor, index: Tensor | None = None) -> Tensor:
    """x rounded up or down; finite numbers stay finite, and inf and nan what they are."""
    if index is None:
        index = torch.arange(x.numel(), device=x.device).view(x.shape)
    noise = mix(index.to(torch.int32) ^ key) & _LOW
    bits = x.float().clamp(-_MOST, _MOST).view(torch.int32)
    rounded = ((bits + noise) & ~_LOW).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x.float()).to(torch.bfloat16)


def _find_prefix(number: int, role: int) -> int:
    """h(4 number + role) as a signed integer."""
    x = (4 * number + role) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * _FIRST) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * _SECOND) & 0xFFFFFFFF
    x ^= x >> 16
    return x - 2**32 if x >= 2**31 else x


def mix(x: Tensor) -> Tensor:
    """h of int32, whose products wrap around; masks make its shifts those of unsigned numbers."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * _FIRST
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (_SECOND - 2**32)
    return x ^ ((x >> 16) & 0xFFFF)


def round_literally(
    x: NDArray[np.float32], number: int, role: int, step: int
) -> NDArray[np.float32]:
    """What :class:`Rounding` makes of x, as float32."""
    key = _mix_literally(np.array([4 * number + role], dtype=np.uint32))
    key = _mix_literally(key ^ np.uint32(step))
    noise = _mix_literally(key ^ np.arange(x.size, dtype=np.uint32)).reshape(x.shape) % 2**16
    bits = np.clip(x, -_MOST, _MOST).astype(np.float32).view(np.uint32)
    missing = bits % 2**16  # 2^16 (x - a) / (b - a), where a is the neighbour nearer to 0
    rounded = bits - missing + 2**16 * (missing + noise >= 2**16).astype(np.uint32)
    return np.where(np.isfinite(x), rounded.astype(np.uint32).view(np.float32), x)


def _mix_literally(x: Any) -> Any:
    """h of an array of uint32, whose products wrap around."""
    x = (x ^ (x >> 16)) * np.uint32(_FIRST)
    x = (x ^ (x >> 15)) * np.uint32(_SECOND)
    return x ^ (x >> 16)
