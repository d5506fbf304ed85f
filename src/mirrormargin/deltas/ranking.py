r"""Which differences are kept: the largest by magnitude, an exact number of them.

    kept = the n entries of d = w - w0 with the largest |d|, of equal ones the first

over all tensors together (``"global"``) or in each tensor by itself (``"tensor"``), but never an
entry that is 0. The largest of all are among the largest of each tensor, so that no more than those
of one tensor and n others are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

__all__ = ["Limit", "select_entries", "select_largest"]
Limit = Callable[[int], int]
"""From a number of entries to how many of them are kept."""


def select_largest(values: Tensor, count: int) -> Tensor:
    """Indices of the largest nonzero magnitudes, increasing; of equal ones the first.

    Example:
        >>> select_largest(torch.tensor([1.0, -2.0, 0.0, 2.0, -1.0]), 3)
        tensor([0, 1, 3])
    """
    magnitudes = values.abs()
    num_nonzero = int(magnitudes.count_nonzero())
    if count >= num_nonzero:
        return magnitudes.nonzero()[:, 0]
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    # Ten times as fast as torch's kthvalue and topk.
    least = np.partition(magnitudes.numpy(), len(magnitudes) - count)[len(magnitudes) - count]
    above = (magnitudes > float(least)).nonzero()[:, 0]
    equal = (magnitudes == float(least)).nonzero()[:, 0]
    return torch.cat([above, equal[: count - len(above)]]).sort().values


def select_entries(
    differences: Iterable[tuple[int, Tensor]],
    limit: Limit,
    size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The positions of what is kept, increasing, and the differences there.

    Args:
        differences: Of each tensor its offset and its flat difference, in the order of offsets.
        limit: From a number of entries to how many of them are kept.
        size: Of all tensors together, which are ranked together; None ranks each by itself.
    """
    positions = [torch.empty(0, dtype=torch.int64)]
    values = [torch.empty(0)]
    for offset, flat in differences:
        chosen = select_largest(flat, limit(len(flat) if size is None else size))
        positions.append(chosen + offset)
        values.append(flat[chosen])
    position, value = torch.cat(positions), torch.cat(values)
    if size is not None:
        chosen = select_largest(value, limit(size))
        position, value = position[chosen], value[chosen]
    return position, value
