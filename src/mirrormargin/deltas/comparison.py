r"""Two deltas of one base: what they share, and where they disagree.

    overlap = |A and B| / min(|A|, |B|),   conflicts = entries of both with opposite signs

Deltas whose entries were chosen at random among N would share |A| |B| / N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.errors import DeltaError

__all__ = ["DeltaComparison", "compare_entries", "merge_whole"]


@dataclass(frozen=True)
class DeltaComparison:
    """What two deltas share.

    Attributes:
        num_values: How many values each of them has.
        num_shared: How many entries both change.
        num_conflicts: In how many of these their signs are opposite.
        overlap: The share of the smaller one's entries that both change; 0 if it has none.
    """

    num_values: tuple[int, int]
    num_shared: int
    num_conflicts: int
    overlap: float


def compare_entries(
    positions: NDArray[np.int64],
    values: Tensor,
    other_positions: NDArray[np.int64],
    other_values: Tensor,
) -> DeltaComparison:
    """See :meth:`mirrormargin.SparseDelta.compare`."""
    _, here, there = np.intersect1d(
        positions, other_positions, assume_unique=True, return_indices=True
    )
    signs = values[torch.from_numpy(here)].sign().float()
    other_signs = other_values[torch.from_numpy(there)].sign().float()
    least = min(len(positions), len(other_positions))
    return DeltaComparison(
        num_values=(len(positions), len(other_positions)),
        num_shared=len(here),
        num_conflicts=int((signs * other_signs < 0).sum()),
        overlap=len(here) / least if least else 0.0,
    )


def merge_whole(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of both.

    Raises:
        DeltaError: If one name stands for different contents.
    """
    for name in sorted(first.keys() & second.keys()):
        one, other = first[name], second[name]
        if one.dtype != other.dtype or not torch.equal(one, other):
            raise DeltaError(
                f"{name} is stored whole in both deltas, with different contents: heads of two"
                " tasks cannot be added; leave one out with without_whole()"
            )
    return {**first, **second}
