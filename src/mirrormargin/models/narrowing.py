r"""Attention heads and hidden units are cut out of a model's tensors: what is left is dense.

Both layers of a block are sums over their parts,

    attend(x) = sum_h softmax(x Q_h (x K_h)' / sqrt(d)) x V_h O_h,     mlp(x) = sum_j act(x e_j) c_j

so that a model without some of them gives the answers of one in which they are zero. The width d of
a head stays what it was.

    sizes = {"num_heads": [3, 2], "hidden": [96, 40], "head_width": 16}

says how many are left in each layer. It is kept beside the weights, to build the model again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import show
from mirrormargin.errors import ModelError
from mirrormargin.optim.parts import PartLayer, Parts, Slot, find_parts

__all__ = ["check_sizes", "cut_out", "measure_sizes", "narrow"]

KINDS = {"heads": "num_heads", "units": "hidden"}
# Where modules keep how many heads they have, and how wide all of them are together: ours, BERT's
# and DistilBERT's.
NUMBERS = ("num_heads", "self.num_attention_heads", "n_heads")
WIDTHS = ("all_head_size", "self.all_head_size", "dim")


@torch.no_grad()
def cut_out(parts: Parts, gone: Sequence[Tensor]) -> None:
    """Cut parts out of their model, in place; the parameters are new ones afterwards.

    Args:
        parts: As ``find_parts`` gives them. They describe the model as it was.
        gone: Of each layer which of its parts go, (num_parts,), booleans. One at least must stay.
    """
    for layer, its in zip(parts.layers, gone, strict=True):
        if not bool(its.any()):
            continue
        kept: dict[tuple[int, str], tuple[Slot, Tensor]] = {}
        for slot in (*layer.slots, *layer.biases):
            part = slot.find_parts(layer.num_parts)
            stays = (part < 0) | ~its.to(part.device)[part.clamp(min=0)]
            key = (id(slot.owner), slot.name)
            # Query, key and value may be in one tensor.
            kept[key] = (slot, stays & kept[key][1] if key in kept else stays)
        for slot, stays in kept.values():
            _select(slot, stays.nonzero()[:, 0])
        if parts.kind == "heads":
            _write_number(layer, layer.num_parts - int(its.sum()))


def measure_sizes(model: nn.Module) -> dict[str, Any]:
    """How many heads and hidden units each layer of a model has.

    Raises:
        OptimizerError: If it has none that are known.
    """
    layers = {kind: find_parts(model, kind).layers for kind in KINDS}
    sizes: dict[str, Any] = {
        name: [layer.num_parts for layer in layers[kind]] for kind, name in KINDS.items()
    }
    return sizes | {"head_width": layers["heads"][0].slots[0].block}


def narrow(model: nn.Module, sizes: Any) -> None:
    """Make a model, in place, one of these sizes, for weights that are going to be loaded.

    Raises:
        ModelError: If it has no such sizes.
    """
    check_sizes(sizes, measure_sizes(model))
    for kind, name in KINDS.items():
        parts = find_parts(model, kind)
        numbers = zip(parts.layers, sizes[name], strict=True)
        cut_out(parts, [torch.arange(layer.num_parts) >= number for layer, number in numbers])


def check_sizes(sizes: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a model, which come from a file, if they are at most those of the whole one.

    Raises:
        ModelError: If they are not.
    """
    is_known = isinstance(sizes, dict) and sizes.keys() == whole.keys()
    if not is_known or sizes["head_width"] != whole["head_width"]:
        raise ModelError(_describe_wrong(sizes, whole))
    for name in KINDS.values():
        numbers, most = sizes[name], whole[name]
        if not isinstance(numbers, list) or len(numbers) != len(most):
            raise ModelError(_describe_wrong(sizes, whole))
        for number, limit in zip(numbers, most, strict=True):
            if type(number) is not int or not 1 <= number <= limit:
                raise ModelError(_describe_wrong(sizes, whole))
    return sizes


def _describe_wrong(sizes: Any, whole: Mapping[str, Any]) -> str:
    return (
        f"the file says that of {show(dict(whole))} there are {show(sizes)}: restore a copy of the"
        " weights"
    )


def _select(slot: Slot, indices: Tensor) -> None:
    """Leave these entries along the axis of a slot."""
    owner, param = slot.owner, slot.param
    assert owner is not None
    left = nn.Parameter(param.index_select(slot.dim, indices), requires_grad=param.requires_grad)
    setattr(owner, slot.name, left)
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = owner.weight.shape


def _write_number(layer: PartLayer, number: int) -> None:
    """Tell an attention module how many heads it has."""
    width = number * layer.slots[0].block
    known = [_set(layer.module, path, number) for path in NUMBERS]
    if not any(known):  # it looks at its tensors, and find_parts looks here
        layer.module.num_heads = number  # pyright: ignore
    for path in WIDTHS:
        _set(layer.module, path, width)


def _set(module: Any, path: str, value: int) -> bool:
    """Set an attribute if it is there, and say whether it was."""
    *parents, name = path.split(".")
    for parent in parents:
        module = getattr(module, parent, None)
    is_there = hasattr(module, name)
    if is_there:
        setattr(module, name, value)
    return is_there
