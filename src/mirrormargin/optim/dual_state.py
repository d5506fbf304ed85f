r"""The dual variable u and the centre that are kept of a tensor, and how u follows its weights.

u is kept as state, ``state["dual"]``, unless p is 1.5, 2 or 3, where it is a square or a root away
from w. Of half-precision weights it is kept at every p, as their float32 master copy: steps that
are too short to change w add up in u. With a centre c, ``state["center"]``, it is kept at every p
too. What w must equal is the *image* of its state,

    w = c + mask * to_primal(u),    c = 0 without a centre, mask = 1 without a sparsity schedule.

``masks.py`` says which weights a mask removes, and what becomes of their u.

With ``state_dtype=torch.bfloat16`` u is kept in bfloat16. A weight that has not moved yet is then
not quite the image of its u, but u is still what is computed from it.

If w is no longer that image, because someone else wrote to it, u is computed again from w. If it
still is, u is kept: near p = 1 many different u are mapped to w = 0, and only u itself tells how
far such a weight is from becoming nonzero.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mirrormargin.errors import OptimizerError
from mirrormargin.geometry import LpPotential, Potential
from mirrormargin.optim import plain
from mirrormargin.optim.centers import find_digests
from mirrormargin.optim.masks import MASK, hides_weights
from mirrormargin.optim.plain import state_dtype
from mirrormargin.optim.shards import get_local, is_sharded, wrap_like

if TYPE_CHECKING:
    from mirrormargin.optim.paths import Path

__all__ = [
    "WITHOUT_DUAL",
    "adapt_state",
    "as_step",
    "find_dense_format",
    "find_kept_dtype",
    "find_potential",
    "find_preimage",
    "follow_weights",
    "is_wide",
    "keeps_dual",
    "kept_dtype",
    "lay_out_like",
    "name_geometry",
    "name_potential",
    "open_center",
    "open_mask",
    "stamp",
]

_Group = dict[str, Any]
_State = dict[str, Any]
_Stamp = tuple[int, int]

_WIDE = (torch.float32, torch.float64)
_CENTERED = 2.0**20  # above every exponent; products with it are exact
WITHOUT_DUAL = (1.5, 2.0, 3.0)  # exponents p at which u of wide weights is computed from w


def keeps_dual(group: _Group, param: Tensor) -> bool:
    """Whether u of this tensor is state; if not, it is computed from w."""
    has_root = group["potential"] is None and group["p"] in WITHOUT_DUAL
    return group["center"] or not has_root or not is_wide(param) or hides_weights(group)


def is_wide(param: Tensor) -> bool:
    """Whether the weights hold what a short step adds, so that they need no master copy."""
    return param.dtype in _WIDE


def kept_dtype(group: _Group, param: Tensor) -> torch.dtype:
    """In which u, buffers and moments are kept; steps are computed in ``state_dtype(param)``."""
    return torch.bfloat16 if group["state_dtype"] is torch.bfloat16 else state_dtype(param)


def as_step(step: Any, param: Tensor, group: _Group) -> Tensor:
    """A count of steps as a tensor of its own, on the CPU unless the group is capturable."""
    device = param.device if group["capturable"] else torch.device("cpu")
    if isinstance(step, Tensor) and step.dtype is torch.float32 and step.device == device:
        return step
    return torch.as_tensor(step, dtype=torch.float32, device=device).detach()


def name_geometry(group: _Group) -> float:
    """A number that identifies the geometry of u: p, or one below 0 for another potential.

    Multiplied with 2^20 if u is that of w - c.

    A number, because torch's distributed checkpoints refuse text in the state of a tensor.
    """
    own = group["potential"]
    name = group["p"] if own is None else name_potential(repr(own))
    return name * _CENTERED if group["center"] else name


def name_potential(text: str) -> float:
    """A number below 0 for the ``repr`` of a potential."""
    return -1.0 - zlib.crc32(text.encode())


def find_potential(group: _Group) -> Potential:
    """The group's potential without its scale, which acts through the learning rate."""
    return group["potential"] if group["potential"] is not None else _make_lp(group["p"])


@lru_cache(maxsize=64)
def _make_lp(p: float) -> LpPotential:
    return LpPotential(p)


