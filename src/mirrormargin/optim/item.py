"""One tensor of a step, and the state that must match what the tensor has become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mirrormargin.optim.plain import state_dtype

__all__ = ["Item", "by_path", "dense_format", "like"]


class Item(NamedTuple):
    """One tensor to be stepped: weight, gradient, state, the path to take, and kappa.

    The scaled potential is kappa * psi_p, so a step lr there is a step lr / kappa in u.
    """

    param: Tensor
    grad: Tensor
    state: dict[str, Any]
    path: str
    factor: float

    def kept(self, key: str) -> Tensor | None:
        """A state tensor in the dtype, device and layout that the parameter asks for by now.

        ``model.to(...)`` may have changed the parameter since, and kernels trust addresses.
        """
        tensor, param = self.state.get(key), self.param
        if tensor is None:
            return None
        dtype = state_dtype(param)
        if tensor.dtype is not dtype or tensor.get_device() != param.get_device():
            tensor = self.state[key] = tensor.to(param.device, dtype)
        if tensor.stride() != param.stride():
            tensor = self.state[key] = like(tensor, param)
        return tensor

    def zeros(self, key: str) -> Tensor:
        """As :meth:`kept`, made of zeros if absent."""
        if key not in self.state:
            dtype = state_dtype(self.param)
            self.state[key] = torch.zeros_like(self.param, dtype=dtype, requires_grad=False)
        tensor = self.kept(key)
        assert tensor is not None
        return tensor


def by_path(items: list[Item], columns: list[list[Any]]) -> Iterator[tuple[str, list[list[Any]]]]:
    """Each path with the entries of the columns that take it."""
    for path in sorted({item.path for item in items}):
        rows = [i for i, item in enumerate(items) if item.path == path]
        yield (
            path,
            (
                columns
                if len(rows) == len(items)
                else [[column[i] for i in rows] for column in columns]
            ),
        )


def dense_format(tensor: Tensor) -> torch.memory_format | None:
    """The memory format in which the tensor fills its memory without gaps, if one is known."""
    if tensor.is_contiguous():
        return torch.contiguous_format
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None


def like(tensor: Tensor, param: Tensor) -> Tensor:
    """The tensor laid out as the parameter is; itself if it already is, or if that has gaps."""
    if tensor.stride() == param.stride():
        return tensor
    layout = dense_format(param)
    return tensor if layout is None else tensor.contiguous(memory_format=layout)
