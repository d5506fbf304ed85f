"""The tensors that one call of a path steps together, with the state that is kept of them.

Of a parameter that is spread over processes (a DTensor), a batch has the part that is here, and the
state is kept as a DTensor, so that checkpoints know its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mirrormargin.geometry import Potential
from mirrormargin.optim import plain
from mirrormargin.optim.dual_state import (
    adapt_state,
    as_step,
    find_preimage,
    follow_weights,
    keeps_dual,
    kept_dtype,
    lay_out_like,
    name_geometry,
    open_center,
    open_mask,
    stamp,
)
from mirrormargin.optim.masks import MASK, forgets_weights, hides_weights
from mirrormargin.optim.paths import TORCH_PATHS, Path
from mirrormargin.optim.shards import get_local, wrap_like

__all__ = ["AnyBatch", "Batch", "CapturedBatch"]

_Group = dict[str, Any]
_State = dict[str, Any]
_Stamp = tuple[int, int]


@dataclass(eq=False)
class Batch:
    """Tensors of one parameter group that one call of a path steps together.

    Attributes:
        group: The options of the tensors' parameter group.
        number: The index of that group.
        path: The module that steps the tensors.
        potential: The group's potential without its scale, which acts through ``kappas``.
        seen: What :func:`stamp` said of each tensor, by its id, after the last step.
        params: The weights w; of a parameter spread over processes the part that is here.
        owners: The parameters themselves.
        grads: Their gradients g, in the dtype and layout that the path needs.
        states: What the optimizer keeps of each tensor.
        kappas: The scaled potential is kappa * psi, so a step lr there is a step lr / kappa in u.
        numbers: The index of each tensor in the optimizer.
        held: Masks of those tensors of which removed weights stand still, None for the others.
    """

    is_captured = False

    group: _Group
    number: int
    path: Path
    potential: Potential
    seen: dict[int, _Stamp]
    params: list[Tensor] = field(default_factory=list)
    owners: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    states: list[_State] = field(default_factory=list)
    kappas: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    held: list[Tensor | None] = field(default_factory=list)

    def add(
        self,
        owner: Tensor,
        param: Tensor,
        grad: Tensor,
        state: _State,
        kappa: float,
        number: int,
    ) -> None:
        mask = open_mask(owner, state) if forgets_weights(self.group) else None
        if mask is not None and not self._takes_masks:
            grad = grad.where(mask, 0.0)
        self.held.append(mask)
        self.params.append(param)
        self.owners.append(owner)
        dtype = self._grad_dtype
        if dtype is not None:
            if grad.dtype is not dtype or grad.is_neg():
                grad = grad.to(dtype).resolve_neg()
            if not (grad.is_contiguous() and param.is_contiguous()):
                grad = lay_out_like(grad, param)
        self.grads.append(grad)
        self.states.append(state)
        self.kappas.append(kappa)
        self.numbers.append(number)

    @cached_property
    def _takes_masks(self) -> bool:
        """Whether the path holds removed weights still, and nobody else reads their gradients."""
        group = self.group
        is_read = group["clip"] is not None or group["caution"]
        is_read = is_read or group.get("step_rule", "constant") != "constant"
        return self.path.takes_masks and not is_read

    @property
    def masks(self) -> list[Tensor | None] | None:
        """For a path that takes them; None where there is nothing to hold still."""
        has_any = any(mask is not None for mask in self.held)
        return self.held if has_any and self._takes_masks else None

    def hide(self) -> None:
        """Write 0, or the centre, over removed weights whose u goes on."""
        if not hides_weights(self.group):
            return
        centers: Any = self.centers or [None] * len(self.params)
        for param, owner, state, center in zip(
            self.params, self.owners, self.states, centers, strict=True
        ):
            mask = open_mask(owner, state)
            if mask is not None:
                param.copy_(torch.where(mask, param, 0.0 if center is None else center))

    @cached_property
    def _grad_dtype(self) -> torch.dtype | None:
        """The dtype of gradients for a path that reads memory by address; None for the others."""
        if self.path in TORCH_PATHS:
            return None
        return self.params[0].dtype

    def tensors(self, key: str) -> list[Tensor]:
        """The state tensors of this name, zero where they are new."""
        tensors = []
        for owner, state, dtype in zip(self.owners, self.states, self._dtypes, strict=True):
            if key not in state:
                new = torch.zeros_like(get_local(owner), dtype=dtype, requires_grad=False)
                state[key] = wrap_like(new, owner)
            tensors.append(adapt_state(state, key, owner, dtype))
        return tensors

    @cached_property
    def _dtypes(self) -> list[torch.dtype]:
        return [kept_dtype(self.group, param) for param in self.params]

    @cached_property
    def steps(self) -> list[Tensor]:
        """How many steps each tensor has made, in the form that torch's AdamW keeps."""
        for param, state in zip(self.params, self.states, strict=True):
            step = state.get("step", 0.0)
            if self.group["capturable"] or not isinstance(step, Tensor) or not step.is_cpu:
                state["step"] = as_step(step, param, self.group)
        return [state["step"] for state in self.states]

    def count_step(self) -> None:
        one = torch.ones(())  # adding a number would make such a tensor for each count
        torch._foreach_add_(self.steps, one, alpha=1.0)  # pyright: ignore[reportPrivateImportUsage]

    @cached_property
    def duals(self) -> list[Tensor] | None:
        """The u of each tensor, following its weights; None where u is computed from w."""
        name = name_geometry(self.group)
        if not keeps_dual(self.group, self.params[0]):
            for state in self.states:
                if "dual" in state:
                    for key in ("dual", "dual_of", "center", "center_digest"):
                        state.pop(key, None)
            return None
        duals = []
        for owner, state, dtype in zip(self.owners, self.states, self._dtypes, strict=True):
            if "dual" not in state or state.get("dual_of") != name:
                center = open_center(self.group, owner, state)
                dual = find_preimage(get_local(owner), center, self.potential, self.path)
                state["dual"], state["dual_of"] = wrap_like(dual.to(dtype), owner), name
            elif self.seen.get(id(owner)) != stamp(owner):
                follow_weights(self.group, owner, state, self.potential, self.path)
            duals.append(adapt_state(state, "dual", owner, dtype))
        return duals

    @property
    def centers(self) -> list[Tensor] | None:
        """The c of each tensor; None where u belongs to the weights themselves."""
        if not self.group["center"]:
            return None
        pairs = zip(self.owners, self.states, strict=True)
        found = [open_center(self.group, owner, state) for owner, state in pairs]
        return [center for center in found if center is not None]


