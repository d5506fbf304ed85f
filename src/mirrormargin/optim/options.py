"""The options of mirror optimizers: their types, and the errors for those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mirrormargin.arguments import check_choice, check_exponent, check_flag, check_number, show
from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import LpPotential, Potential
from mirrormargin.geometry.compiler import require_numba
from mirrormargin.geometry.lp import check_scale
from mirrormargin.optim.paths import is_compilable, is_for_triton
from mirrormargin.optim.shards import get_local

__all__ = [
    "NEW",
    "NonFinite",
    "NormOver",
    "check_options",
    "check_params",
    "read_potential",
    "refuse_capture",
    "refuse_captured_shards",
    "select_options",
]

NonFinite = Literal["propagate", "raise", "skip"]
NormOver = Literal["tensor", "group"]
# What the first version 0.1.0 did not have: neither do its checkpoints.
NEW = {
    "capturable": False,
    "caution": False,
    "center": False,
    "clip": None,
    "loss_over": None,
    "norm_over": "tensor",
    "state_dtype": None,
}


def select_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among the ``locals()`` of an optimizer's constructor: torch's ``defaults``."""
    others = ("self", "params", "__class__")
    return {name: value for name, value in arguments.items() if name not in others}


def read_potential(group: dict[str, Any]) -> None:
    """Take p and scale out of an lp potential, in place.

    Raises:
        OptimizerError: If they are given besides, and differ.
    """
    potential = group["potential"]
    if isinstance(potential, LpPotential):
        agrees = group["p"] in (2.0, potential.p)
        if not agrees or group["scale"] not in (None, potential.scale):
            raise OptimizerError(
                f"p={group['p']!r} and scale={group['scale']!r} contradict {potential!r}: "
                "give one or the other"
            )
        group.update(p=potential.p, scale=potential.scale, potential=None)


def check_options(group: dict[str, Any], reads: bool) -> None:
    """Raise unless the options that both optimizers have can be used.

    Args:
        group: A parameter group; p and scale become floats.
        reads: Whether to look into an lr that is a tensor.
    """
    group["p"] = check_exponent(group["p"], error=OptimizerError)
    group["scale"] = check_scale(group["scale"], error=OptimizerError)
    if reads or not isinstance(group["lr"], Tensor):
        check_number("lr", group["lr"], least=0.0, error=OptimizerError)
    check_number("weight_decay", group["weight_decay"], least=0.0, error=OptimizerError)
    check_choice("nonfinite", group["nonfinite"], get_args(NonFinite), error=OptimizerError)
    check_choice("norm_over", group["norm_over"], get_args(NormOver), error=OptimizerError)
    for name in ("maximize", "caution", "capturable", "center"):
        check_flag(name, group[name], error=OptimizerError)
    for name in ("foreach", "fused"):
        if group[name] is not None:
            check_flag(name, group[name], hint="or None", error=OptimizerError)
    if group["clip"] is not None:
        check_number("clip", group["clip"], above=0.0, hint="or None", error=OptimizerError)
    if not any(group["state_dtype"] is one for one in (None, torch.float32, torch.bfloat16)):
        raise OptimizerError(
            f"state_dtype is {show(group['state_dtype'])}: give torch.float32, torch.bfloat16,"
            " or None"
        )
    _check_paths(group)
    potential = group["potential"]
    if potential is None:
        return
    if not isinstance(potential, Potential):
        raise OptimizerError(f"potential is {show(potential)}: give a Potential, or None")
    if group["scale"] is not None or group["p"] != 2.0:
        raise OptimizerError(
            f"p and scale belong to the lp potential; with {potential!r} leave them out"
        )
    if group["clip"] is not None and not hasattr(potential, "dual_norm"):
        raise OptimizerError(f"{potential!r} has no dual norm, which clip needs: use clip=None")


def _check_paths(group: dict[str, Any]) -> None:
    if group["foreach"] and group["fused"]:
        raise OptimizerError("foreach and fused are both True: choose one path")
    if group["fused"] and group["state_dtype"] is torch.bfloat16:
        raise OptimizerError(
            "fused=True keeps no state in bfloat16: use fused=None, or state_dtype=None"
        )


def refuse_capture(group: dict[str, Any]) -> None:
    """Raise if the group's steps cannot be captured."""
    what = "capturable=True and torch.compile need steps in plain torch operations"
    if group["fused"]:
        raise OptimizerError(f"{what}: use fused=None")
    if group["nonfinite"] != "propagate":
        raise OptimizerError(
            f"{what}, which cannot look at gradients first: nonfinite is"
            f' {group["nonfinite"]!r}, use "propagate"'
        )


def refuse_captured_shards(group: dict[str, Any], is_traced: bool) -> None:
    """Raise if the group's steps of parameters spread over processes cannot be captured.

    ``torch.compile`` would step from the gradients of the first step for ever: it finds those of
    whole parameters again, and not the parts that are here.
    """
    if is_traced:
        raise OptimizerError(
            "torch.compile takes no steps of parameters that are spread over processes (DTensors):"
            " call step() itself, or with capturable=True for a CUDA graph"
        )
    asked = {
        "clip": group["clip"] is not None,
        "caution": group["caution"],
        'step_rule="normalized"': group.get("step_rule") == "normalized",
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise OptimizerError(
                f"{name} adds up over processes that hold parts of a parameter, which capturable="
                "True does not allow: leave it out, or step without capturable"
            )


def check_params(group: dict[str, Any]) -> None:
    """Raise unless all tensors of the group can be trained with its options."""
    potential: Potential | None = group["potential"]
    for index, param in enumerate(_tensors_of(group["params"])):
        misfit = None if potential is None else potential.find_misfit(tuple(param.shape))
        if misfit is not None:
            raise OptimizerError(f"parameter {index}: {misfit}")
        if param.is_complex() or not param.is_floating_point():
            raise OptimizerError(
                f"parameter {index} has dtype {param.dtype}: only real floating-point "
                "parameters can be trained; pass view_as_real(...) of complex ones"
            )
        if group["state_dtype"] is not None and param.dtype is torch.float64:
            raise OptimizerError(
                f"state_dtype={group['state_dtype']} is narrower than parameter {index}, which"
                " is float64: use state_dtype=None"
            )
        param = get_local(param)
        if not group["fused"] or is_for_triton(group, param):
            continue
        require_numba("fused=True")
        if not is_compilable(group, param):
            raise OptimizerError(
                "fused=True needs dense float32, bfloat16 or float16 CPU tensors, or such tensors"
                " on a GPU with Triton at 1.01 <= p <= 103, and the lp potential; parameter"
                f" {index} is {param.dtype} on {param.device}: use fused=None to let each tensor"
                " take the fastest path it has"
            )


def _tensors_of(params: Any) -> Iterator[Tensor]:
    if isinstance(params, Tensor):
        yield params
    elif isinstance(params, (list, tuple)):
        for entry in params:
            tensor = entry[1] if isinstance(entry, tuple) else entry
            if isinstance(tensor, Tensor):  # anything else is for torch to refuse
                yield tensor
