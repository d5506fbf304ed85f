r"""The tensors that one call steps together, and the state that must follow them.

A *path* is a module with the arithmetic of a step: ``plain`` works everywhere, ``foreach`` has many
small tensors on an accelerator in mind, ``compiled`` takes float32 on the CPU, ``compiled_half``
half precision there, and ``triton_step`` takes both on a GPU. The tensors of a parameter group are
sorted into batches, each for one call of one path.

The dual variable u of a tensor is kept as state, ``state["dual"]``, unless p is 1.5, 2 or 3, where
it is a square or a root away. Of half-precision weights it is kept at every p, as their float32
master copy: steps that are too short to change w add up in u. What w must equal is the *image* of
its state,

    w = to_primal(u).

With ``state_dtype=torch.bfloat16`` u is kept in bfloat16. A weight that has not moved yet is then
not quite the image of its u, but u is still what is computed from it.

Of a parameter that is spread over processes (a DTensor), a batch has the part that is here, and the
state is kept as a DTensor, so that checkpoints know its place.

If w is no longer that image, because someone else wrote to it, u is computed again from w. If it
still is, u is kept: near p = 1 many different u are mapped to w = 0, and only u itself tells how
far such a weight is from becoming nonzero.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.geometry.compiler import has_numba
from mirrormargin.optim import foreach, plain
from mirrormargin.optim.devices import fits_triton
from mirrormargin.optim.plain import state_dtype
from mirrormargin.optim.shards import get_local, is_sharded, wrap_like

__all__ = [
    "WITHOUT_DUAL",
    "AnyBatch",
    "Batch",
    "CapturedBatch",
    "Path",
    "adapt_state",
    "as_step",
    "batch_key",
    "choose_path",
    "follow_weights",
    "is_compilable",
    "is_for_triton",
    "is_wide",
    "keeps_dual",
    "kept_dtype",
    "name_geometry",
    "name_potential",
    "stamp",
]

_Group = dict[str, Any]
_State = dict[str, Any]
_Stamp = tuple[int, int]

_PLAIN_TYPES = frozenset((Tensor, torch.nn.Parameter))
_TORCH_PATHS = (plain, foreach)
_WIDE = (torch.float32, torch.float64)
_HALF = (torch.bfloat16, torch.float16)
WITHOUT_DUAL = (1.5, 2.0, 3.0)  # exponents p at which u of wide weights is computed from w


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
    ) -> Callable[[list[Tensor], float], tuple[Any, Any]]: ...


@dataclass(eq=False)
class Batch:
    """Tensors of one parameter group that one call of a path steps together.

    Attributes:
        group: The options of the tensors' parameter group.
        number: The index of that group.
        path: The module that steps the tensors.
        potential: The group's potential without its scale, which acts through ``kappas``.
        seen: What :func:`stamp` said of each tensor, by its id, after the last step.
        params: The weights w; of a parameter spread over processes the part that is here.
        owners: The parameters themselves.
        grads: Their gradients g, in the dtype and layout that the path needs.
        states: What the optimizer keeps of each tensor.
        kappas: The scaled potential is kappa * psi, so a step lr there is a step lr / kappa in u.
        numbers: The index of each tensor in the optimizer.
    """

    is_captured = False

    group: _Group
    number: int
    path: Path
    potential: Potential
    seen: dict[int, _Stamp]
    params: list[Tensor] = field(default_factory=list)
    owners: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    states: list[_State] = field(default_factory=list)
    kappas: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(
        self,
        owner: Tensor,
        param: Tensor,
        grad: Tensor,
        state: _State,
        kappa: float,
        number: int,
    ) -> None:
        self.params.append(param)
        self.owners.append(owner)
        dtype = self._grad_dtype
        if dtype is not None:
            if grad.dtype is not dtype or grad.is_neg():
                grad = grad.to(dtype).resolve_neg()
            if not (grad.is_contiguous() and param.is_contiguous()):
                grad = _laid_out_like(grad, param)
        self.grads.append(grad)
        self.states.append(state)
        self.kappas.append(kappa)
        self.numbers.append(number)

    @cached_property
    def _grad_dtype(self) -> torch.dtype | None:
        """The dtype of gradients for a path that reads memory by address; None for the others."""
        if self.path in _TORCH_PATHS:
            return None
        # Kernels on a GPU read half precision; one launch reads one dtype.
        param = self.params[0]
        return param.dtype if param.is_cuda else state_dtype(param)

    def tensors(self, key: str) -> list[Tensor]:
        """The state tensors of this name, zero where they are new."""
        tensors = []
        for owner, state, dtype in zip(self.owners, self.states, self._dtypes, strict=True):
            if key not in state:
                new = torch.zeros_like(get_local(owner), dtype=dtype, requires_grad=False)
                state[key] = wrap_like(new, owner)
            tensors.append(adapt_state(state, key, owner, dtype))
        return tensors

    @cached_property
    def _dtypes(self) -> list[torch.dtype]:
        return [kept_dtype(self.group, param) for param in self.params]

    @cached_property
    def steps(self) -> list[Tensor]:
        """How many steps each tensor has made, in the form that torch's AdamW keeps."""
        for param, state in zip(self.params, self.states, strict=True):
            step = state.get("step", 0.0)
            if self.group["capturable"] or not isinstance(step, Tensor) or not step.is_cpu:
                state["step"] = as_step(step, param, self.group)
        return [state["step"] for state in self.states]

    def count_step(self) -> None:
        one = torch.ones(())  # adding a number would make such a tensor for each count
        torch._foreach_add_(self.steps, one, alpha=1.0)  # pyright: ignore[reportPrivateImportUsage]

    @cached_property
    def duals(self) -> list[Tensor] | None:
        """The u of each tensor, following its weights; None where u is computed from w."""
        name = name_geometry(self.group)
        if not keeps_dual(self.group, self.params[0]):
            for state in filter(None, self.states):
                state.pop("dual", None)
                state.pop("dual_of", None)
            return None
        duals = []
        for owner, state, dtype in zip(self.owners, self.states, self._dtypes, strict=True):
            if "dual" not in state or state.get("dual_of") != name:
                dual = _preimage(get_local(owner), self.potential, self.path)
                state["dual"], state["dual_of"] = wrap_like(dual.to(dtype), owner), name
            elif self.seen.get(id(owner)) != stamp(owner):
                follow_weights(owner, state, self.potential, self.path, dtype)
            duals.append(adapt_state(state, "dual", owner, dtype))
        return duals


