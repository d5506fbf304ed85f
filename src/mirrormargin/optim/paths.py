"""Which path steps a tensor: a module with the arithmetic of a step.

``plain`` works everywhere, ``foreach`` has many small tensors on an accelerator in mind,
``compiled`` takes float32 and half precision on the CPU, ``triton_step`` both on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from mirrormargin.geometry.compiler import has_numba
from mirrormargin.optim import foreach, plain
from mirrormargin.optim.devices import fits_triton
from mirrormargin.optim.dual_state import WITHOUT_DUAL, find_dense_format, is_wide
from mirrormargin.optim.masks import hides_weights

__all__ = ["TORCH_PATHS", "Path", "batch_key", "choose_path", "is_compilable", "is_for_triton"]

_Group = dict[str, Any]

TORCH_PATHS = (plain, foreach)  # they take tensors of any kind
_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN_TYPES = frozenset((Tensor, torch.nn.Parameter))


class Path(Protocol):
    """The functions that make a module of this folder a path; ``plain`` documents them.

    With ``takes_masks`` its steps hold entries still, instead of getting gradients that are 0.
    """

    @property
    def takes_masks(self) -> bool: ...

    @property
    def mirror_descent(self) -> Callable[..., None]: ...
    @property
    def mirror_adam(self) -> Callable[..., None]: ...
    @property
    def to_dual(self) -> Callable[[Tensor, Any], Tensor]: ...
    @property
    def to_primal(self) -> Callable[[Tensor, Any], Tensor]: ...
    @property
    def scaled_power_sums(
        self,
    ) -> Callable[[list[Tensor], float], tuple[Any, Any]]: ...


def choose_path(group: _Group, param: Tensor, owner: Tensor | None = None) -> Path:
    """The path that steps this tensor, all of its owner or the part that is here.

    All processes have to choose alike, or they would send their sums in different orders: by the
    layout of the whole tensor, for a part of one row is contiguous in any. Pinned by
    ``check_layouts`` in the tests.
    """
    if group["capturable"]:
        return plain
    if group["foreach"]:
        return foreach
    if owner is not None and owner is not param and not owner.is_contiguous():
        return plain
    if group["fused"] is not False and is_compilable(group, param):
        return _load_compiled()
    if group["fused"] is not False and is_for_triton(group, param):
        return _load_triton()
    return plain


def is_compilable(group: _Group, param: Tensor) -> bool:
    """Whether the compiled path can step this tensor."""
    return param.dtype in _NARROW and param.is_cpu and _has_kernel(group, param)


def is_for_triton(group: _Group, param: Tensor) -> bool:
    """Whether the path for GPUs can step this tensor."""
    return fits_triton(param.dtype, param.device, group["p"]) and _has_kernel(group, param)


def _has_kernel(group: _Group, param: Tensor) -> bool:
    """Whether code that reads memory by address, and has the lp potential only, can step it."""
    return (
        type(param) in _PLAIN_TYPES
        and group["potential"] is None
        and group["state_dtype"] is not torch.bfloat16
        and not (hides_weights(group) and group["p"] in WITHOUT_DUAL)  # u is not found from w
        and (param.is_contiguous() or find_dense_format(param) is not None)
    )


@cache
def _load_compiled() -> Path:
    """The compiled path; the plain one, after a warning, where Numba is missing."""
    if not has_numba():
        return plain
    from mirrormargin.optim import compiled  # imports Numba, which takes a while

    return compiled


@cache
def _load_triton() -> Path:
    from mirrormargin.optim import triton_step

    return triton_step


def batch_key(path: Path, param: Tensor) -> Hashable:
    """Tensors of a group with equal keys belong to one batch."""
    return (path, is_wide(param)) if path is plain else (path, param.dtype, param.device)
