r"""The index space of a delta: which tensors of the base it may change, and the base's identity.

All ranked tensors, sorted by name, lie one after another, each row by row:

    position = offset of the tensor + index in it,   0 <= position < size.

The base is known by the sha256 over its ranked tensors' names, types, shapes and bytes, as it is
and converted to float32, bfloat16 and float16: a model that is served in half precision is the same
base. Heads and other tensors that are stored whole are no part of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.deltas.values import TYPES
from mirrormargin.errors import DeltaError

__all__ = ["Space", "combine_digests", "digest_base", "digest_tensor"]


@dataclass(frozen=True, eq=False, repr=False)
class Space:
    """Where the values of a delta are, and which base they are added to.

    Attributes:
        shapes: Of each ranked tensor, sorted by name.
        digests: The base's sha256, in each of the types that it may be loaded in.
        tied: Other names of ranked tensors, and the names that they are ranked under.
    """

    shapes: Mapping[str, tuple[int, ...]]
    digests: tuple[str, ...]
    tied: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each tensor starts, and at last the size."""
        lengths = [math.prod(shape) for shape in self.shapes.values()]
        return np.cumsum([0, *lengths], dtype=np.int64)

    @property
    def size(self) -> int:
        return int(self.offsets[-1])

    def split(self, positions: NDArray[np.int64]) -> Iterator[tuple[str, slice, NDArray[np.int64]]]:
        """Of each tensor with positions: its name, which of them they are, the indices in it."""
        bounds = np.searchsorted(positions, self.offsets)
        for number, name in enumerate(self.shapes):
            first, last = int(bounds[number]), int(bounds[number + 1])
            if first < last:
                yield name, slice(first, last), positions[first:last] - self.offsets[number]

    def leave_out(self, positions: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
        """Numbers of the tensors without positions, and positions among the others."""
        unused = np.flatnonzero(np.diff(np.searchsorted(positions, self.offsets)) == 0)
        return unused.tolist(), positions - self._find_gaps(unused, self.offsets, positions)

    def put_back(self, unused: list[int], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Inverse of :meth:`leave_out`."""
        numbers = np.array(unused, dtype=np.int64)
        offsets = self._find_offsets(numbers)
        return positions + self._find_gaps(numbers, offsets, positions)

    def measure(self, unused: list[int]) -> int:
        """The size without some tensors."""
        return int(self._find_offsets(np.array(unused, dtype=np.int64))[-1])

    def _find_offsets(self, unused: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each tensor starts if some take no place."""
        lengths = np.diff(self.offsets)
        lengths[unused] = 0
        return np.concatenate([[0], np.cumsum(lengths)])

    def _find_gaps(
        self,
        unused: NDArray[np.int64],
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Entries of unused tensors before each position, which is counted by ``offsets``."""
        number = np.searchsorted(offsets, positions, side="right") - 1
        return (self.offsets - self._find_offsets(unused))[number]

    def match(self, other: Space) -> Space:
        """The space of two deltas of one base.

        Raises:
            DeltaError: If the bases differ, or what was ranked of them.
        """
        if self.shapes != other.shapes:
            here, there = dict(self.shapes), dict(other.shapes)
            name = min(name for name in {*here, *there} if here.get(name) != there.get(name))
            raise DeltaError(
                f"the deltas are not of the same tensors: {name} is"
                f" {_describe(here.get(name))} in one and {_describe(there.get(name))} in the"
                " other: extract both from the same base, with the same whole"
            )
        digests = tuple(one for one in self.digests if one in other.digests)
        if not digests:
            raise DeltaError(
                "the deltas are of different bases (their sha256 differ): extract both from the"
                " same base"
            )
        return Space(self.shapes, digests, {**self.tied, **other.tied})

    def check_base(self, digest: Callable[[str], bytes]) -> None:
        """Compare a model's digest, given that of each tensor, with the base's.

        Raises:
            DeltaError: If it is another base.
        """
        if combine_digests({name: digest(name) for name in self.shapes}) not in self.digests:
            raise DeltaError(
                "the model is not the base of this delta: its weights have another sha256; load"
                " the base that the delta was extracted from, in float32, bfloat16 or float16 and"
                " unchanged, or skip this comparison with check=False"
            )

    def __repr__(self) -> str:
        return f"Space({self.size:,} entries of {len(self.shapes)} tensors)"


def digest_base(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The sha256 of a base in each type that it may be loaded in, sorted."""
    as_it_is = {name: digest_tensor(name, one) for name, one in tensors.items()}
    found = {combine_digests(as_it_is)}
    for dtype in TYPES:
        converted = {
            name: as_it_is[name]
            if one.dtype == dtype
            else digest_tensor(name, one.detach().to(dtype))
            for name, one in tensors.items()
        }
        found.add(combine_digests(converted))
    return tuple(sorted(found))


def digest_tensor(name: str, tensor: Tensor) -> bytes:
    """The sha256 of a tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.digest()


def combine_digests(digests: Mapping[str, bytes]) -> str:
    """One sha256 for all tensors, in the order of their names."""
    return hashlib.sha256(b"".join(digests[name] for name in sorted(digests))).hexdigest()


def _describe(shape: tuple[int, ...] | None) -> str:
    return "absent, or whole," if shape is None else f"of shape {shape}"
