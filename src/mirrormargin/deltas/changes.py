r"""What a delta changes in a loaded model, tensor by tensor: what was there, and what comes.

    w = round(w_0 + d),   summed in float32, or in float64 for weights of that type

Weights are written in place, by operations that torch counts: an optimizer that looks at a tensor's
version notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mirrormargin.deltas.delta_file import Contents
from mirrormargin.deltas.tensors import is_same
from mirrormargin.deltas.values import decode_values
from mirrormargin.errors import DeltaError

__all__ = ["Change", "check_shapes", "make_changes", "write_changes"]


@dataclass(frozen=True, eq=False)
class Change:
    """One tensor's.

    Attributes:
        name: Of the tensor.
        shape: Of the tensor.
        indices: Which entries of the flat tensor change; None for all.
        before: What was there.
        after: What comes.
    """

    name: str
    shape: tuple[int, ...]
    indices: Tensor | None
    before: Tensor
    after: Tensor

    @property
    def num_bytes(self) -> int:
        parts = (self.before, self.after, self.indices)
        return sum(one.nbytes for one in parts if one is not None)

    def write(self, tensor: Tensor) -> None:
        _write(tensor, self.indices, self.after)

    def undo(self, tensor: Tensor) -> None:
        _write(tensor, self.indices, self.before)

    def inverse(self) -> Change:
        """The change that writes what was there before."""
        return replace(self, before=self.after, after=self.before)

    def is_written(self, tensor: Tensor) -> bool:
        """Whether the tensor has, bit by bit, what this writes."""
        return self._has(tensor, self.after)

    def is_undone(self, tensor: Tensor) -> bool:
        """Whether it has, bit by bit, what was there before."""
        return self._has(tensor, self.before)

    def _has(self, tensor: Tensor, values: Tensor) -> bool:
        return tuple(tensor.shape) == self.shape and is_same(_read(tensor, self.indices), values)


def make_changes(tensors: Mapping[str, Tensor], delta: Contents) -> list[Change]:
    """What a delta changes in these tensors as they are now, which must fit it.

    Raises:
        DeltaError: If a sum is beyond the type of its weight.
    """
    changes, values = [], decode_values(delta.codes, delta.scale)
    for name, part, places in delta.space.split(delta.positions):
        tensor = tensors[name].detach()
        indices = torch.from_numpy(places).to(tensor.device)
        before = _read(tensor, indices)
        exact = torch.promote_types(tensor.dtype, torch.float32)
        after = (before.to(exact) + values[part].to(tensor.device, exact)).to(tensor.dtype)
        if bool((after.isfinite() != before.isfinite()).any()):
            raise DeltaError(
                f"{name} with its delta is beyond {tensor.dtype}: load the model in a wider type"
            )
        changes.append(Change(name, tuple(tensor.shape), indices, before, after))
    for name, whole in delta.whole.items():
        tensor = tensors[name].detach()
        after = whole.to(tensor.device, tensor.dtype)
        changes.append(Change(name, tuple(tensor.shape), None, tensor.clone(), after))
    return changes


def write_changes(tensors: Mapping[str, Tensor], changes: Iterable[Change]) -> None:
    """Write all of them, or none.

    Raises:
        DeltaError: If a tensor cannot be written to.
    """
    begun: list[Change] = []
    for change in changes:
        begun.append(change)
        try:
            change.write(tensors[change.name])
        except RuntimeError as error:
            for one in reversed(begun):
                # torch writes to an inference tensor before it raises, in undo as well.
                with suppress(RuntimeError):
                    one.undo(tensors[one.name])
            reason = str(error).partition("\n")[0]
            raise DeltaError(
                f"{change.name} cannot be written to ({reason}): load the model again, outside"
                " torch.inference_mode()"
            ) from error


def check_shapes(tensors: Mapping[str, Tensor], delta: Contents) -> None:
    """Raise unless the model has every tensor of the delta, in its shape, and ties the same."""
    whole = {name: tuple(one.shape) for name, one in delta.whole.items()}
    for name, shape in {**delta.space.shapes, **whole}.items():
        if name not in tensors:
            raise DeltaError(
                f"the model has no tensor {name!r}, which the delta has: build the model that the"
                " delta was extracted from, with its head"
                + (", or leave out what is whole with without_whole()" if name in whole else "")
            )
        if tuple(tensors[name].shape) != shape:
            raise DeltaError(
                f"{name} has shape {tuple(tensors[name].shape)} in the model and {shape} in the"
                " delta: build the model that the delta was extracted from"
            )
        if name in delta.space.shapes and not tensors[name].is_floating_point():
            raise DeltaError(
                f"{name} is of {tensors[name].dtype} in the model: a delta is added to"
                " floating-point numbers"
            )
    for name, one in delta.space.tied.items():
        if name in tensors and tensors[name].data_ptr() != tensors[one].data_ptr():
            raise DeltaError(
                f"{name} and {one} share their memory where the delta was extracted, but not in"
                " this model: tie them, or extract the delta from models that do not"
            )
    places: dict[int, str] = {}
    for name in (*delta.space.shapes, *whole):
        one = tensors[name]
        if one.numel() and places.setdefault(one.data_ptr(), name) != name:
            raise DeltaError(
                f"{name} and {places[one.data_ptr()]} share their memory in this model, but not"
                " where the delta was extracted: a change of one would change both; untie them, or"
                " extract the delta from models that tie them too"
            )


def _read(tensor: Tensor, indices: Tensor | None) -> Tensor:
    tensor = tensor.detach()
    if indices is None:
        return tensor
    indices = indices.to(tensor.device)
    if tensor.is_contiguous():
        return tensor.view(-1)[indices]
    return tensor[torch.unravel_index(indices, tensor.shape)]


@torch.no_grad()
def _write(tensor: Tensor, indices: Tensor | None, values: Tensor) -> None:
    values = values.to(tensor.device, tensor.dtype)
    if indices is None:
        tensor.copy_(values)
    elif tensor.is_contiguous():
        tensor.view(-1).index_copy_(0, indices.to(tensor.device), values)
    else:
        tensor.index_put_(torch.unravel_index(indices.to(tensor.device), tensor.shape), values)
