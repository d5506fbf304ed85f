r"""Centres that are given from outside, and the digests by which they are known again.

    digest(c) = sum_i h(bits(c_i) ^ h(i)) mod 2^32

with the hash h of ``stochastic_rounding``. It is a sum over entries, so that processes which hold
parts of a tensor find the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mirrormargin.arguments import check_kind, read_items, show
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.shards import add_up, find_entries, get_local, is_sharded, wrap_like
from mirrormargin.optim.stochastic_rounding import mix

__all__ = ["check_owners", "find_digests", "list_given", "set_centers"]

_AT_ONCE = 2**20  # entries that are hashed together: temporaries stay small
_MODULUS = 2**32


def set_centers(
    optimizer: Optimizer, given: MutableMapping[Tensor, dict[str, Any]], weights: Any
) -> None:
    """Give groups with a centre the weights to be centred at; see ``MirrorOptimizer.center_at``.

    Args:
        optimizer: With these groups.
        given: Takes the centres of parameters that have no state yet. In the state they would be
            all that is there, and torch's distributed checkpoints take such an optimizer for one
            that has made steps: pinned by ``hand_over`` in ``rank_centers``.
        weights: As in ``center_at``.
    """
    pairs = _pair_centers(optimizer.param_groups, weights)
    digests = find_digests([center for *_, center in pairs], [param for _, param, _ in pairs])
    for (label, param, _), digest in zip(pairs, digests, strict=True):
        state = optimizer.state.get(param, {})
        known = state.get("center_digest")
        if known is None and "center" in state:
            (known,) = find_digests([state["center"]], [param])
        if known not in (None, digest):
            raise OptimizerError(
                f"u of {label} belongs to another centre than the one that is given: give the"
                " weights that the training began with"
            )
    for (_, param, center), digest in zip(pairs, digests, strict=True):
        found = {"center": center, "center_digest": digest}
        if optimizer.state.get(param):
            optimizer.state[param].update(found)
        else:
            given[param] = found


def list_given(states: Mapping[Tensor, Mapping[str, Any]]) -> dict[Tensor, dict[str, Any]]:
    """The centres in the states that were given, with their digests."""
    keys = ("center", "center_digest")
    return {
        param: {key: state[key] for key in keys}
        for param, state in states.items()
        if all(key in state for key in keys)
    }


def check_owners(groups: Sequence[dict[str, Any]], given: Iterable[Tensor]) -> None:
    """Raise unless the parameters that were given a centre are still those of the groups."""
    known = {id(param) for group in groups for param in group["params"]}
    if any(id(param) not in known for param in given):
        raise OptimizerError(
            "center_at() was called for parameters that the optimizer no longer has: call it after"
            " they are replaced, as by Accelerate's prepare with FSDP2"
        )


def _pair_centers(
    groups: Sequence[dict[str, Any]], weights: Any
) -> list[tuple[str, Tensor, Tensor]]:
    """The name, the parameter and the centre of each parameter in groups with a centre.

    Raises:
        OptimizerError: If a tensor is missing, too many, or of another kind than its parameter.
    """
    members = list(_list_centered(groups))
    if not members:
        raise OptimizerError("no group has center=True: give it to those that are to be centred")
    if isinstance(weights, nn.Module):
        weights = dict(weights.named_parameters(remove_duplicate=False))
    if isinstance(weights, Mapping):
        found = [_find(label, name, weights) for label, name, _ in members]
    else:
        allowed = "a module, a mapping from names to tensors, or a sequence of tensors"
        found = list(read_items("weights", weights, allowed, error=OptimizerError))
        if len(found) != len(members):
            raise OptimizerError(
                f"{len(found)} tensors were given for {len(members)} parameters with a centre:"
                " give one for each, in their order"
            )
    pairs = []
    for (label, _, param), center in zip(members, found, strict=True):
        check_kind(f"the centre of {label}", center, Tensor, "its weights", error=OptimizerError)
        if center.shape != param.shape or center.dtype is not param.dtype:
            raise OptimizerError(
                f"the centre of {label} is {center.dtype} of shape {tuple(center.shape)}, the"
                f" parameter {param.dtype} of shape {tuple(param.shape)}: give both alike"
            )
        here = get_local(param)
        if here.numel() and get_local(center).data_ptr() == here.data_ptr():
            raise OptimizerError(
                f"the centre of {label} is the parameter itself, which training changes: give a"
                " copy, or leave center_at out, which copies the weights of the first step"
            )
        center = center.detach().to(here.device)
        pairs.append((label, param, center if is_sharded(center) else wrap_like(center, param)))
    return pairs


def _list_centered(
    groups: Sequence[dict[str, Any]],
) -> Iterator[tuple[str, str | None, Tensor]]:
    for number, group in enumerate(groups):
        names = group.get("param_names")
        for index, param in enumerate(group["params"]) if group["center"] else ():
            name = names[index] if names else None
            yield name or f"parameter {index} of group {number}", name, param


def _find(label: str, name: str | None, weights: Mapping[Any, Any]) -> Any:
    if name is None:
        raise OptimizerError(
            f"{label} has no name in the optimizer: build it with named parameters, as"
            " mirrormargin.mirror_groups(model) gives them, or give tensors in their order"
        )
    if name not in weights:
        raise OptimizerError(
            f"the weights have no {show(name)}: give those of the whole model, under its names"
        )
    return weights[name]


@torch.no_grad()
def find_digests(centers: Sequence[Tensor], owners: Sequence[Tensor]) -> list[int]:
    """The digest of each centre; owners are the parameters, which know what is spread how."""
    if not centers:
        return []
    sums = [
        _sum_here(get_local(center), find_entries(owner))
        for center, owner in zip(centers, owners, strict=True)
    ]
    totals = add_up(torch.tensor(sums, dtype=torch.float64), owners)
    return [int(total) % _MODULUS for total in totals.tolist()]


def _sum_here(center: Tensor, entries: Tensor | None) -> int:
    flat, total = center.detach().reshape(-1), 0
    for start in range(0, flat.numel(), _AT_ONCE):
        bits = _find_bits(flat[start : start + _AT_ONCE])
        if entries is None:
            index = torch.arange(start, start + len(bits), device=bits.device)
        else:
            index = entries.reshape(-1)[start : start + _AT_ONCE]
        hashed = mix(bits ^ mix(index.to(torch.int32)))
        total += int((hashed.long() & (_MODULUS - 1)).sum())
    return total % _MODULUS


def _find_bits(x: Tensor) -> Tensor:
    """The bits of numbers, as int32; of float64 both halves mixed."""
    if x.dtype is torch.float64:
        wide = x.contiguous().view(torch.int64)
        return mix((wide >> 32).to(torch.int32)) ^ wide.to(torch.int32)
    if x.dtype is torch.float32:
        return x.contiguous().view(torch.int32)
    return x.contiguous().view(torch.int16).to(torch.int32)