class CapturedBatch:
    """The same for a step that ``torch.compile`` traces: tensors instead of what they are kept in.

    Args:
        states: All state tensors, those of the first name in ``names`` first.
        names: Their names.
    """

    is_captured = True
    path: Path = plain

    def __init__(
        self,
        group: _Group,
        number: int,
        potential: Potential,
        params: list[Tensor],
        owners: list[Tensor],
        grads: list[Tensor],
        kappas: list[float],
        numbers: list[int],
        states: list[Tensor],
        names: tuple[str, ...],
    ) -> None:
        self.group, self.number, self.potential = group, number, potential
        self.params, self.owners, self.grads = params, owners, grads
        self.kappas, self.numbers = kappas, numbers
        num = len(params)
        self._states = {name: states[i * num : (i + 1) * num] for i, name in enumerate(names)}
        self.steps = self._states.get("step", [])
        self.duals = self._states.get("dual")

    def count_step(self) -> None:
        for step in self.steps:
            step.add_(1.0)

    def tensors(self, key: str) -> list[Tensor]:
        return self._states[key]


AnyBatch = Batch | CapturedBatch


def choose_path(group: _Group, param: Tensor, owner: Tensor | None = None) -> Path:
    """The path that steps this tensor, all of its owner or the part that is here.

    All processes have to choose alike, or they would send their sums in different orders: by the
    layout of the whole tensor, for a part of one row is contiguous in any. Pinned by
    ``check_layouts`` of rank_steps.py.
    """
    if group["capturable"]:
        return plain
    if group["foreach"]:
        return foreach
    if owner is not None and owner is not param and not owner.is_contiguous():
        return plain
    if group["fused"] is not False and is_compilable(group, param):
        return _load_compiled(is_half=param.dtype in _HALF)
    if group["fused"] is not False and is_for_triton(group, param):
        return _load_triton()
    return plain


def is_compilable(group: _Group, param: Tensor) -> bool:
    """Whether the compiled path can step this tensor."""
    is_narrow = param.dtype is torch.float32 or param.dtype in _HALF
    return is_narrow and param.is_cpu and _has_kernel(group, param)


def is_for_triton(group: _Group, param: Tensor) -> bool:
    """Whether the path for GPUs can step this tensor."""
    return fits_triton(param.dtype, param.device, group["p"]) and _has_kernel(group, param)


def _has_kernel(group: _Group, param: Tensor) -> bool:
    """Whether code that reads memory by address, and has the lp potential only, can step it."""
    return (
        type(param) in _PLAIN_TYPES
        and group["potential"] is None
        and group["state_dtype"] is not torch.bfloat16
        and (param.is_contiguous() or _dense_format(param) is not None)
    )