def stamp(param: Tensor) -> _Stamp:
    """Changes when someone writes to the weights, with most ways of writing.

    Operations on a DTensor raise its own version and not that of the part that is here.
    """
    if not is_sharded(param):
        return param._version, param.data_ptr()
    local = get_local(param)
    return param._version + local._version, local.data_ptr()


def open_center(group: _Group, owner: Tensor, state: _State) -> Tensor | None:
    """The part of the centre that is here; None where u belongs to w itself.

    Before the first step the weights are their own centre.
    """
    if not group["center"]:
        state.pop("center", None)
        state.pop("center_digest", None)
        return None
    if "center_digest" in state and "center" not in state:
        raise OptimizerError(
            "the checkpoint was saved without its centre: give the weights that its training began"
            " with to center_at(...)"
        )
    if "center" not in state:
        state["center"] = wrap_like(get_local(owner).detach().clone(), owner)
    has_changed = state["center"].dtype is not owner.dtype  # the model has been converted
    center = adapt_state(state, "center", owner, owner.dtype)
    if has_changed and "center_digest" in state:
        (state["center_digest"],) = find_digests([state["center"]], [owner])
    return center


def open_mask(owner: Tensor, state: _State) -> Tensor | None:
    """Which weights of the part that is here are not removed; None if none has been."""
    return adapt_state(state, MASK, owner, torch.bool) if MASK in state else None


def follow_weights(
    group: _Group, owner: Tensor, state: _State, potential: Potential, path: Path
) -> None:
    """Rebuild u where w is no longer the image of the state, and keep it elsewhere."""
    dual = adapt_state(state, "dual", owner, kept_dtype(group, owner))
    param, center = get_local(owner), open_center(group, owner, state)
    image = path.to_primal(plain.open_state(dual, param), potential)
    mask = open_mask(owner, state) if hides_weights(group) else None
    if mask is not None:
        image = torch.where(mask, image, 0.0)
    changed = potential.find_coupled(plain.add_center(image, center).to(param.dtype) != param)
    rebuilt = find_preimage(param, center, potential, path).to(dual.dtype)
    dual.copy_(torch.where(changed, rebuilt, dual))  # in place: captured steps know its address


def find_preimage(param: Tensor, center: Tensor | None, potential: Potential, path: Path) -> Tensor:
    """The dual variable whose image the weights are, up to rounding."""
    w = param.detach()
    if center is not None:
        w = w.to(state_dtype(w)) - center.to(state_dtype(w))
    return path.to_dual(w, potential)


def find_kept_dtype(key: str, group: _Group, param: Tensor) -> torch.dtype:
    """In which a state tensor is kept: a centre in the dtype of its weights, a mask as booleans."""
    if key == MASK:
        return torch.bool
    return param.dtype if key == "center" else kept_dtype(group, param)


def adapt_state(state: _State, key: str, owner: Tensor, dtype: torch.dtype) -> Tensor:
    """A state tensor in the dtype that it is kept in, on its parameter's device and in its layout.

    ``model.to(...)`` may have changed the parameter since the last step, and kernels trust
    addresses. Of a parameter spread over processes, the part that is here.
    """
    kept, param = state[key], get_local(owner)
    if is_sharded(kept) != is_sharded(owner):  # from a checkpoint of whole tensors, or of parts
        kept = kept.full_tensor() if is_sharded(kept) else kept
        kept = state[key] = wrap_like(kept.to(param.device), owner)
    tensor = get_local(kept)
    if tensor.dtype is not dtype or tensor.get_device() != param.get_device():
        tensor = tensor.to(param.device, dtype)
    if tensor.stride() != param.stride():
        tensor = lay_out_like(tensor, param)
    if tensor is not get_local(kept):
        state[key] = wrap_like(tensor, owner)
    return tensor


def lay_out_like(tensor: Tensor, param: Tensor) -> Tensor:
    """The tensor in the memory layout of the parameter, unless that has gaps."""
    if tensor.stride() == param.stride():
        return tensor
    layout = find_dense_format(param)
    return tensor if layout is None else tensor.contiguous(memory_format=layout)


def find_dense_format(tensor: Tensor) -> torch.memory_format | None:
    """The memory format in which the tensor fills its memory without gaps, if one is known."""
    if tensor.is_contiguous():
        return torch.contiguous_format
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None
