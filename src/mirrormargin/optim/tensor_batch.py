r"""The tensors that one call steps together, and the state that must follow them.

A *path* is a module with the arithmetic of a step: ``plain`` works everywhere, ``foreach`` has many
small tensors on an accelerator in mind, ``compiled`` takes float32 on the CPU. The tensors of a
parameter group are sorted into batches, each for one call of one path.

The dual variable u of a tensor is kept as state, ``state["dual"]``, unless p is 1.5, 2 or 3, where
it is a square or a root away. What w must equal is the *image* of its state,

    w = to_primal(u).

If w is no longer that image, because someone else wrote to it, u is computed again from w. If it
still is, u is kept: near p = 1 many different u are mapped to w = 0, and only u itself tells how
far such a weight is from becoming nonzero.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.compiler import has_numba
from mirrormargin.optim import foreach, plain
from mirrormargin.optim.plain import state_dtype

__all__ = [
    "WITHOUT_DUAL",
    "Batch",
    "Path",
    "adapt_state",
    "batch_key",
    "choose_path",
    "follow_weights",
    "is_compilable",
    "stamp",
]

_Group = dict[str, Any]
_State = dict[str, Any]
_Stamp = tuple[int, int]

_PLAIN_TYPES = frozenset((Tensor, torch.nn.Parameter))
_TORCH_PATHS = (plain, foreach)
WITHOUT_DUAL = (1.5, 2.0, 3.0)  # exponents p at which u is computed from w instead of kept


class Path(Protocol):
    """The functions that make a module of this folder a path; ``plain`` documents them."""

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
    ) -> Callable[[list[Tensor], float], tuple[np.ndarray, np.ndarray]]: ...


@dataclass(eq=False)
class Batch:
    """Tensors of one parameter group that one call of a path steps together.

    Attributes:
        group: The options of the tensors' parameter group.
        number: The index of that group.
        path: The module that steps the tensors.
        potential: The group's potential without its scale, which acts through ``kappas``.
        seen: What :func:`stamp` said of each tensor, by its id, after the last step.
        params: The weights w.
        grads: Their gradients g, in the dtype and layout that the path needs.
        states: What the optimizer keeps of each tensor.
        kappas: The scaled potential is kappa * psi, so a step lr there is a step lr / kappa in u.
    """

    group: _Group
    number: int
    path: Path
    potential: Potential
    seen: dict[int, _Stamp]
    params: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    states: list[_State] = field(default_factory=list)
    kappas: list[float] = field(default_factory=list)

    def add(self, param: Tensor, grad: Tensor, state: _State, kappa: float) -> None:
        if self.path not in _TORCH_PATHS:  # those read memory by address
            if grad.dtype is not param.dtype or grad.is_neg():
                grad = grad.to(param.dtype).resolve_neg()
            grad = _laid_out_like(grad, param)
        self.params.append(param)
        self.grads.append(grad)
        self.states.append(state)
        self.kappas.append(kappa)

    def tensors(self, key: str) -> list[Tensor]:
        """The state tensors of this name, zero where they are new."""
        for param, state in zip(self.params, self.states, strict=True):
            if key not in state:
                state[key] = torch.zeros_like(param, dtype=state_dtype(param), requires_grad=False)
        return [adapt_state(s, key, w) for s, w in zip(self.states, self.params, strict=True)]

    @cached_property
    def duals(self) -> list[Tensor] | None:
        """The u of each tensor, following its weights; None where u is computed from w."""
        own = self.group["potential"]
        name = self.group["p"] if own is None else repr(own)
        if name in WITHOUT_DUAL:
            for state in self.states:
                state.pop("dual", None)
                state.pop("dual_of", None)
            return None
        duals = []
        for param, state in zip(self.params, self.states, strict=True):
            if "dual" not in state or state.get("dual_of") != name:
                state["dual"] = _preimage(param, self.potential, self.path)
                state["dual_of"] = name
            elif self.seen.get(id(param)) != stamp(param):
                follow_weights(param, state, self.potential, self.path)
            duals.append(adapt_state(state, "dual", param))
        return duals


def choose_path(group: _Group, param: Tensor) -> Path:
    """The path that steps this tensor."""
    if group["foreach"]:
        return foreach
    if group["fused"] is not False and is_compilable(group, param):
        return _load_compiled()
    return plain


def is_compilable(group: _Group, param: Tensor) -> bool:
    """Whether the compiled path can step this tensor."""
    return (
        param.dtype is torch.float32
        and param.is_cpu
        and type(param) in _PLAIN_TYPES
        and group["potential"] is None
        and (param.is_contiguous() or _dense_format(param) is not None)
    )


@cache
def _load_compiled() -> Path:
    """The compiled path; the plain one, after a warning, where Numba is missing."""
    if not has_numba():
        return plain
    from mirrormargin.optim import compiled  # imports Numba, which takes a while

    return compiled


def batch_key(path: Path, param: Tensor) -> Hashable:
    """Tensors of a group with equal keys belong to one batch."""
    return (path, param.dtype, param.device) if path is foreach else path


def stamp(param: Tensor) -> _Stamp:
    """Changes when someone writes to the weights, with most ways of writing."""
    return param._version, param.data_ptr()


def follow_weights(param: Tensor, state: _State, potential: Potential, path: Path) -> None:
    """Rebuild u where w is no longer the image of the state, and keep it elsewhere."""
    dual = adapt_state(state, "dual", param)
    unchanged = _image(state, potential, path).to(param.dtype) == param
    state["dual"] = torch.where(unchanged, dual, _preimage(param, potential, path))


def _image(state: _State, potential: Potential, path: Path) -> Tensor:
    """The weights that the state stands for, to the bit as the path's step writes them."""
    return path.to_primal(state["dual"], potential)


def _preimage(param: Tensor, potential: Potential, path: Path) -> Tensor:
    """The dual variable whose image the weights are, up to rounding."""
    return path.to_dual(param.detach(), potential)


def adapt_state(state: _State, key: str, param: Tensor) -> Tensor:
    """A state tensor, brought to the dtype, device and layout that its parameter asks for.

    ``model.to(...)`` may have changed the parameter since the last step, and kernels trust
    addresses.
    """
    tensor, dtype = state[key], state_dtype(param)
    if tensor.dtype is not dtype or tensor.get_device() != param.get_device():
        tensor = state[key] = tensor.to(param.device, dtype)
    if tensor.stride() != param.stride():
        tensor = state[key] = _laid_out_like(tensor, param)
    return tensor


def _laid_out_like(tensor: Tensor, param: Tensor) -> Tensor:
    """The tensor in the memory layout of the parameter, unless that has gaps."""
    if tensor.stride() == param.stride():
        return tensor
    layout = _dense_format(param)
    return tensor if layout is None else tensor.contiguous(memory_format=layout)


def _dense_format(tensor: Tensor) -> torch.memory_format | None:
    """The memory format in which the tensor fills its memory without gaps, if one is known."""
    if tensor.is_contiguous():
        return torch.contiguous_format
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None
