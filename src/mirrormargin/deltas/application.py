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
from mirrormargin.deltas.tensors import is_same, read_tensors, unwrap
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
    tensors = read_tensors("model", model)
    stack = _read_stack(model, tensors)
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
    tensors = read_tensors("model", model)
    stack = _read_stack(model, tensors)
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
    _check_intact(tensors, stack[-1].changes)
    write_changes(tensors, [change.inverse() for change in stack[-1].changes])
    _applied[unwrap(model)] = stack[:-1]


def has_deltas(model: nn.Module) -> bool:
    """Whether a delta is applied to a model."""
    return bool(_read_stack(model, read_tensors("model", model)))


def _read_stack(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[_Applied]:
    """What is applied to a model, without what somebody undid by loading the base again."""
    stack = _applied.get(unwrap(model), [])
    if not stack or _is_intact(tensors, stack[-1].changes):
        return stack
    undone = (depth for depth in range(len(stack)) if _is_undone(tensors, stack[depth:]))
    return stack[: next(undone, len(stack))]


def _is_intact(tensors: Mapping[str, Tensor], changes: Sequence[Change]) -> bool:
    return all(one.name in tensors and one.is_written(tensors[one.name]) for one in changes)


def _is_undone(tensors: Mapping[str, Tensor], applied: Sequence[_Applied]) -> bool:
    """Whether the tensors are as they were before these deltas."""
    shapes = {change.name: change.shape for one in applied for change in one.changes}
    return all(
        name in tensors
        and tuple(tensors[name].shape) == shape
        and is_same(tensors[name], _find_before(name, tensors[name], applied))
        for name, shape in shapes.items()
    )


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
