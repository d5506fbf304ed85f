r"""From a model and its base to the contents of a delta.

    d = w - w_0 in float32 (float64 for such weights),   kept = the largest |d|

over all tensors together or in each by itself; :mod:`mirrormargin.deltas.search` finds how many are
enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import (
    check_choice,
    check_count,
    check_function,
    check_kind,
    check_number,
    read_items,
    show,
)
from mirrormargin.deltas.delta_file import Contents
from mirrormargin.deltas.ranking import Limit, select_entries
from mirrormargin.deltas.search import find_smallest
from mirrormargin.deltas.space import Space, digest_base
from mirrormargin.deltas.tensors import find_tied, is_same, read_tensors
from mirrormargin.deltas.values import check_type, encode_values
from mirrormargin.errors import DeltaError
from mirrormargin.runs import check_document

__all__ = ["extract_contents"]

SCOPES = ("global", "tensor")


def extract_contents(
    model: Any,
    base: Any,
    *,
    keep: Any,
    share: Any,
    tolerance: Any,
    evaluate: Any,
    scope: Any,
    whole: Any,
    dtype: Any,
    info: Any,
) -> Contents:
    """See :meth:`mirrormargin.SparseDelta.extract`."""
    limit = _read_limit(keep, share, tolerance)
    check_choice("scope", scope, SCOPES, error=DeltaError)
    check_type("values", dtype)
    note = check_document("info", info, error=DeltaError)
    patterns = _read_patterns(whole)
    new, old = read_tensors("model", model), read_tensors("base", base)
    _check_tying(old, find_tied(new, old), "model", "base")
    tied_before = find_tied(old, new)
    _check_tying(new, tied_before, "base", "model")
    new |= {name: new[one] for name, one in tied_before.items() if {name, one} <= new.keys()}
    tied = find_tied(new, old)
    ranked, stored = _sort(new, old, tied, patterns)
    pair = _Pair(new, old, ranked, tied)
    whole_tensors = {name: _copy(new[name]) for name in stored}

    def extract(count: Limit) -> Contents:
        positions, values = pair.select(count, scope)
        codes, scale = encode_values(values, dtype)
        return Contents(pair.space, positions.numpy(), codes, scale, whole_tensors, note)

    if limit is not None:
        if evaluate is not None:
            raise DeltaError("evaluate goes with tolerance: give both, and neither keep nor share")
        return extract(limit)
    function = check_function("evaluate", evaluate, "evaluate(model)", error=DeltaError)
    check_kind("model", model, nn.Module, "which evaluate is called with", error=DeltaError)
    most = pair.count_changed(scope)
    pair.new = {name: _copy(one) for name, one in new.items()}  # the model's own are written to
    return find_smallest(model, function, float(tolerance), most, extract, old)


def _read_limit(keep: Any, share: Any, tolerance: Any) -> Limit | None:
    """From a number of entries to how many are kept; None if a tolerance decides."""
    given = [
        name
        for name, one in (("keep", keep), ("share", share), ("tolerance", tolerance))
        if one is not None
    ]
    if len(given) != 1:
        raise DeltaError(
            f"{' and '.join(given) or 'none of them'} given: give one of keep (a number of"
            " differences), share (of all entries) and tolerance (with evaluate)"
        )
    if keep is not None:
        number = check_count("keep", keep, least=0, error=DeltaError)
        return lambda size: number
    if share is not None:
        part = check_number("share", share, least=0.0, most=1.0, error=DeltaError)
        exact = Fraction(str(part))  # 0.29 of 100 is 29, and 28.999... as a product of floats
        return lambda size: math.floor(exact * size)
    check_number("tolerance", tolerance, least=0.0, below=math.inf, error=DeltaError)
    return None


def _read_patterns(whole: Any) -> Sequence[str]:
    allowed = 'None or a list of patterns, such as ["classifier.*"]'
    patterns = () if whole is None else read_items("whole", whole, allowed, error=DeltaError)
    if not all(isinstance(one, str) for one in patterns):
        raise DeltaError(f"whole is {show(whole)}: give {allowed}")
    return patterns


def _check_tying(
    tensors: Mapping[str, Tensor], tied: Mapping[str, str], where: str, here: str
) -> None:
    """Raise if tensors that are tied in one model differ in the other one.

    Equal copies pass, for files and copies of state dicts tie nothing.
    """
    for name, one in tied.items():
        if {name, one} <= tensors.keys() and not is_same(tensors[name], tensors[one]):
            raise DeltaError(
                f"{name} and {one} share their memory in the {where}, and differ in the {here}: a"
                " delta cannot tie or untie them, so tie them in both or in neither"
            )


def _sort(
    new: Mapping[str, Tensor],
    old: Mapping[str, Tensor],
    tied: Mapping[str, str],
    patterns: Sequence[str],
) -> tuple[list[str], list[str]]:
    """The names of tensors that are ranked, and of those that are stored whole."""
    if not new.keys() & old.keys():
        raise DeltaError(
            f"model and base have no tensor in common: the one has {min(new)!r}, the other"
            f" {min(old)!r}; load both into the same class"
        )
    chosen: set[str] = set()
    for pattern in patterns:
        matching = [name for name in new if fnmatchcase(name, pattern)]
        if not matching:
            raise DeltaError(
                f"whole has {show(pattern)}, which matches no tensor: the model has"
                f" {', '.join(list(new)[:3])}, ..."
            )
        chosen.update(tied.get(name, name) for name in matching)
    ranked, stored = [], []
    for name in sorted(new.keys() - tied.keys()):
        one, other = new[name], old.get(name)
        if name in chosen or other is None:
            stored.append(name)
        elif not (one.is_floating_point() and other.is_floating_point()):
            if one.shape != other.shape or not torch.equal(one.cpu(), other.cpu()):
                stored.append(name)
        elif one.shape != other.shape:
            raise DeltaError(
                f"{name} has shape {tuple(one.shape)} in the model and {tuple(other.shape)} in the"
                f" base: store it whole, with whole=[{name!r}], or give the base of this model"
            )
        else:
            ranked.append(name)
    return ranked, stored


class _Pair:
    """A model and its base: the tensors that are ranked, and their differences."""

    def __init__(
        self,
        new: Mapping[str, Tensor],
        old: Mapping[str, Tensor],
        ranked: Sequence[str],
        tied: Mapping[str, str],
    ) -> None:
        self.new, self._old = new, old
        shapes = {name: tuple(new[name].shape) for name in ranked}
        names = {name: one for name, one in tied.items() if one in shapes}
        self.space = Space(shapes, digest_base({name: old[name] for name in ranked}), names)

    def select(self, limit: Limit, scope: str) -> tuple[Tensor, Tensor]:
        """Positions and differences of what is kept."""
        size = self.space.size if scope == "global" else None
        return select_entries(self._differences(), limit, size)

    def count_changed(self, scope: str) -> int:
        """How many entries differ, in all tensors together or in the one where most do."""
        counts = [int(one.count_nonzero()) for _, one in self._differences()]
        return sum(counts) if scope == "global" else max(counts, default=0)

    def _differences(self) -> Iterator[tuple[int, Tensor]]:
        for name, offset in zip(self.space.shapes, self.space.offsets.tolist(), strict=False):
            one, other = self.new[name].detach().cpu(), self._old[name].detach().cpu()
            exact = torch.promote_types(torch.promote_types(one.dtype, other.dtype), torch.float32)
            one, other = one.to(exact), other.to(exact)
            # What is equal is not stored, such as a mask of -inf, whose difference would be nan.
            equal = (one == other) | (one.isnan() & other.isnan())
            difference = (one - other).masked_fill(equal, 0.0).float().reshape(-1)
            if not difference.isfinite().all():
                raise DeltaError(
                    f"{name} has nan or inf, in the model or in the base, or a difference beyond"
                    " float32: a delta holds finite differences"
                )
            yield offset, difference


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
