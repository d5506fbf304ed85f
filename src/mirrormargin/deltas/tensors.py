"""The tensors of a model, a state dict or a safetensors file, by the names of the bare model.

A wrapper puts words into the names, which are taken out again: ``module.`` at the beginning (data
parallel), ``_orig_mod.`` (torch.compile), ``_checkpoint_wrapped_module.``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_path, show
from mirrormargin.errors import DeltaError
from mirrormargin.runs import check_tensors, has_tensor_seal, open_tensors

__all__ = ["Slot", "find_slots", "find_tied", "is_same", "read_slots", "read_tensors", "unwrap"]

WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
Slot = tuple[nn.Module, str]
"""A module, and the name in it of a parameter or buffer."""


def read_tensors(name: str, source: Any) -> dict[str, Tensor]:
    """The tensors of a model (parameters and persistent buffers), a state dict or a file.

    Args:
        name: What it is called, for the message.
        source: The model, the mapping, or the path of a safetensors file.

    Raises:
        DeltaError: If it is none of these, or holds no tensors.
    """
    if isinstance(source, nn.Module):
        return read_slots(find_slots(source))
    if isinstance(source, Mapping):
        found = {key: one for key, one in source.items() if isinstance(one, Tensor)}
        if not found or not all(isinstance(key, str) for key in found):
            raise DeltaError(f"{name} is {show(source)}: it holds no tensors by name")
    elif isinstance(source, str) or hasattr(source, "__fspath__"):
        found = _read_file(check_path(name, source, error=DeltaError))
    else:
        raise DeltaError(
            f"{name} is {show(source)}: give a model, a state dict or the path of a safetensors"
            " file"
        )
    return _clean({key: check_tensor(key, one) for key, one in found.items()})


def find_slots(model: nn.Module) -> dict[str, Slot]:
    """Where the tensors of a model are kept: module and attribute, tied ones under each name."""
    return _clean(dict(_list_slots(model)))


def read_slots(slots: Mapping[str, Slot]) -> dict[str, Tensor]:
    """The tensors that are there now."""
    return {name: check_tensor(name, get_slot(slot)) for name, slot in slots.items()}


def get_slot(slot: Slot) -> Tensor:
    module, name = slot
    tensor = module._parameters.get(name)
    tensor = module._buffers.get(name) if tensor is None else tensor
    if tensor is None:
        raise DeltaError(f"a {type(module).__name__} of the model has lost its {name}")
    return tensor


def find_tied(tensors: Mapping[str, Tensor], known: Collection[str]) -> dict[str, str]:
    """Names that share their memory with another one, and that other name.

    Args:
        tensors: By name.
        known: Names that are preferred, as others have them too.
    """
    first: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for name in sorted(tensors, key=lambda name: (name not in known, name)):
        one = tensors[name]
        if one.numel() and first.setdefault(_place(one), name) != name:
            tied[name] = first[_place(one)]
    return tied


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal bit by bit: nan is equal to itself, and 0 is not -0."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    one, other = one.detach(), other.detach().to(one.device)
    return torch.equal(*(part.contiguous().reshape(-1).view(torch.uint8) for part in (one, other)))


def unwrap(model: nn.Module) -> nn.Module:
    """The bare model within wrappers that keep its tensors."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def check_tensor(name: str, tensor: Tensor) -> Tensor:
    """Raise unless all of the tensor is here, as plain numbers."""
    if torch.nn.parameter.is_lazy(tensor):
        raise DeltaError(f"{name} has no shape yet: call the model once first")
    if hasattr(tensor, "to_local"):
        raise DeltaError(f"{name} is spread over processes (a DTensor): gather the model first")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise DeltaError(f"{name} is a {tensor.layout} tensor of {tensor.dtype}: give it dense")
    if tensor.is_meta:
        raise DeltaError(f"{name} has no contents (it is on the meta device): load the model")
    return tensor


def _list_slots(model: nn.Module) -> Iterator[tuple[str, Slot]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield start + name, (module, name)
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield start + name, (module, name)


def _clean(found: dict[str, Any]) -> dict[str, Any]:
    """By the names of the bare model."""
    names = {name: name.split(".") for name in found}
    names = {
        name: [part for part in parts if part not in WRAPPERS] or parts
        for name, parts in names.items()
    }
    if all(len(parts) > 1 and parts[0] == "module" for parts in names.values()):
        names = {name: parts[1:] for name, parts in names.items()}
    return {".".join(names[name]): one for name, one in found.items()}


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device


def _read_file(path: str) -> dict[str, Tensor]:
    with open_tensors(path, "give a whole safetensors file", error=DeltaError) as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if has_tensor_seal(metadata):  # files of other tools have none
            check_tensors(path, tensors, metadata)
    kind = metadata.get("format", "")
    if kind == "mirrormargin-sparse":
        raise DeltaError(f"{path} has sparse matrices: read it with load_pruned, and give that")
    if kind == "mirrormargin-delta":
        raise DeltaError(f"{path} holds a delta, not a model: read it with SparseDelta.load")
    return tensors
