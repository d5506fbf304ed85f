r"""A sparse change of a model: what fine-tuning changed, without what it hardly changed.

    w = w_0 + d,   d = 0 but for a few entries,

for all floating-point tensors of a base w_0, and beside them a few tensors that are stored whole,
such as the head of a task. :meth:`SparseDelta.extract` finds d, :meth:`SparseDelta.apply` adds it
to a loaded model, and :meth:`SparseDelta.save` writes it in three to four bytes a number
(:mod:`mirrormargin.deltas.delta_file`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirrormargin.arguments import check_count, check_flag, check_kind, check_path, check_size
from mirrormargin.deltas.application import apply_delta, remove_delta
from mirrormargin.deltas.comparison import DeltaComparison, compare_entries, merge_whole
from mirrormargin.deltas.delta_file import Contents, pack_delta, unpack_delta
from mirrormargin.deltas.extraction import extract_contents
from mirrormargin.deltas.ranking import select_largest
from mirrormargin.deltas.space import Space
from mirrormargin.deltas.values import decode_values, encode_values
from mirrormargin.errors import DeltaError
from mirrormargin.runs import write_atomically

__all__ = ["SparseDelta"]


@dataclass(frozen=True, eq=False, repr=False)
class SparseDelta:
    """A sparse change of a model, and the tensors that are stored whole beside it.

    Made by :meth:`extract`, :meth:`load`, or from other deltas of the same base.

    Attributes:
        space: Which tensors of the base can have values, and which base that is.
        positions: Where the values are, increasing (:mod:`mirrormargin.deltas.space`).
        codes: The values as they are stored, in float16, bfloat16 or float32.
        scale: A value is its code times this.
        whole: Name -> tensor.
        info: What the caller keeps beside it: a dictionary that JSON can hold.

    Example:
        >>> base = torch.nn.Linear(3, 1)
        >>> model = {**base.state_dict(), "weight": base.weight + torch.tensor([0, 0.5, 0])}
        >>> delta = SparseDelta.extract(model, base, keep=1)
        >>> delta
        SparseDelta(1 of 4 values, in 1 of 2 tensors, float16)
        >>> delta.to_dense()
        {'weight': tensor([[0.0000, 0.5000, 0.0000]])}
    """

    space: Space
    positions: NDArray[np.int64]
    codes: Tensor
    scale: float = 1.0
    whole: Mapping[str, Tensor] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def extract(
        cls,
        model: nn.Module | Mapping[str, Tensor] | str | os.PathLike[str],
        base: nn.Module | Mapping[str, Tensor] | str | os.PathLike[str],
        *,
        keep: int | None = None,
        share: float | None = None,
        tolerance: float | None = None,
        evaluate: Callable[[nn.Module], float] | None = None,
        scope: Literal["global", "tensor"] = "global",
        whole: Sequence[str] | None = None,
        values: torch.dtype = torch.float16,
        info: Mapping[str, Any] | None = None,
    ) -> SparseDelta:
        r"""The largest differences between a model and its base.

        Give one of ``keep``, ``share`` and ``tolerance``. Entries that did not change are never
        kept, so there may be fewer. Tensors that share memory count once.

        Args:
            model: The fine-tuned model, its state dict, or the path of a safetensors file.
            base: What it was before, likewise.
            keep: How many differences.
            share: Which part of all entries, rounded down: 1e-3 keeps one in a thousand.
            tolerance: By how much the score may be worse than the model's own. The smallest number
                of differences is searched for by bisection, ten candidates for each factor of ten;
                that assumes that more differences are no worse.
            evaluate: With ``tolerance``: from the model to its score; higher is better. It is
                called with the model in place, which has its bits again in the end.
            scope: "global" ranks all tensors together. "tensor" ranks each by itself: ``keep`` and
                ``share`` are then of each tensor, and so is what ``tolerance`` finds.
            whole: Patterns (as of ``fnmatch``) of tensors to store as they are, such as
                ``["classifier.*"]`` for a head that the base has too, but untrained. Stored whole
                without being asked are tensors that the base lacks, and those of integers and
                others that are no floating-point numbers where they differ.
            values: The type in which differences are stored: float16, bfloat16 or float32.
            info: Anything to keep beside it, such as the names of classes.

        Raises:
            DeltaError: If these are not a model and its base, or an argument is not allowed.
        """
        contents = extract_contents(
            model,
            base,
            keep=keep,
            share=share,
            tolerance=tolerance,
            evaluate=evaluate,
            scope=scope,
            whole=whole,
            dtype=values,
            info=info,
        )
        return cls(*contents)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SparseDelta:
        """Read a delta that :meth:`save` wrote.

        Raises:
            DeltaError: If the file is missing, damaged, or not one of a delta.
        """
        return cls(*unpack_delta(Path(check_path("path", path, error=DeltaError))))

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write one file, whole or not at all; one that is there is replaced.

        Returns:
            The bytes of the file.

        Raises:
            RunError: If it cannot be written.
        """
        target = Path(check_path("path", path, error=DeltaError))
        contents = self._file
        write_atomically(target, lambda file: file.write(contents))
        return len(contents)

    def apply(self, model: nn.Module, check: bool = True) -> None:
        """Add it to a model, in place.

        Each sum is computed in float32 (float64 for such weights) and rounded to the type of the
        weight. What was there before is kept for :meth:`remove`. Several deltas can be added one
        after another, all of the same base; the last one is removed first.

        Args:
            model: The base, alone or wrapped (compiled, data parallel).
            check: Whether to compare the sha256 of the base; its shapes are always compared.

        Raises:
            DeltaError: If the model is not the base, or cannot be written to; it is then unchanged.
        """
        check_kind("model", model, nn.Module, error=DeltaError)
        apply_delta(self, model, check_flag("check", check, error=DeltaError))

    def remove(self, model: nn.Module) -> None:
        """Undo :meth:`apply`: every entry gets back the bits that it had.

        Raises:
            DeltaError: If this is not the last delta that was applied to the model, or the entries
                have changed since; the model is then unchanged.
        """
        remove_delta(self, check_kind("model", model, nn.Module, error=DeltaError))

    @property
    def contents(self) -> Contents:
        """All fields, as what reads, writes and applies a delta takes them."""
        return Contents(self.space, self.positions, self.codes, self.scale, self.whole, self.info)

    @property
    def values(self) -> Tensor:
        """The differences at ``positions``, in float32."""
        return decode_values(self.codes, self.scale)

    @property
    def num_values(self) -> int:
        """How many differences it has; whole tensors do not count."""
        return len(self.positions)

    @property
    def num_bytes(self) -> int:
        """Of the file that :meth:`save` writes."""
        return len(self._file)

    @property
    def bytes_per_value(self) -> float:
        """Of the file without whole tensors; nan if there are no values."""
        if not self.num_values:
            return float("nan")
        alone = self.without_whole() if self.whole else self
        return alone.num_bytes / self.num_values

    @cached_property
    def _file(self) -> bytes:
        return pack_delta(self.contents)

    def __add__(self, other: SparseDelta) -> SparseDelta:
        """Both changes of one base; the sum where they overlap.

        Sums are rounded to the type of values again, float32 if the two have different ones. Where
        ``info`` of both has the same key, the second one's is kept.

        Raises:
            DeltaError: If the bases differ, a tensor is whole in both with different contents, or a
                sum is beyond float32.
        """
        if not isinstance(other, SparseDelta):
            return NotImplemented
        space = self.space.match(other.space)
        whole = merge_whole(self.whole, other.whole)
        both = np.concatenate([self.positions, other.positions])
        positions, places = np.unique(both, return_inverse=True)
        sums = torch.zeros(len(positions), dtype=torch.float64)
        sums.index_add_(
            0, torch.from_numpy(places), torch.cat([self.values, other.values]).double()
        )
        if not bool(sums.float().isfinite().all()):
            raise DeltaError(
                "a sum of the two deltas is beyond float32, 3.4e38: apply them one after another to"
                " a model in float64"
            )
        kept = sums != 0
        dtype = torch.promote_types(self.codes.dtype, other.codes.dtype)
        codes, scale = encode_values(sums[kept].float(), dtype)
        info = {**self.info, **other.info}
        return SparseDelta(space, positions[kept.numpy()], codes, scale, whole, info)

    def compare(self, other: SparseDelta) -> DeltaComparison:
        """Which entries two deltas of one base share, and where their signs are opposite.

        Raises:
            DeltaError: If the bases differ.
        """
        check_kind("other", other, SparseDelta, error=DeltaError)
        self.space.match(other.space)
        return compare_entries(self.positions, self.codes, other.positions, other.codes)

    def keep(self, num_values: int) -> SparseDelta:
        """The part of it with the largest values, of equal ones the first; whole tensors stay.

        Raises:
            DeltaError: If ``num_values`` is no count.
        """
        count = check_count("num_values", num_values, least=0, error=DeltaError)
        chosen = select_largest(self.values, count)
        codes, scale = encode_values(self.values[chosen], self.codes.dtype)
        positions = self.positions[chosen.numpy()]
        return replace(self, positions=positions, codes=codes, scale=scale)

    def without_whole(self) -> SparseDelta:
        """The differences alone."""
        return replace(self, whole={})

    def to_dense(self) -> dict[str, Tensor]:
        """The difference of each tensor that has values, dense in float32.

        Raises:
            DeltaError: If a tensor is too large to be made.
        """
        dense, values = {}, self.values
        for name, part, indices in self.space.split(self.positions):
            shape = self.space.shapes[name]
            check_size(name, shape, error=DeltaError)
            flat = torch.zeros(shape).reshape(-1)
            flat[torch.from_numpy(indices)] = values[part]
            dense[name] = flat.reshape(shape)
        return dense

    def __repr__(self) -> str:
        num_touched = sum(1 for _ in self.space.split(self.positions))
        names = sorted(self.whole)
        whole = f", whole: {', '.join(names[:2])}" if names else ""
        whole += f" and {len(names) - 2} more" if len(names) > 2 else ""
        return (
            f"SparseDelta({self.num_values:,} of {self.space.size:,} values, in {num_touched} of"
            f" {len(self.space.shapes)} tensors, {str(self.codes.dtype).removeprefix('torch.')}"
            f"{whole})"
        )