class CapturedBatch:
    """The same for a step that ``torch.compile`` traces: tensors instead of what they are kept in.

    Args:
        states: All state tensors, those of the first name in ``names`` first.
        names: Their names.
    """

    is_captured = True
    path: Path = plain

    def __init__(
        self,
        group: _Group,
        number: int,
        potential: Potential,
        params: list[Tensor],
        owners: list[Tensor],
        grads: list[Tensor],
        kappas: list[float],
        numbers: list[int],
        states: list[Tensor],
        names: tuple[str, ...],
    ) -> None:
        self.group, self.number, self.potential = group, number, potential
        self.params, self.owners, self.grads = params, owners, grads
        self.kappas, self.numbers = kappas, numbers
        num = len(params)
        self._states = {name: states[i * num : (i + 1) * num] for i, name in enumerate(names)}
        self.steps = self._states.get("step", [])
        self.duals, self.centers = self._states.get("dual"), self._states.get("center")
        self.masks, self.held = None, []
        self._kept = self._states.get(MASK)
        if self._kept is not None and forgets_weights(group):
            pairs = zip(grads, self._kept, strict=True)
            self.grads = [grad.where(mask, 0.0) for grad, mask in pairs]
            self.held = [mask if mask.ndim else None for mask in self._kept]

    def hide(self) -> None:
        if self._kept is None or not hides_weights(self.group):
            return
        centers: Any = self.centers or [0.0] * len(self.params)
        for param, mask, center in zip(self.params, self._kept, centers, strict=True):
            param.copy_(torch.where(mask, param, center))

    def count_step(self) -> None:
        for step in self.steps:
            step.add_(1.0)

    def tensors(self, key: str) -> list[Tensor]:
        return self._states[key]


AnyBatch = Batch | CapturedBatch
