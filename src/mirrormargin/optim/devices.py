"""Which path the tensors of a device take, and why: Numba on the CPU, Triton on a GPU, else plain.

``paths.choose_path`` decides for each tensor; this says what a device can do.
"""

from __future__ import annotations

import functools
import os

import torch

from mirrormargin.geometry.compiler import find_numba_failure
from mirrormargin.geometry.torch_powers import LARGEST_POWER

__all__ = ["describe_paths", "find_triton_failure", "fits_triton", "is_interpreted"]

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_OLDEST = (7, 0)  # compute capability that Triton compiles for


def fits_triton(dtype: torch.dtype, device: torch.device, p: float) -> bool:
    """Whether the Triton kernels step dense tensors of this kind, in the geometry of p."""
    is_in_range = max(p - 1, p / (p - 1)) <= LARGEST_POWER
    return (
        device.type == "cuda"  # ROCm calls its devices so too
        and dtype in _TYPES
        and is_in_range
        and find_triton_failure(device) is None
    )


@functools.cache
def find_triton_failure(device: torch.device | None = None) -> str | None:
    """Why Triton cannot be used, on this GPU or in general; None if it can."""
    try:
        import triton.language  # noqa: F401  # pyright: ignore[reportMissingImports]
    except Exception as error:
        return f"Triton cannot be imported ({type(error).__name__}: {error})"
    if device is None:
        return None
    if is_interpreted():
        return "TRITON_INTERPRET is set, and the interpreter cannot read the memory of a GPU"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < _OLDEST:
        return "Triton needs a GPU of compute capability 7.0 or newer"
    return None


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs kernels, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def describe_paths() -> dict[str, str]:
    """For each kind of device the path that its tensors take by default, and why."""
    gpu = "cuda" if torch.version.hip is None else "rocm"
    return {"cpu": _describe_cpu(), gpu: _describe_gpu(), "mps": _describe_mps()}


def _describe_cpu() -> str:
    failure = find_numba_failure()
    if failure is not None:
        return f"plain, for {failure}"
    import numba

    return f"compiled (Numba {numba.__version__}) for float32, bfloat16 and float16, else plain"


def _describe_gpu() -> str:
    present = torch.cuda.is_available()
    failure = find_triton_failure(torch.device("cuda", 0) if present else None)
    if failure is None:
        import triton  # pyright: ignore[reportMissingImports]

        path = f"triton {triton.__version__}"
    else:
        path = f"plain, for {failure}"
    return f"{path} ({torch.cuda.get_device_name(0)})" if present else _absent(path)


def _describe_mps() -> str:
    path = "plain, in float32, for there is no kernel"
    return path if torch.backends.mps.is_available() else _absent(path)


def _absent(path: str) -> str:
    return f"not present; would take {path}"
