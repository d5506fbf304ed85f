r"""Values in half precision, with one scale for all, so that none of them overflows or vanishes.

    value = code * scale,   scale = 2^e,   2^14 <= largest |code| < 2^15

float16 has 11 bits for values down to 2^-28 of the largest and fewer below; what would round to 0
is the smallest number that it has. bfloat16 has 8 bits at any size. float32 needs no scale.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mirrormargin.arguments import show
from mirrormargin.errors import DeltaError

__all__ = ["TYPES", "check_type", "decode_values", "encode_values"]

TYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_type(name: str, dtype: Any) -> torch.dtype:
    """One of the types that values are stored in."""
    if not isinstance(dtype, torch.dtype) or dtype not in TYPES:
        raise DeltaError(f"{name} is {show(dtype)}: give one of {', '.join(map(str, TYPES))}")
    return dtype


def encode_values(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Codes in a type, and their scale.

    Example:
        >>> encode_values(torch.tensor([1e-9, -2e-9]), torch.float16)[0].abs().log2().floor()
        tensor([13., 14.], dtype=torch.float16)
    """
    if dtype == torch.float32 or not len(values):
        return values.to(dtype), 1.0
    _, exponent = math.frexp(float(values.abs().max()))
    scale = 2.0 ** (exponent - 15)
    exact = values.double() / scale
    codes = exact.to(dtype)
    least = torch.nextafter(torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)).double()
    vanished = (codes == 0) & (values != 0)
    return torch.where(vanished, least * exact.sign(), codes.double()).to(dtype), scale


def decode_values(codes: Tensor, scale: float) -> Tensor:
    """The values in float32, exactly ``code * scale`` unless that is beyond float32.

    What was rounded up past the largest float32 is that number again.
    """
    most = torch.finfo(torch.float32).max
    return (codes.double() * scale).clamp(-most, most).float()
