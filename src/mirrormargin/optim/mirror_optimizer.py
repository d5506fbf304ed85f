"""What mirror optimizers share: checked options, batches of tensors, and checkpoints."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.arguments import (
    check_choice,
    check_exponent,
    check_flag,
    check_kind,
    check_number,
    read_items,
    show,
)
from mirrormargin.errors import MirrorMarginWarning, NonFiniteGradientError, OptimizerError
from mirrormargin.geometry import LpPotential, Potential
from mirrormargin.geometry.compiler import require_numba
from mirrormargin.geometry.lp import check_scale
from mirrormargin.optim.groups import find_largest, is_zero
from mirrormargin.optim.plain import state_dtype
from mirrormargin.optim.tensor_batch import (
    Batch,
    adapt_state,
    batch_key,
    choose_path,
    follow_weights,
    is_compilable,
    stamp,
)

__all__ = ["MirrorOptimizer", "NonFinite", "select_options"]

NonFinite = Literal["propagate", "raise", "skip"]
FLAT = 1.5  # below this exponent a tensor that starts at 0 takes ages: w = u^2 is the last to move


class MirrorOptimizer(Optimizer):
    """Base class of :class:`MirrorDescent` and :class:`MirrorAdam`."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._is_chosen: list[bool] = []  # of each group: whether its p was asked for
        self._is_begun = False
        if not isinstance(params, Tensor):  # torch says what to do with a single one
            allowed = (
                "model.parameters(), a list of tensors, or groups as mirrormargin.mirror_groups"
                " makes them"
            )
            params = list(read_items("params", params, allowed, error=OptimizerError))
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seen = {}  # unknown weights: compare them with the dual state before use
        self._is_chosen = [True] * len(self.param_groups)
        self._is_begun = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        check_kind(
            "param_group", param_group, dict, "with params and options", error=OptimizerError
        )
        if "params" not in param_group:
            raise OptimizerError("param_group has no params: give those that it is for")
        params = param_group["params"]
        if not isinstance(params, Tensor):
            allowed = "tensors, such as model.parameters()"
            params = list(read_items("params", params, allowed, error=OptimizerError))
            param_group = {**param_group, "params": params}  # it may have been an iterator
        merged = {**self.defaults, **param_group}
        potential = merged["potential"]
        if isinstance(potential, LpPotential):
            agrees = merged["p"] in (2.0, potential.p)
            if not agrees or merged["scale"] not in (None, potential.scale):
                raise OptimizerError(
                    f"p={merged['p']!r} and scale={merged['scale']!r} contradict {potential!r}: "
                    "give one or the other"
                )
            merged.update(p=potential.p, scale=potential.scale, potential=None)
        self._check_group(merged)
        self._check_params(merged)
        checked = ("p", "scale", "potential")
        super().add_param_group({**param_group, **{key: merged[key] for key in checked}})
        self._is_chosen.append("p" in param_group or "potential" in param_group)
        self._is_begun = False

    def _check_group(self, group: dict[str, Any]) -> None:
        """Raise unless every option of the group can be used."""
        group["p"] = check_exponent(group["p"], error=OptimizerError)
        group["scale"] = check_scale(group["scale"], error=OptimizerError)
        check_number("lr", group["lr"], least=0.0, error=OptimizerError)
        check_number("weight_decay", group["weight_decay"], least=0.0, error=OptimizerError)
        check_choice("nonfinite", group["nonfinite"], get_args(NonFinite), error=OptimizerError)
        check_flag("maximize", group["maximize"], error=OptimizerError)
        for name in ("foreach", "fused"):
            if group[name] is not None:
                check_flag(name, group[name], hint="or None", error=OptimizerError)
        if group["foreach"] and group["fused"]:
            raise OptimizerError("foreach and fused are both True: choose one path")
        potential = group["potential"]
        if potential is None:
            return
        if not isinstance(potential, Potential):
            raise OptimizerError(f"potential is {show(potential)}: give a Potential, or None")
        if group["scale"] is not None or group["p"] != 2.0:
            raise OptimizerError(
                f"p and scale belong to the lp potential; with {potential!r} leave them out"
            )

    def _check_params(self, group: dict[str, Any]) -> None:
        for index, param in enumerate(_tensors_of(group["params"])):
            if param.is_complex() or not param.is_floating_point():
                raise OptimizerError(
                    f"parameter {index} has dtype {param.dtype}: only real floating-point "
                    "parameters can be trained; pass view_as_real(...) of complex ones"
                )
            if group["fused"]:
                require_numba("fused=True")
            if group["fused"] and not is_compilable(group, param):
                raise OptimizerError(
                    f"fused=True needs dense float32 CPU tensors and the lp potential; parameter "
                    f"{index} is {param.dtype} on {param.device}: use fused=None to let each "
                    "tensor take the fastest path it has"
                )

    def _make_batches(self) -> list[Batch]:
        """Sort all tensors that have a gradient into batches; check all of them, step none."""
        for group in self.param_groups:
            self._check_group(group)  # options edited by hand are refused before any step
        if not self._is_begun:
            self._refuse_vast_weights()
            self._warn_of_flat_starts()
            self._is_begun = True
        batches: list[Batch] = []
        for number, group in enumerate(self.param_groups):
            found: dict[Hashable, Batch] = {}
            for index, param in enumerate(group["params"]):
                grad = param.grad
                if grad is None:
                    continue
                if grad.layout is not torch.strided:
                    raise OptimizerError(
                        f"{self._label(number, index)} has a sparse gradient, which "
                        f"{type(self).__name__} does not take: use sparse=False in the embedding "
                        "(rows with zero gradient are left untouched anyway)"
                    )
                path = choose_path(group, param)
                key = batch_key(path, param)
                if key not in found:
                    found[key] = Batch(group, number, path, _potential(group), self._seen)
                state = self.state[param]
                kappa = 1.0 if group["scale"] is None else self._find_kappa(number, index, state)
                found[key].add(param, grad, state, kappa)
            batches += found.values()
        return batches

    def _refuse_vast_weights(self) -> None:
        """Raise, before the first step, if |w|^(p-1) overflows: that weight would never move."""
        for number, group in enumerate(self.param_groups):
            if group["potential"] is not None or group["p"] <= 2:
                continue
            for index, param in enumerate(group["params"]):
                limits = torch.finfo(state_dtype(param))
                largest = find_largest(param) if param.grad is not None else 0.0
                if limits.max ** (1 / (group["p"] - 1)) < largest < math.inf:
                    raise OptimizerError(
                        f"{self._label(number, index)} holds a weight of size {largest:.3g}, whose"
                        f" |w|^(p-1) at p = {group['p']:g} {limits.dtype} cannot hold: use a"
                        " smaller p, or float64 parameters"
                    )

    def _warn_of_flat_starts(self) -> None:
        """Warn, before the first step, of tensors that are 0 where the map from u to w is flat.

        Whoever gives p to a group by itself has chosen its tensors, and is not warned.
        """
        flat = [
            self._label(number, index)
            for number, group in enumerate(self.param_groups)
            if not self._is_chosen[number] and group["potential"] is None and group["p"] < FLAT
            for index, param in enumerate(group["params"])
            if param.grad is not None and not self.state.get(param) and is_zero(param)
        ]
        if flat:
            p = min(group["p"] for group in self.param_groups)
            more = f" and {len(flat) - 3} more" if len(flat) > 3 else ""
            warnings.warn(
                f"{', '.join(flat[:3])}{more} start{'s' * (len(flat) == 1)} at 0, where near"
                f" p = 1 a weight hardly moves (w = u^{1 / (p - 1):.3g}): give"
                " mirrormargin.mirror_groups(model, p), which trains them at p = 2, instead of"
                " model.parameters()",
                MirrorMarginWarning,
                stacklevel=6,  # the caller of step, which torch has wrapped twice
            )

    def _label(self, group: int, index: int) -> str:
        names = self.param_groups[group].get("param_names")
        return f"parameter {names[index]!r}" if names else f"parameter {index} of group {group}"

    @torch.no_grad()
    def _is_admitted(self, batches: list[Batch]) -> bool:
        """Whether to step at all, by the groups' policy on nan and inf in gradients."""
        for batch in batches:
            if batch.group["nonfinite"] == "propagate":
                continue
            for param, grad in zip(batch.params, batch.grads, strict=True):
                if bool(grad.isfinite().all()):
                    continue
                if batch.group["nonfinite"] == "skip":
                    return False
                index = next(i for i, p in enumerate(batch.group["params"]) if p is param)
                raise NonFiniteGradientError(
                    f"the gradient of {self._label(batch.number, index)} holds nan or inf; no "
                    'parameter was changed. Lower lr or clip gradients; nonfinite="skip" skips '
                    "such steps"
                )
        return True

    def _find_kappa(self, number: int, index: int, state: dict[str, Any]) -> float:
        """The factor of the scaled potential kappa * psi_p."""
        group = self.param_groups[number]
        scale: Any
        param, scale, lr = group["params"][index], group["scale"], float(group["lr"])
        if scale == "rms":
            if "scale" not in state:
                if is_zero(param):
                    raise OptimizerError(
                        f'scale="rms" is not known for {self._label(number, index)}, which starts'
                        " at 0: train it at p = 2 (mirrormargin.mirror_groups sorts parameters"
                        " so), or give a number as scale"
                    )
                state["scale"] = LpPotential(group["p"], "rms").bind(param).scale
            scale = state["scale"]
        kappa = LpPotential(group["p"], scale).factor
        limits = torch.finfo(state_dtype(param))
        if lr > 0 and not limits.tiny <= lr / max(kappa, limits.tiny) <= limits.max:
            raise OptimizerError(
                f"scale={scale:.3g} at p={group['p']} makes lr a step of {lr / kappa:.1e} in "
                f"|w|^(p-1) for {self._label(number, index)}, which {limits.dtype} cannot hold: "
                "use a smaller p, or float64 parameters"
            )
        return kappa

    def _remember(self, batches: list[Batch]) -> None:
        """Note what the weights are after a step, to notice when someone else writes to them."""
        self._seen = {
            id(param): stamp(param)
            for batch in batches
            if batch.duals is not None
            for param in batch.params
        }

    @torch.no_grad()
    def resync(self) -> None:
        """Make the dual state follow weights that were changed behind torch's back.

        In-place operations, ``load_state_dict``, ``nn.init`` and a new ``param.data`` are noticed
        without it; writes into ``param.data``, NumPy views or from other processes are not.
        """
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if "dual" in state:
                    follow_weights(param, state, _potential(group), choose_path(group, param))

    def state_dict(self) -> dict[str, Any]:
        """As in torch; a potential is stored by its ``repr``, so that no pickle is needed."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            if group["potential"] is not None:
                group["potential"] = repr(group["potential"])
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch, but states keep their dtype: u and the moments stay float32 under bfloat16.

        Raises:
            OptimizerError: If a saved tensor or potential does not fit; nothing is changed then.
        """
        groups = self._check_structure(state_dict)
        pairs = [
            (saved_id, param, number, index)
            for number, (saved, group) in enumerate(zip(groups, self.param_groups, strict=False))
            for index, (saved_id, param) in enumerate(
                zip(saved["params"], group["params"], strict=False)
            )
        ]
        for number, saved in enumerate(groups):
            missing = sorted(set(self.defaults) - set(saved))
            if missing:
                raise OptimizerError(
                    f"the saved group {number} has no {', '.join(missing)}: it was saved by "
                    f"another optimizer than {type(self).__name__}"
                )
        for saved_id, param, number, index in pairs:
            state = state_dict["state"].get(saved_id, {})
            absent = sorted(set(self._list_state(groups[number])) - state.keys()) if state else []
            if absent:
                raise OptimizerError(
                    f"the saved state of {self._label(number, index)} has no"
                    f" {', '.join(absent)}: the checkpoint is damaged, or of another optimizer"
                )
            for key, value in state.items():
                is_number = isinstance(value, (int, float, str))
                if not is_number and not isinstance(value, Tensor):
                    raise OptimizerError(
                        f"the saved {key!r} of {self._label(number, index)} is {show(value)}: the"
                        " checkpoint is damaged"
                    )
                if not is_number and _is_kept(key, value) and value.shape != param.shape:
                    raise OptimizerError(
                        f"the saved {key!r} of {self._label(number, index)} has shape "
                        f"{tuple(value.shape)}, the parameter {tuple(param.shape)}: the "
                        "checkpoint belongs to another model"
                    )
        potentials = [group["potential"] for group in self.param_groups]
        for number, (saved, own) in enumerate(zip(groups, potentials, strict=False)):
            mine = None if own is None else repr(own)
            if saved.get("potential") != mine:
                raise OptimizerError(
                    f"group {number} was saved with potential {saved.get('potential')}, this "
                    f"optimizer has {mine}: build it with the saved one"
                )
        super().load_state_dict(state_dict)
        for group, potential in zip(self.param_groups, potentials, strict=True):
            group["potential"] = potential
        # torch casts states to the dtype of the weights, and takes a string for a list.
        for saved_id, param, _, _ in pairs:
            state = self.state[param]
            for key, value in state_dict["state"].get(saved_id, {}).items():
                if _is_kept(key, value):
                    state[key] = value.detach().clone()
                    adapt_state(state, key, param)
                else:
                    state[key] = value
        self._seen = {}

    def _list_state(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """What is kept of every tensor that has made a step, besides the dual state."""
        return ()

    def _check_structure(self, state_dict: Any) -> list[dict[str, Any]]:
        """The saved groups, once they are as many, and as long, as those of this optimizer."""
        try:
            groups, states = state_dict["param_groups"], state_dict["state"]
            sizes = [len(group["params"]) for group in groups]
            for state in states.values():
                state.keys()  # raises unless it is a dictionary
        except Exception:  # anything may be given
            raise OptimizerError(
                f"state_dict is {show(state_dict)}: give what state_dict() of such an optimizer"
                " returned"
            ) from None
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise OptimizerError(
                f"the saved groups have {sizes} parameters, this optimizer's {own}: the checkpoint"
                " belongs to another model"
            )
        return groups


def select_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among the ``locals()`` of an optimizer's constructor: torch's ``defaults``."""
    others = ("self", "params", "__class__")
    return {name: value for name, value in arguments.items() if name not in others}


def _potential(group: dict[str, Any]) -> Potential:
    """The group's potential without its scale, which acts through the learning rate."""
    return group["potential"] if group["potential"] is not None else _lp(group["p"])


@lru_cache(maxsize=64)
def _lp(p: float) -> LpPotential:
    return LpPotential(p)


def _is_kept(key: str, value: Any) -> bool:
    """Whether a state entry is a tensor of the parameter's shape (``step`` is a count)."""
    return isinstance(value, Tensor) and key != "step"


def _tensors_of(params: Any) -> Iterator[Tensor]:
    if isinstance(params, Tensor):
        yield params
    elif isinstance(params, (list, tuple)):
        for entry in params:
            tensor = entry[1] if isinstance(entry, tuple) else entry
            if isinstance(tensor, Tensor):  # anything else is for torch to refuse
                yield tensor
