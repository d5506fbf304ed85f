r"""Tensors of which each process has a part: torch's DTensors, as FSDP2 makes them.

A step that moves each entry by itself is taken on the part that is here. What a step asks about a
whole tensor, its largest entry or a sum over it, is found from the parts of all processes: the
numbers of many tensors go out together, in one reduction for each axis of the mesh of processes
along which tensors are cut. Copies, along axes that repeat the tensors (HSDP), are not counted.

All processes must hold the same parameters with gradients, in the same order: they wait for each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mirrormargin.errors import OptimizerError

__all__ = [
    "add_up",
    "add_up_all",
    "average_loss",
    "combine_largest",
    "find_entries",
    "find_grad",
    "find_offset",
    "get_local",
    "is_distributed",
    "is_sharded",
    "wrap_like",
]

_WHOLE = (Tensor, torch.nn.Parameter)  # most tensors; that they lack an attribute takes long to see


def is_distributed() -> bool:
    """Whether this is one of several processes of a group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor, whose module takes most of a second to import."""
    return type(tensor) not in _WHOLE and hasattr(tensor, "to_local")


def get_local(tensor: Any) -> Tensor:
    """The part of a tensor that is here, in the same memory; the tensor itself if it is whole."""
    if type(tensor) in _WHOLE or not is_sharded(tensor):
        return tensor
    return tensor.to_local()


def wrap_like(local: Tensor, param: Any) -> Tensor:
    """A part as a tensor that is spread over the processes as the parameter is."""
    if not is_sharded(param) or is_sharded(local):
        return local
    from torch.distributed.tensor import DTensor, distribute_tensor

    if local.shape == param.shape != param.to_local().shape:  # whole, from a checkpoint
        return distribute_tensor(local, param.device_mesh, param.placements, src_data_rank=None)
    return DTensor.from_local(
        local,
        param.device_mesh,
        param.placements,
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )


def find_grad(param: Any, label: str) -> Tensor:
    """The gradient of the part that is here.

    Raises:
        OptimizerError: If the parameter is spread over processes and its gradient is not.
    """
    grad: Any = param.grad
    if is_sharded(param) != is_sharded(grad):
        where = "spread over processes (a DTensor)"
        raise OptimizerError(
            f"{label} is {where if is_sharded(param) else 'whole'}, and its gradient is"
            f" {where if is_sharded(grad) else 'whole'}: give both alike"
        )
    if is_sharded(param) and grad.placements != param.placements:
        grad = grad.redistribute(param.device_mesh, param.placements)
    return get_local(grad)


def combine_largest(values: Tensor, params: Sequence[Tensor]) -> Tensor:
    """For each parameter the largest of the values, all at least 0, that its parts have.

    nan if one of them is nan, which a reduction may pass over: it goes out as a flag.
    """
    if not any(map(is_sharded, params)):
        return values
    is_nan = values.isnan()
    both = torch.stack([torch.where(is_nan, 0.0, values), is_nan.to(values.dtype)], dim=-1)
    largest, flags = _reduce(both, params, dist.ReduceOp.MAX).unbind(-1)
    return torch.where(flags > 0, torch.nan, largest)


def add_up(values: Tensor, params: Sequence[Tensor]) -> Tensor:
    """For each parameter the sum of the values that its parts have."""
    if not any(map(is_sharded, params)):
        return values
    return _reduce(values, params, dist.ReduceOp.SUM)


def add_up_all(parts: Sequence[Tensor], params: Sequence[Tensor]) -> Tensor:
    """The sum, over all parameters and their parts, of a tensor for each; shapes are alike.

    Parameters that are spread over the same processes go out as one.
    """
    sums: dict[Any, tuple[Tensor, Tensor]] = {}
    for part, param in zip(parts, params, strict=True):
        key = _find_axes(param) if is_sharded(param) else None
        total = sums[key][0] + part if key in sums else part
        sums[key] = total, param
    totals, owners = zip(*sums.values(), strict=True)
    device = totals[0].device
    rows = torch.stack([total.to(device) for total in totals])
    return add_up(rows, owners).sum(0)


def _reduce(values: Tensor, params: Sequence[Tensor], operation: Any) -> Tensor:
    """Reduce rows of values, one for each parameter, over the processes that have its parts."""
    members: dict[tuple[Any, tuple[int, ...]], list[int]] = {}
    for index, param in enumerate(params):
        if is_sharded(param):
            members.setdefault(_find_axes(param), []).append(index)
    values = values.clone()
    for (mesh, axes), indices in members.items():
        device = get_local(params[indices[0]]).device
        part = values[indices].to(device).contiguous()
        for axis in axes:
            dist.all_reduce(part, operation, group=mesh.get_group(axis))
        values[indices] = part.to(values.device)
    return values


def _find_axes(param: Any) -> tuple[Any, tuple[int, ...]]:
    """The mesh of processes, and its axes along which the parameter is cut."""
    mesh = param.device_mesh
    cut = (i for i, one in enumerate(param.placements) if not one.is_replicate())
    return mesh, tuple(i for i in cut if mesh.size(i) > 1)


def average_loss(loss: float, params: Sequence[Any], over_world: bool) -> float:
    """The mean loss of the processes that hold the parameters.

    Args:
        loss: That of this process.
        params: Its parameters: those that are spread know over which processes.
        over_world: Whether to take the mean over all processes, for whole parameters too.
    """
    meshes = {param.device_mesh for param in params if is_sharded(param)}
    if over_world and not meshes:
        device = params[0].device
        total = torch.tensor(loss, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()
    if not meshes:
        return loss
    mesh = max(meshes, key=lambda one: one.size())
    device = next(get_local(param).device for param in params if is_sharded(param))
    total = torch.tensor(loss, dtype=torch.float64, device=device)
    for axis in range(mesh.ndim):
        dist.all_reduce(total, group=mesh.get_group(axis))
    return float(total) / mesh.size()


def find_entries(param: Any) -> Tensor | None:
    """The index in the whole tensor of every entry that is here; None if all are."""
    if not is_sharded(param):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    local = param.to_local()
    _, offsets = compute_local_shape_and_global_offset(
        param.shape, param.device_mesh, param.placements
    )
    index = torch.zeros((), dtype=torch.int64, device=local.device)
    for axis, size in enumerate(local.shape):
        place = torch.arange(size, device=local.device) + offsets[axis]
        index = index.unsqueeze(-1) * param.shape[axis] + place
    return index


def find_offset(param: Any, dim: int) -> int:
    """Where the part that is here begins along an axis."""
    if not is_sharded(param):
        return 0
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offsets = compute_local_shape_and_global_offset(
        param.shape, param.device_mesh, param.placements
    )
    return offsets[dim]
