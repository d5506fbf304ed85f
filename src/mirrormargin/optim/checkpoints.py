"""What an optimizer saves and loads: state in its own precision, refused unless it fits.

torch casts a loaded state to the dtype of the weights; u and the moments keep the dtype in which
they are kept. Options that earlier versions did not have stay as the optimizer was built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mirrormargin.arguments import show
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.centers import find_digests
from mirrormargin.optim.dual_state import adapt_state, as_step, find_kept_dtype, name_potential
from mirrormargin.optim.options import NEW

if TYPE_CHECKING:
    from mirrormargin.optim.mirror_optimizer import MirrorOptimizer

__all__ = ["check_saved", "leave_out_centers", "name_options", "restore"]

_Saved = dict[str, Any]
_OF_TORCH = {"differentiable"}  # which torch adds to the defaults of an optimizer that has loaded
_BEFORE_STEPS = {"center", "center_digest", "scale"}  # what a tensor may have that made no step
_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.bfloat16)}


def name_options(saved: _Saved) -> None:
    """Write a potential by its ``repr`` and a dtype by its name: no pickle is needed then."""
    for group in saved.get("param_groups", ()):
        if group["potential"] is not None:
            group["potential"] = repr(group["potential"])
        if group["state_dtype"] is not None:
            group["state_dtype"] = str(group["state_dtype"])


def leave_out_centers(saved: _Saved) -> None:
    """Leave out what the user has given and can give again; its digest stays."""
    for key, state in saved["state"].items():
        if "center_digest" in state:
            kept = {name: value for name, value in state.items() if name != "center"}
            saved["state"][key] = kept


def check_saved(optimizer: MirrorOptimizer, state_dict: Any) -> _Saved:
    """What is saved, completed by options that are new.

    Raises:
        OptimizerError: If it does not fit the optimizer.
    """
    groups = _check_structure(optimizer, state_dict)
    completed = []
    for number, (saved, own) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        missing = sorted(set(optimizer.defaults) - set(saved) - NEW.keys() - _OF_TORCH)
        if missing:
            raise OptimizerError(
                f"the saved group {number} has no {', '.join(missing)}: it was saved by "
                f"another optimizer than {type(optimizer).__name__}"
            )
        mine = None if own["potential"] is None else repr(own["potential"])
        if saved["potential"] != mine:
            raise OptimizerError(
                f"group {number} was saved with potential {saved['potential']}, this "
                f"optimizer has {mine}: build it with the saved one"
            )
        completed.append({**{name: own[name] for name in NEW.keys() & own.keys()}, **saved})
        completed[-1].update(potential=None, state_dtype=_read_dtype(completed[-1], number))
    states = {key: _drop_absent_center(state) for key, state in state_dict["state"].items()}
    for saved_id, param, number, index in _pair(optimizer, groups):
        label = optimizer._label(number, index)
        _check_state(optimizer, states.get(saved_id, {}), param, groups[number], label)
    return {**state_dict, "state": states, "param_groups": completed}


def _drop_absent_center(state: _Saved) -> _Saved:
    """Without the empty dictionary for what was left out, as torch makes it of a flat checkpoint.

    Pinned by ``hand_over`` in ``rank_centers``.
    """
    if not isinstance(state.get("center"), dict) or "center_digest" not in state:
        return state
    return {key: value for key, value in state.items() if key != "center"}


def _read_dtype(group: _Saved, number: int) -> torch.dtype | None:
    name = group["state_dtype"]
    if name is None or isinstance(name, torch.dtype):
        return name
    if isinstance(name, str) and name in _DTYPES:
        return _DTYPES[name]
    raise OptimizerError(
        f"the saved group {number} has the state_dtype {show(name)}: the checkpoint is damaged"
    )


def _pair(
    optimizer: MirrorOptimizer, groups: list[_Saved]
) -> Iterator[tuple[Any, Tensor, int, int]]:
    """The saved id of each parameter, the parameter, its group and its index there."""
    for number, (saved, group) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        for index, pair in enumerate(zip(saved["params"], group["params"], strict=True)):
            yield *pair, number, index


def _check_state(
    optimizer: MirrorOptimizer, state: _Saved, param: Tensor, group: _Saved, label: str
) -> None:
    has_stepped = bool(state.keys() - _BEFORE_STEPS)
    absent = sorted(set(optimizer._list_state(group)) - state.keys()) if has_stepped else []
    if absent:
        raise OptimizerError(
            f"the saved state of {label} has no {', '.join(absent)}: the checkpoint is damaged, or"
            " of another optimizer"
        )
    for key, value in state.items():
        is_number = isinstance(value, (int, float, str))
        if not is_number and not isinstance(value, Tensor):
            raise OptimizerError(
                f"the saved {key!r} of {label} is {show(value)}: the checkpoint is damaged"
            )
        if not is_number and _is_kept(key, value) and value.shape != param.shape:
            raise OptimizerError(
                f"the saved {key!r} of {label} has shape {tuple(value.shape)}, the parameter"
                f" {tuple(param.shape)}: the checkpoint belongs to another model"
            )
        if key == "step" and (isinstance(value, str) or (not is_number and value.numel() != 1)):
            raise OptimizerError(
                f"the saved 'step' of {label} is {show(value)}: the checkpoint is damaged"
            )


def restore(
    optimizer: MirrorOptimizer,
    saved: _Saved,
    potentials: list[Any],
    centers: Mapping[Tensor, Mapping[str, Any]],
) -> None:
    """Undo what torch has made of the saved options and states: it takes a string for a list.

    Args:
        optimizer: Into which a checkpoint was loaded.
        saved: What it holds.
        potentials: Of its groups.
        centers: The centre and the digest of those that the user has given before; one that the
            checkpoint holds is kept, for u belongs to it.
    """
    for group, potential in zip(optimizer.param_groups, potentials, strict=True):
        group["potential"] = potential
    for saved_id, param, number, _ in _pair(optimizer, saved["param_groups"]):
        found = saved["state"].get(saved_id)
        if not found:
            continue  # an empty state would stay behind where the parameter is replaced
        state, group = optimizer.state[param], optimizer.param_groups[number]
        for key, value in found.items():
            if _is_kept(key, value):
                state[key] = value.detach().clone()
                adapt_state(state, key, param, find_kept_dtype(key, group, param))
            elif key == "dual_of" and isinstance(value, str):  # as earlier versions wrote it
                state[key] = name_potential(value)
            elif key == "step":
                state[key] = as_step(value, param, group).clone().reshape(())
            else:
                state[key] = value
        given = centers.get(param)
        if given is None:
            continue
        known = state.get("center_digest")
        if known is None and "center" in state:
            [known] = find_digests([state["center"]], [param])
        if known in (None, given["center_digest"]):  # u of a copy that differs belongs to that
            state.update(given)


def _is_kept(key: str, value: Any) -> bool:
    """Whether a state entry is a tensor of the parameter's shape (``step`` is a count)."""
    return isinstance(value, Tensor) and key != "step"


def _check_structure(optimizer: MirrorOptimizer, state_dict: Any) -> list[_Saved]:
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
    own = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != own:
        raise OptimizerError(
            f"the saved groups have {sizes} parameters, this optimizer's {own}: the checkpoint"
            " belongs to another model"
        )
    return groups