@cache
def _load_compiled(is_half: bool) -> Path:
    """A compiled path; the plain one, after a warning, where Numba is missing."""
    if not has_numba():
        return plain
    from mirrormargin.optim import compiled, compiled_half  # import Numba, which takes a while

    return compiled_half if is_half else compiled


def keeps_dual(group: _Group, param: Tensor) -> bool:
    """Whether u of this tensor is state; if not, it is computed from w."""
    has_root = group["potential"] is None and group["p"] in WITHOUT_DUAL
    return not has_root or not is_wide(param)


def is_wide(param: Tensor) -> bool:
    """Whether the weights hold what a short step adds, so that they need no master copy."""
    return param.dtype in _WIDE


def kept_dtype(group: _Group, param: Tensor) -> torch.dtype:
    """In which u, buffers and moments are kept; steps are computed in ``state_dtype(param)``."""
    return torch.bfloat16 if group["state_dtype"] is torch.bfloat16 else state_dtype(param)


def as_step(step: Any, param: Tensor, group: _Group) -> Tensor:
    """A count of steps as a tensor of its own, on the CPU unless the group is capturable."""
    device = param.device if group["capturable"] else torch.device("cpu")
    if isinstance(step, Tensor) and step.dtype is torch.float32 and step.device == device:
        return step
    return torch.as_tensor(step, dtype=torch.float32, device=device).detach()


@cache
def _load_triton() -> Path:
    from mirrormargin.optim import triton_step

    return triton_step


def batch_key(path: Path, param: Tensor) -> Hashable:
    """Tensors of a group with equal keys belong to one batch."""
    return (path, is_wide(param)) if path is plain else (path, param.dtype, param.device)


def name_geometry(group: _Group) -> float:
    """What says in which geometry a kept u is: p, or a number below 0 for another potential.

    A number, because torch's distributed checkpoints refuse text in the state of a tensor.
    """
    own = group["potential"]
    return group["p"] if own is None else name_potential(repr(own))


def name_potential(text: str) -> float:
    """A number below 0 for the ``repr`` of a potential."""
    return -1.0 - zlib.crc32(text.encode())


def stamp(param: Tensor) -> _Stamp:
    """Changes when someone writes to the weights, with most ways of writing.

    Operations on a DTensor raise its own version and not that of the part that is here.
    """
    if not is_sharded(param):
        return param._version, param.data_ptr()
    local = get_local(param)
    return param._version + local._version, local.data_ptr()


def follow_weights(
    owner: Tensor, state: _State, potential: Potential, path: Path, dtype: torch.dtype
) -> None:
    """Rebuild u where w is no longer the image of the state, and keep it elsewhere."""
    dual, param = adapt_state(state, "dual", owner, dtype), get_local(owner)
    unchanged = _image(dual, param, potential, path).to(param.dtype) == param
    rebuilt = _preimage(param, potential, path).to(dual.dtype)
    dual.copy_(torch.where(unchanged, dual, rebuilt))  # in place: captured steps know its address


def _image(dual: Tensor, param: Tensor, potential: Potential, path: Path) -> Tensor:
    """The weights that u stands for, to the bit as the path's step writes them."""
    return path.to_primal(plain.open_state(dual, param), potential)


def _preimage(param: Tensor, potential: Potential, path: Path) -> Tensor:
    """The dual variable whose image the weights are, up to rounding."""
    return path.to_dual(param.detach(), potential)


def adapt_state(state: _State, key: str, owner: Tensor, dtype: torch.dtype) -> Tensor:
    """A state tensor in the dtype that it is kept in, on its parameter's device and in its layout.

    ``model.to(...)`` may have changed the parameter since the last step, and kernels trust
    addresses. Of a parameter spread over processes, the part that is here.
    """
    kept, param = state[key], get_local(owner)
    if is_sharded(kept) != is_sharded(owner):  # from a checkpoint of whole tensors, or of parts
        kept = kept.full_tensor() if is_sharded(kept) else kept
        kept = state[key] = wrap_like(kept.to(param.device), owner)
    tensor = get_local(kept)
    if tensor.dtype is not dtype or tensor.get_device() != param.get_device():
        tensor = tensor.to(param.device, dtype)
    if tensor.stride() != param.stride():
        tensor = _laid_out_like(tensor, param)
    if tensor is not get_local(kept):
        state[key] = wrap_like(tensor, owner)
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
