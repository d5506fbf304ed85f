"""Rows of a batch: taken out for one task, and put together again in the order of the requests.

A batch is a tensor, tensors by name (as tokenizers make them and models answer), or a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import read_items, show
from mirrormargin.errors import DeltaError

__all__ = ["call_model", "count_rows", "join_rows", "select_rows"]


def count_rows(name: str, batch: Any) -> int:
    """How many there are; ``name`` is for the message."""
    if isinstance(batch, Mapping):
        counts = {len(one) for one in batch.values() if isinstance(one, Tensor) and one.ndim}
        if len(counts) != 1:
            raise DeltaError(f"{name} have tensors of {sorted(counts)} rows: give one number")
        return counts.pop()
    if isinstance(batch, Tensor):
        if batch.ndim == 0:
            raise DeltaError(f"{name} are a tensor without axes: give one row for each request")
        return len(batch)
    if isinstance(batch, tuple):
        raise DeltaError(
            f"{name} are a tuple, which may be rows or parts such as (logits, states): give rows as"
            " a list, and parts as tensors by name"
        )
    return len(read_items(name, batch, "a tensor, tensors by name, or a list", error=DeltaError))


def select_rows(batch: Any, rows: Sequence[int]) -> Any:
    """Some rows of a batch, in its own form."""
    if isinstance(batch, Mapping):
        return {
            name: one[list(rows)] if isinstance(one, Tensor) and one.ndim else one
            for name, one in batch.items()
        }
    return batch[list(rows)] if isinstance(batch, Tensor) else [batch[row] for row in rows]


def join_rows(parts: Sequence[Any], rows: Sequence[Sequence[int]]) -> Any:
    """Inverse of :func:`select_rows`: of each part, the rows where its own belong."""
    first = parts[0]
    if isinstance(first, Mapping):
        names = [name for name, one in first.items() if isinstance(one, Tensor) and one.ndim]
        return {name: join_rows([part[name] for part in parts], rows) for name in names}
    order = [row for some in rows for row in some]
    if isinstance(first, Tensor):
        if len({(tuple(one.shape[1:]), one.dtype) for one in parts}) > 1:
            raise DeltaError(
                f"outputs of the tasks have shapes {[tuple(one.shape) for one in parts]}: return"
                " lists from forward where they differ"
            )
        joined = torch.cat(list(parts))
        inverse = torch.empty(len(order), dtype=torch.int64)
        inverse[order] = torch.arange(len(order))
        return joined[inverse.to(joined.device)]
    answers: list[Any] = [None] * len(order)
    for row, one in zip(order, (one for part in parts for one in part), strict=True):
        answers[row] = one
    return answers


def call_model(model: nn.Module, batch: Any) -> Any:
    """The model's own answer."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, Tensor):
        return model(batch)
    raise DeltaError(f"inputs are {show(batch)}: say with forward how the model takes them")
