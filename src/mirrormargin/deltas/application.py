"""Deltas on a loaded model, the last one on top: added, and removed to the bit.

What is applied to a model is kept beside it, for as long as it lives. A copy of the model knows
nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from mirrormargin.deltas.changes import Change, check_shapes, make_changes, write_changes
from mirrormargin.deltas.space import digest_tensor
from mirrormargin.deltas.tensors import read_tensors, unwrap
from mirrormargin.errors import DeltaError

if TYPE_CHECKING:
    from mirrormargin.deltas.sparse_delta import SparseDelta

__all__ = ["apply_delta", "has_deltas", "remove_delta"]


@dataclass(frozen=True, eq=False)
class _Applied:
    delta: SparseDelta
    changes: Sequence[Change]


_applied: WeakKeyDictionary[nn.Module, list[_Applied]] = WeakKeyDictionary()


def apply_delta(delta: SparseDelta, model: nn.Module, check: bool) -> None:
    """See :meth:`mirrormargin.SparseDelta.apply`."""
    stack = _applied.get(unwrap(model), [])
    tensors = read_tensors("model", model)
    check_shapes(tensors, delta.contents)
    if check:
        delta.space.check_base(
            lambda name: digest_tensor(name, _find_before(name, tensors[name], stack))
        )
    changes = make_changes(tensors, delta.contents)
    write_changes(tensors, changes)
    _applied[unwrap(model)] = [*stack, _Applied(delta, changes)]


def remove_delta(delta: SparseDelta, model: nn.Module) -> None:
    """See :meth:`mirrormargin.SparseDelta.remove`."""
    stack = _applied.get(unwrap(model), [])
    depth = next((n for n, one in enumerate(reversed(stack)) if one.delta is delta), None)
    if depth is None:
        raise DeltaError(
            "this delta is not applied to this model: call remove of the object whose apply was"
            " called, with the same model"
        )
    if depth > 0:
        raise DeltaError(
            f"{depth} delta{'s were' if depth > 1 else ' was'} applied after this one: remove the"
            " last one first"
        )
    tensors = read_tensors("model", model)
    _check_intact(tensors, stack[-1].changes)
    write_changes(tensors, [change.inverse() for change in stack[-1].changes])
    _applied[unwrap(model)] = stack[:-1]


def has_deltas(model: nn.Module) -> bool:
    """Whether a delta is applied to a model."""
    return bool(_applied.get(unwrap(model)))


def _check_intact(tensors: Mapping[str, Tensor], changes: Sequence[Change]) -> None:
    """Raise if somebody has written to what a delta has changed."""
    for change in changes:
        if change.name not in tensors or not change.is_written(tensors[change.name]):
            raise DeltaError(
                f"{change.name} has changed since the delta was applied (by training, another"
                " type, or loading weights): its entries before that would be wrong now; load the"
                " base again"
            )


def _find_before(name: str, tensor: Tensor, stack: Sequence[_Applied]) -> Tensor:
    """The tensor without the deltas that are applied, a copy if there are any."""
    changes = [one for applied in stack for one in applied.changes if one.name == name]
    if not changes:
        return tensor
    tensor = tensor.detach().clone()
    for change in reversed(changes):
        change.undo(tensor)
    return tensor
