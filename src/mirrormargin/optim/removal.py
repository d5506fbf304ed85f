r"""Removing weights from an optimizer's state: what a weight is ranked by, and what a mask changes.

    score = |w - c|, or |to_primal(u)| where u goes on behind removed weights

A forgotten weight that is still 0 comes before all others, so that it stays removed; one that
someone has written to is ranked like any weight, and may return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry.compiler import has_numba
from mirrormargin.geometry.norms import widen
from mirrormargin.optim.dual_state import find_potential, follow_weights, open_center, open_mask
from mirrormargin.optim.masks import MASK, hides_weights
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.paths import choose_path, is_compilable
from mirrormargin.optim.plain import add_center, open_state
from mirrormargin.optim.shards import get_local, is_sharded, wrap_like

__all__ = ["FIRST", "Member", "remove_compiled"]

FIRST = -1.0  # the score of what is removed and stays so
HALF = 0.5
AVERAGES = ("exp_avg", "momentum_buffer")  # of gradients


class Member:
    """A parameter under a schedule, with its group and what the optimizer keeps of it."""

    def __init__(self, optimizer: MirrorOptimizer, number: int, param: Tensor) -> None:
        self.optimizer, self.number, self.param = optimizer, number, param

    @property
    def group(self) -> dict[str, Any]:
        """Its group as it is now: loading a checkpoint makes new ones."""
        return self.optimizer.param_groups[self.number]

    @property
    def state(self) -> dict[str, Any]:
        return self.optimizer.state[self.param]

    @property
    def local(self) -> Tensor:
        """The weights that are here."""
        return get_local(self.param.detach())

    def open_mask(self) -> Tensor:
        """False where a weight that is here is removed; made at the first ranking."""
        mask = open_mask(self.param, self.state)
        if mask is None:
            mask = torch.ones_like(self.local, dtype=torch.bool)
            self.state[MASK] = wrap_like(mask, self.param)
        return mask

    def score(self, dtype: torch.dtype) -> Tensor:
        """What the weights that are here are ranked by."""
        image = self._find_image()
        if image is not None:
            return image.abs().to(dtype)
        change, center = self.local.to(dtype), self._open_center()
        size = (change if center is None else change - center.to(dtype)).abs()
        return torch.where(self.open_mask() | (size != 0), size, FIRST)

    def remove(self, removed: Tensor, threshold: float) -> None:
        """Let these weights, and no others, be removed; ``threshold`` is the largest of them."""
        is_known = self.optimizer.is_unwritten(self.param)
        mask, local, center = self.open_mask(), self.local, self._open_center()
        image = self._find_image()
        if image is None:
            is_new = removed & (mask | (local != (0.0 if center is None else center)))
            for name in AVERAGES:
                if name in self.state:
                    get_local(self.state[name]).masked_fill_(is_new, 0.0)
            left = self._forget(is_new) if "dual" in self.state else local
        else:
            self._fade(~mask, removed, threshold)
            image = self._find_image()
            assert image is not None
            left = image if center is None else image + center.to(image.dtype)
        mask.copy_(~removed)
        away = torch.zeros_like(local) if center is None else center
        local.copy_(torch.where(removed, away, left.to(local.dtype)))
        if is_known:
            self.optimizer.note(self.param)

    def release(self) -> None:
        """Let removed weights be weights like any other, which are 0 and whose u is 0."""
        mask = self.state.pop(MASK, None)
        if mask is not None and "dual" in self.state:
            get_local(self.state["dual"]).masked_fill_(~get_local(mask), 0.0)

    def _forget(self, is_new: Tensor) -> Tensor:
        """Set the u of these weights to 0; the weights as they are then.

        What is left of a group of coupled weights takes the u that keeps it where it is, up to
        rounding: with its old u it would have another image.
        """
        local, potential = self.local, find_potential(self.group)
        if potential.is_separable:
            get_local(self.state["dual"]).masked_fill_(is_new, 0.0)
            return local
        path = choose_path(self.group, local, self.param)
        follow_weights(self.group, self.param, self.state, potential, path)  # to what is written
        dual = get_local(self.state["dual"])
        left = potential.to_primal(widen(dual)).masked_fill(is_new, 0.0)  # wide, or it may be lost
        coupled = potential.find_coupled(is_new)
        dual.copy_(torch.where(coupled, potential.to_dual(left), dual))
        image = path.to_primal(open_state(dual, local), potential)
        return torch.where(coupled, add_center(image, self._open_center()), local)

    def _find_image(self) -> Tensor | None:
        """to_primal(u) of all weights that are here, where u goes on behind removed ones."""
        if not hides_weights(self.group) or "dual" not in self.state:
            return None
        path = choose_path(self.group, self.local, self.param)
        dual = open_state(get_local(self.state["dual"]), self.local)
        return path.to_primal(dual, find_potential(self.group))

    def _fade(self, was_removed: Tensor, removed: Tensor, threshold: float) -> None:
        """What becomes of the u of removed weights at a ranking; clipped ones may be returning."""
        dual = get_local(self.state["dual"])
        if self.group["removed"] == "decayed":
            dual.copy_(torch.where(removed, HALF * dual, dual))
        elif self.group["removed"] == "clipped":
            size = torch.tensor(threshold, dtype=dual.dtype, device=dual.device)
            limit = find_potential(self.group).to_dual(size)
            dual.copy_(torch.where(was_removed, dual.clamp(-limit, limit), dual))

    def _open_center(self) -> Tensor | None:
        return open_center(self.group, self.param, self.state)


def remove_compiled(members: Sequence[Member], count: int) -> bool:
    """Remove the smallest weights with compiled code; False, and nothing is done, if it cannot."""
    for member in members:
        group, local = member.group, member.local
        if (
            is_sharded(member.param)
            or not is_compilable(group, local)
            or local.dtype is not torch.float32
            or not local.is_contiguous()
            or group["center"]
            or hides_weights(group)
        ):
            return False
    if not has_numba():
        return False
    from mirrormargin.optim.compiled_ranking import remove_smallest  # imports Numba

    are_known = [member.optimizer.is_unwritten(member.param) for member in members]
    duals = [member.state.get("dual") for member in members]
    averages = [
        next((member.state[name] for name in AVERAGES if name in member.state), None)
        for member in members
    ]
    masks = [member.open_mask() for member in members]
    remove_smallest([member.local for member in members], masks, duals, averages, count)
    for member, is_known in zip(members, are_known, strict=True):
        if is_known:
            member.optimizer.note(member.param)
    return True
