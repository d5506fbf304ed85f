"""What mirror optimizers share: checked options, and tensors sorted into batches.

A step is *captured* if ``torch.compile`` traces it, or if a group is ``capturable``: then it takes
the plain path and reads nothing back from the tensors. Everything that looks at values is done in
``_init_group``, which torch calls while it traces and leaves out of what it compiles.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.arguments import check_kind, read_items
from mirrormargin.errors import NonFiniteGradientError, OptimizerError
from mirrormargin.geometry import LpPotential
from mirrormargin.optim import checkpoints, options, plain
from mirrormargin.optim.centers import check_owners, list_given, set_centers
from mirrormargin.optim.dual_state import (
    find_potential,
    follow_weights,
    is_wide,
    keeps_dual,
    open_mask,
    stamp,
)
from mirrormargin.optim.first_step import Start, check_starts, find_initial_scales, find_kappa
from mirrormargin.optim.masks import MASK
from mirrormargin.optim.norms import find_bad_gradient
from mirrormargin.optim.paths import batch_key, choose_path
from mirrormargin.optim.shards import (
    find_entries,
    find_grad,
    get_local,
    is_sharded,
)
from mirrormargin.optim.stochastic_rounding import Rounding
from mirrormargin.optim.tensor_batch import AnyBatch, Batch, CapturedBatch

__all__ = ["MirrorOptimizer"]


class MirrorOptimizer(Optimizer):
    """Base class of :class:`MirrorDescent` and :class:`MirrorAdam`."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._given: dict[Tensor, dict[str, Any]] = {}  # centres of parameters without a state yet
        self._is_chosen: list[bool] = []  # of each group: whether its p was asked for
        self._is_begun = False
        if not isinstance(params, Tensor):  # torch says what to do with a single one
            allowed = (
                "model.parameters(), tensors, or groups as mirrormargin.mirror_groups makes them"
            )
            params = list(read_items("params", params, allowed, error=OptimizerError))
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.setdefault("_given", {})  # pickled by an earlier version
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in options.NEW.items():
                group.setdefault(name, value)  # pickled by an earlier version
        self._seen = {}  # unknown weights: compare them with the dual state before use
        # Unpickled groups are taken as meant; of loaded ones it is known.
        self.__dict__.setdefault("_is_chosen", [True] * len(self.param_groups))
        self._is_begun = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        hint = "with params and options"
        check_kind("param_group", param_group, dict, hint, error=OptimizerError)
        if "params" not in param_group:
            raise OptimizerError("param_group has no params: give those that it is for")
        params = param_group["params"]
        if not isinstance(params, Tensor):
            allowed = "tensors, such as model.parameters()"
            params = list(read_items("params", params, allowed, error=OptimizerError))
            param_group = {**param_group, "params": params}  # it may have been an iterator
        merged = {**self.defaults, **param_group}
        options.read_potential(merged)
        self._check_group(merged)
        options.check_params(merged)
        checked = ("p", "scale", "potential")
        super().add_param_group({**param_group, **{key: merged[key] for key in checked}})
        self._is_chosen.append("p" in param_group or "potential" in param_group)
        self._is_begun = False

    def _check_group(self, group: dict[str, Any], *, reads: bool = True) -> None:
        """Raise unless every option of the group can be used; ``reads=False`` reads no tensor."""
        options.check_options(group, reads)
        if group["capturable"]:
            self._refuse_capture(group)

    def _refuse_capture(self, group: dict[str, Any]) -> None:
        """Raise if the group's steps cannot be captured."""
        options.refuse_capture(group)

    def _collect(self) -> Sequence[AnyBatch]:
        """All tensors that have a gradient, in batches."""
        if torch.compiler.is_compiling() or any(g["capturable"] for g in self.param_groups):
            return self._make_captured_batches()
        return self._make_batches()

    def _make_captured_batches(self) -> list[CapturedBatch]:
        batches, traced = [], torch.compiler.is_compiling()
        for number, group in enumerate(self.param_groups):
            for wide in (True, False):  # those without a dual, perhaps, and those with one
                params: list[Tensor] = []
                owners: list[Tensor] = []
                grads: list[Tensor] = []
                states: list[Tensor] = []
                kappas: list[float] = []
                numbers: list[int] = []
                self._init_group(
                    group, wide, traced, params, owners, grads, states, kappas, numbers
                )
                if not params:
                    continue
                own = group["potential"]
                potential = LpPotential(group["p"]) if own is None else own
                names = self._list_tensors(group)
                names = ("center", *names) if group["center"] else names
                names = ("dual", *names) if keeps_dual(group, params[0]) else names
                names = (*names, MASK) if group.get("removed") else names
                batch = CapturedBatch(
                    group, number, potential, params, owners, grads, kappas, numbers, states, names
                )
                batches.append(batch)
        return batches

    @torch.no_grad()
    def _init_group(
        self,
        group: dict[str, Any],
        wide: bool,
        traced: bool,
        params: list[Tensor],
        owners: list[Tensor],
        grads: list[Tensor],
        states: list[Tensor],
        kappas: list[float],
        numbers: list[int],
    ) -> None:
        """Fill the lists with what a captured step of the group needs."""
        number = next(i for i, one in enumerate(self.param_groups) if one is group)
        reads = not group["capturable"]
        self._check_group(group, reads=reads)
        self._refuse_capture(group)
        if any(map(is_sharded, group["params"])):
            options.refuse_captured_shards(group, traced)
        if reads:
            self._begin()
        self._find_scales(number)
        batch = Batch(group, number, plain, find_potential(group), self._seen)
        before = sum(len(one["params"]) for one in self.param_groups[:number])
        for index, param in enumerate(group["params"]):
            if param.grad is not None and is_wide(param) == wide:
                self._add(batch, index, param, get_local(param), before, reads=reads)
        if batch.params:
            params += batch.params
            owners += batch.owners
            grads += batch.grads
            kappas += batch.kappas
            numbers += batch.numbers
            states += batch.duals or ()
            states += batch.centers or ()
            for name in self._list_tensors(group):
                states += batch.steps if name == "step" else batch.tensors(name)
            if group.get("removed"):
                found = [open_mask(*one) for one in zip(batch.owners, batch.states, strict=True)]
                whole = torch.ones((), dtype=torch.bool, device=batch.params[0].device)
                states += [whole if mask is None else mask for mask in found]

    def _make_batches(self) -> list[Batch]:
        """Sort all tensors that have a gradient into batches; check all of them, step none."""
        for group in self.param_groups:
            self._check_group(group)  # options edited by hand are refused before any step
        self._begin()
        self._find_scales()
        batches: list[Batch] = []
        before = 0
        for number, group in enumerate(self.param_groups):
            found: dict[Hashable, Batch] = {}
            # Within a group, the type and dtype of contiguous CPU tensors decide which path steps
            # them. Choosing it for each of many small tensors would take as long as their step.
            alike: dict[Hashable, Batch] = {}
            for index, param in enumerate(group["params"]):
                if param.grad is None:
                    continue
                local = get_local(param)
                is_usual = local.is_cpu and local.is_contiguous()
                if local is not param:
                    is_usual = is_usual and param.is_contiguous()
                kind = (type(local), local.dtype) if is_usual else None
                batch = alike.get(kind)
                if batch is None:
                    path = choose_path(group, local, param)
                    key = batch_key(path, param)
                    if key not in found:
                        found[key] = Batch(group, number, path, find_potential(group), self._seen)
                    batch = found[key]
                    if kind is not None:
                        alike[kind] = batch
                self._add(batch, index, param, local, before)
            batches += found.values()
            before += len(group["params"])
        return batches

    def _add(
        self,
        batch: Batch,
        index: int,
        param: Any,
        local: Tensor,
        before: int,
        *,
        reads: bool = True,
    ) -> None:
        """Add a tensor of the batch's group; ``before`` is how many earlier groups have."""
        group, number = batch.group, batch.number
        grad = param.grad
        if local is not param or is_sharded(grad):
            grad = find_grad(param, self._label(number, index))
        if grad.layout is not torch.strided:
            raise OptimizerError(
                f"{self._label(number, index)} has a sparse gradient, which "
                f"{type(self).__name__} does not take: use sparse=False in the embedding "
                "(rows with zero gradient are left untouched anyway)"
            )
        state = self.state[param]
        if self._given:
            self._take_center(param, state)
        kappa = 1.0 if group["scale"] is None else self._find_kappa(number, index, state, reads)
        batch.add(param, local, grad, state, kappa, before + index)

    def _take_center(self, param: Tensor, state: dict[str, Any]) -> None:
        """Move a centre that was given before there was a state into it."""
        found = self._given.pop(param, None)
        if found is not None and "center" not in state:
            state.update(found)

    def _list_params(self) -> Iterator[tuple[int, int, dict[str, Any], Tensor]]:
        """Group number, index there, group and parameter, of all that have a gradient."""
        for number, group in enumerate(self.param_groups):
            for index, param in enumerate(group["params"]):
                if param.grad is not None:
                    yield number, index, group, param

    def _begin(self) -> None:
        """Look at the weights before the first step."""
        if not self._is_begun:
            check_owners(self.param_groups, self._given)
            check_starts([self._describe_start(*one) for one in self._list_params()])
            self._is_begun = True

    def _label(self, group: int, index: int) -> str:
        names = self.param_groups[group].get("param_names")
        return f"parameter {names[index]!r}" if names else f"parameter {index} of group {group}"

    @torch.no_grad()
    def _is_admitted(self, batches: Sequence[AnyBatch]) -> bool:
        """Whether to step at all, by the groups' policy on nan and inf in gradients."""
        bad = find_bad_gradient(batches)
        if bad is None:
            return True
        batch, owner = bad
        if batch.group["nonfinite"] == "skip":
            return False
        index = next(i for i, p in enumerate(batch.group["params"]) if p is owner)
        raise NonFiniteGradientError(
            f"the gradient of {self._label(batch.number, index)} holds nan or inf; no "
            'parameter was changed. Lower lr or clip gradients; nonfinite="skip" skips '
            "such steps"
        )

    def _describe_start(
        self, number: int, index: int, group: dict[str, Any], param: Tensor
    ) -> Start:
        state = self.state.get(param, {})
        return Start(
            label=self._label(number, index),
            group=group,
            param=param,
            is_chosen=self._is_chosen[number],
            is_new=not state,
            lacks_center=group["center"] and "center_digest" in state and "center" not in state,
        )

    def _find_scales(self, only: int | None = None) -> None:
        """Note the root mean square of tensors that are new, in groups with scale="rms"."""
        if all(group["scale"] != "rms" for group in self.param_groups):
            return
        new = {
            param: self._label(number, index)
            for number, index, group, param in self._list_params()
            if group["scale"] == "rms" and "scale" not in self.state[param]
            if only is None or number == only
        }
        exponents = {param: group["p"] for *_, group, param in self._list_params()}
        starts = [(label, exponents[param], param) for param, label in new.items()]
        for param, rms in zip(new, find_initial_scales(starts), strict=True):
            self.state[param]["scale"] = rms

    def _find_kappa(
        self, number: int, index: int, state: dict[str, Any], reads: bool = True
    ) -> float:
        """The factor of the scaled potential kappa * psi_p."""
        group = self.param_groups[number]
        label = self._label(number, index)
        return find_kappa(group, group["params"][index], state, label, reads=reads)

    def _find_options(self, batch: AnyBatch) -> dict[str, Any]:
        """The options of a path that only some groups have."""
        options: dict[str, Any] = {}
        if batch.group["center"]:
            options["centers"] = batch.centers
        if batch.masks is not None:
            options["masks"] = batch.masks
        if batch.group["state_dtype"] is torch.bfloat16:
            entries = [find_entries(owner) for owner in batch.owners]
            options["rounding"] = Rounding(batch.numbers, batch.steps, entries)
        return options

    def _remember(self, batches: Sequence[AnyBatch]) -> None:
        """Note what the weights are after a step, to notice when someone else writes to them."""
        if torch.compiler.is_compiling():
            return
        self._seen = {
            id(owner): stamp(owner)
            for batch in batches
            if batch.duals is not None
            for owner in batch.owners
        }

    def is_unwritten(self, param: Tensor) -> bool:
        """Whether nobody has written to the weights since the last step."""
        return self._seen.get(id(param)) == stamp(param)

    def note(self, param: Tensor) -> None:
        """Take the weights for the image of their state, of which both have been changed."""
        self._seen[id(param)] = stamp(param)

    @torch.no_grad()
    def resync(self) -> None:
        """Make the dual state follow weights that were changed behind torch's back.

        In-place operations, ``load_state_dict``, ``nn.init`` and a new ``param.data`` are noticed
        without it; writes into ``param.data``, NumPy views or from other processes are not.
        Compiled steps and replayed graphs notice nothing: call it after every edit.
        """
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if "dual" in state:
                    path = choose_path(group, get_local(param), param)
                    follow_weights(group, param, state, find_potential(group), path)

    @torch.no_grad()
    def center_at(self, weights: Any) -> None:
        """Centre groups with ``center=True`` at given weights, which are not copied.

        Without it the weights of the first step are copied, and checkpoints hold the copy. Given
        ones, such as those of a file mapped into memory, cost nothing, and checkpoints hold a
        digest of them: call this again before or after loading one.

        Args:
            weights: A module, or a mapping, with the names that the parameters have in the
                optimizer, or a tensor for each of them. They must not change afterwards.

        Raises:
            OptimizerError: If one is missing or does not fit, or u belongs to another centre.
        """
        set_centers(self, self._given, weights)
        self._seen = {}

    def state_dict(self) -> dict[str, Any]:
        """As in torch, without pickles: of a potential the ``repr``, of given centres a digest."""
        saved = super().state_dict()
        checkpoints.name_options(saved)
        checkpoints.leave_out_centers(saved)
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch, but states keep their dtype: u and the moments stay float32 under bfloat16.

        Raises:
            OptimizerError: If a saved tensor or potential does not fit; nothing is changed then.
        """
        hint = "as state_dict() of such an optimizer returned"
        check_kind("state_dict", state_dict, dict, hint, error=OptimizerError)
        potentials = [group["potential"] for group in self.param_groups]
        given_centers = self._given | list_given(self.state)
        saved: dict[str, Any] = {}

        def check(_: Optimizer, given: dict[str, Any]) -> dict[str, Any]:
            saved.update(checkpoints.check_saved(self, given))
            return saved

        def finish(_: Optimizer) -> None:
            checkpoints.restore(self, saved, potentials, given_centers)
            self._given = {p: own for p, own in given_centers.items() if not self.state.get(p)}

        # What a user's hooks make of the checkpoint is checked, and they see what was restored.
        first = self.register_load_state_dict_pre_hook(check)
        last = self.register_load_state_dict_post_hook(finish, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            first.remove()
            last.remove()
        self._seen = {}

    def _list_state(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """What is kept of every tensor that has made a step, besides the dual state."""
        return ()

    def _list_tensors(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The state tensors that the next step uses, besides the dual state."""
        return self._list_state(group)
