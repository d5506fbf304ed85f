"""What is looked at before steps: weights that could not be trained as they are, and scales."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mirrormargin.errors import MirrorMarginWarning, OptimizerError
from mirrormargin.geometry import LpPotential
from mirrormargin.optim.groups import are_zero, find_largest_of
from mirrormargin.optim.norms import find_root_mean_squares
from mirrormargin.optim.plain import state_dtype
from mirrormargin.optim.shards import is_sharded

__all__ = ["Start", "check_starts", "find_initial_scales", "find_kappa"]

FLAT = 1.5  # below this exponent a tensor that starts at 0 takes ages: w = u^2 is the last to move


class Start(NamedTuple):
    """A parameter with a gradient, before a step.

    Attributes:
        label: What errors call it.
        group: The options of its group.
        param: The parameter.
        is_chosen: Whether its group was given a p of its own.
        is_new: Whether it has made no step yet.
        lacks_center: Whether it has a centre that must be given again.
    """

    label: str
    group: dict[str, Any]
    param: Tensor
    is_chosen: bool
    is_new: bool
    lacks_center: bool


def check_starts(starts: Sequence[Start]) -> None:
    """Raise, or warn, of parameters that would not be trained.

    Raises:
        OptimizerError: If one is spread over processes in a geometry that couples entries, is too
            large for its exponent, or has no centre.
    """
    for one in starts:
        if one.lacks_center:
            raise OptimizerError(
                f"the checkpoint was saved without the centre of {one.label}: give the weights that"
                " its training began with to center_at(...)"
            )
    _refuse_coupled_shards(starts)
    # Where there is a centre, u is that of w - c.
    usual = [one for one in starts if one.group["potential"] is None and not one.group["center"]]
    _refuse_vast_weights([one for one in usual if one.group["p"] > 2])
    flat = [one for one in usual if one.group["p"] < FLAT]
    _warn_of_flat_starts([one for one in flat if one.is_new and not one.is_chosen])


def _refuse_coupled_shards(starts: Sequence[Start]) -> None:
    for one in starts:
        own = one.group["potential"]
        if own is not None and not own.is_separable and is_sharded(one.param):
            raise OptimizerError(
                f"{own!r} couples entries of {one.label}, which is spread over processes: use a"
                " potential that maps each entry by itself"
            )


def _refuse_vast_weights(starts: Sequence[Start]) -> None:
    """Raise if |w|^(p-1) overflows: that weight would never move."""
    sizes = find_largest_of([one.param for one in starts])
    for one, largest in zip(starts, sizes, strict=True):
        limits, p = torch.finfo(state_dtype(one.param)), one.group["p"]
        if limits.max ** (1 / (p - 1)) < largest < math.inf:
            raise OptimizerError(
                f"{one.label} holds a weight of size {largest:.3g}, whose |w|^(p-1) at p = {p:g}"
                f" {limits.dtype} cannot hold: use a smaller p, or float64 parameters"
            )


def _warn_of_flat_starts(starts: Sequence[Start]) -> None:
    """Warn of tensors that are 0 where the map from u to w is flat.

    Whoever gives p to a group by itself has chosen its tensors, and is not warned.
    """
    is_flat = are_zero([one.param for one in starts])
    flat = [one for one, is_it in zip(starts, is_flat, strict=True) if is_it]
    if flat:
        p = min(one.group["p"] for one in flat)
        names = ", ".join(one.label for one in flat[:3])
        more = f" and {len(flat) - 3} more" if len(flat) > 3 else ""
        warnings.warn(
            f"{names}{more} start{'s' * (len(flat) == 1)} at 0, where near p = 1 a weight hardly"
            f" moves (w = u^{1 / (p - 1):.3g}): give mirrormargin.mirror_groups(model, p), which"
            " trains them at p = 2, instead of model.parameters()",
            MirrorMarginWarning,
            stacklevel=9,  # the caller of step, which torch has wrapped twice
        )


def find_initial_scales(starts: Sequence[tuple[str, float, Tensor]]) -> list[float]:
    """The root mean square of each tensor, given with its label and p.

    Raises:
        OptimizerError: If one is zero, but for p = 2, where every scale is the same.
    """
    found = find_root_mean_squares([param for *_, param in starts])
    for (label, p, _), rms in zip(starts, found, strict=True):
        if rms == 0 and p != 2:
            raise OptimizerError(
                f'scale="rms" is not known for {label}, which starts at 0: train it at p = 2'
                " (mirrormargin.mirror_groups sorts parameters so), or give a number as scale"
            )
    return [rms or 1.0 for rms in found]


def find_kappa(
    group: dict[str, Any], param: Tensor, state: dict[str, Any], label: str, *, reads: bool
) -> float:
    """The factor of the scaled potential kappa * psi_p.

    Raises:
        OptimizerError: If a step in it leaves the range of numbers; not if lr must not be read.
    """
    scale: Any = state["scale"] if group["scale"] == "rms" else group["scale"]
    lr = float(group["lr"]) if reads or not isinstance(group["lr"], Tensor) else 0.0
    kappa = LpPotential(group["p"], scale).factor
    limits = torch.finfo(state_dtype(param))
    if lr > 0 and not limits.tiny <= lr / max(kappa, limits.tiny) <= limits.max:
        raise OptimizerError(
            f"scale={scale:.3g} at p={group['p']} makes lr a step of {lr / kappa:.1e} in "
            f"|w|^(p-1) for {label}, which {limits.dtype} cannot hold: use a smaller p, or float64"
            " parameters"
        )
    return kappa
