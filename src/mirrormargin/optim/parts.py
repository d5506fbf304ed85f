r"""Parts of a model that can be taken out whole: attention heads, hidden units, rows of matrices.

A part is a slice of several tensors. Of a perceptron's hidden unit it is a row of the first matrix,
an entry of its bias and a column of the second matrix; of a head as many rows of query, key and
value, and as many columns of the output, as the head is wide. A part whose weights are all 0
changes nothing: a model without it gives the same answers.

    score = sqrt(sum of the squares of the part's weights, without biases)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_choice
from mirrormargin.errors import OptimizerError
from mirrormargin.optim.mirror_optimizer import MirrorOptimizer
from mirrormargin.optim.removal import Member
from mirrormargin.optim.shards import add_up_all, find_offset, get_local

__all__ = ["PartLayer", "Parts", "Slot", "find_parts", "find_rows", "mark_weakest", "read_parts"]

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Slot:
    """Where the parts of a layer are in one tensor: in equal blocks along one of its axes.

    Attributes:
        owner: The module that has the tensor; None where it is known by itself.
        name: Of the tensor in it.
        param: The tensor.
        dim: The axis.
        block: Entries along it that belong to one part.
        start: Where the first part begins.
    """

    owner: nn.Module | None
    name: str
    param: Tensor
    dim: int
    block: int = 1
    start: int = 0

    def find_parts(self, num_parts: int) -> Tensor:
        """Of every entry along the axis that is here the part it belongs to, or -1."""
        local = get_local(self.param)
        place = torch.arange(local.shape[self.dim], device=local.device)
        place += find_offset(self.param, self.dim) - self.start
        inside = (place >= 0) & (place < num_parts * self.block)
        return torch.where(inside, place.div(self.block, rounding_mode="floor"), -1)


@dataclass(frozen=True, eq=False)
class PartLayer:
    """The heads, units or rows of one layer.

    Attributes:
        name: Of the layer.
        num_parts: How many it has.
        slots: Where their weights are.
        biases: Where their biases are.
        module: The attention or perceptron; None for rows.
    """

    name: str
    num_parts: int
    slots: tuple[Slot, ...]
    biases: tuple[Slot, ...] = ()
    module: nn.Module | None = None

    @torch.no_grad()
    def score(self) -> Tensor:
        """The norm of each part, (num_parts,), float64; on all processes the same."""
        squares = [self._add_squares(slot) for slot in self.slots]
        return add_up_all(squares, [slot.param for slot in self.slots]).sqrt()

    def _add_squares(self, slot: Slot) -> Tensor:
        weights = get_local(slot.param.detach()).double().movedim(slot.dim, 0)
        part = slot.find_parts(self.num_parts)
        sums = torch.zeros(self.num_parts + 1, dtype=torch.float64, device=weights.device)
        # What belongs to no part is added up behind the others.
        sums.index_add_(0, part % (self.num_parts + 1), weights.flatten(1).square().sum(dim=1))
        return sums[:-1].cpu()


@dataclass(eq=False)
class Parts:
    """All parts of one kind in a model, which are ranked together."""

    kind: str
    layers: tuple[PartLayer, ...]
    removed: list[Tensor] = field(default_factory=list)
    _members: dict[int, Member] = field(default_factory=dict)

    @property
    def num_parts(self) -> int:
        return sum(layer.num_parts for layer in self.layers)

    def join(self, optimizer: MirrorOptimizer) -> list[Member]:
        """The parameters of all parts, as the optimizer has them.

        Raises:
            OptimizerError: If it does not step one of them.
        """
        known = {
            id(param): Member(optimizer, number, param)
            for number, group in enumerate(optimizer.param_groups)
            for param in group["params"]
        }
        for layer in self.layers:
            for slot in (*layer.slots, *layer.biases):
                if id(slot.param) not in known:
                    raise OptimizerError(
                        f"{layer.name} has a tensor {slot.name} that the optimizer does not step:"
                        f" give it to the optimizer, so that {self.kind} are removed whole"
                    )
                self._members[id(slot.param)] = known[id(slot.param)]
        return list(self._members.values())

    @torch.no_grad()
    def remove(self, share: float) -> None:
        """Remove this share of the parts, those of the least norm, of equal ones the last."""
        count = math.floor(share * self.num_parts + ROUNDING)
        scores = torch.cat([layer.score() for layer in self.layers])
        if self.removed:  # what has gone does not come back, unless somebody wrote to it
            gone = torch.cat(self.removed) & (scores == 0)
            scores = torch.where(gone, -1.0, scores)
        flags = mark_weakest(scores, count)
        self.removed = list(flags.split([layer.num_parts for layer in self.layers]))
        masks: dict[int, Tensor] = {}
        for layer, its in zip(self.layers, self.removed, strict=True):
            for slot in (*layer.slots, *layer.biases):
                local = get_local(slot.param)
                part = slot.find_parts(layer.num_parts)
                own = its.to(local.device)[part.clamp(min=0)] & (part >= 0)
                shape = [1] * local.ndim
                shape[slot.dim] = -1
                wide = own.view(shape).expand(local.shape)
                key = id(slot.param)
                masks[key] = masks[key] | wide if key in masks else wide
        for key, mask in masks.items():
            self._members[key].remove(mask, 0.0)

    @property
    def removed_share(self) -> float:
        flags = self.removed or [layer.score() == 0 for layer in self.layers]  # of a resumed one
        return sum(int(one.sum()) for one in flags) / self.num_parts


def read_parts(groups: Any, model: nn.Module | None, params: Sequence[Tensor]) -> Parts:
    """The parts that the option ``groups`` of a schedule of these parameters names."""
    if isinstance(groups, Parts):
        return groups
    check_choice("groups", groups, ("rows", "heads", "units"), error=OptimizerError)
    if groups == "rows":
        return find_rows(params)
    if model is None:
        raise OptimizerError(f"groups={groups!r} are found in a model: give model=...")
    return find_parts(model, groups)


def mark_weakest(scores: Tensor, count: int) -> Tensor:
    """True for so many of the least scores, of equal ones the last."""
    order = scores.flip(0).argsort(stable=True)[:count]
    marks = torch.zeros(len(scores), dtype=torch.bool)
    marks[len(scores) - 1 - order] = True
    return marks


def find_rows(params: Sequence[Tensor]) -> Parts:
    """The rows of matrices, each matrix a layer.

    Raises:
        OptimizerError: If one is no matrix.
    """
    for param in params:
        if param.ndim < 2:
            raise OptimizerError(f"a tensor of shape {tuple(param.shape)} has no rows")
    layers = (
        PartLayer(f"tensor {i}", param.shape[0], (Slot(None, f"tensor {i}", param, 0),))
        for i, param in enumerate(params)
    )
    return Parts("rows", tuple(layers))


def find_parts(model: nn.Module, kind: str) -> Parts:
    """The attention heads (``"heads"``) or hidden units (``"units"``) of a transformer.

    Known are this library's blocks, torch's encoder layers, and the layers of BERT, RoBERTa,
    DistilBERT and ModernBERT as Hugging Face's transformers has them.

    Raises:
        OptimizerError: If there are none.
    """
    find = _find_heads if kind == "heads" else _find_units
    layers = [
        layer
        for name, module in model.named_modules()
        for layer in [find(name, module)]
        if layer is not None
    ]
    if not layers:
        raise OptimizerError(
            f"{type(model).__name__} has no {kind} that are known: known are blocks of this"
            " library, torch's TransformerEncoderLayer, and the layers of BERT, RoBERTa,"
            " DistilBERT and ModernBERT"
        )
    return Parts(kind, tuple(layers))


# Names of query, key, value and output in an attention module, and where its number of heads is.
_ATTENTION = (
    ("query", "key", "value", "output", "num_heads"),  # ours
    ("self.query", "self.key", "self.value", "output.dense", "self.num_attention_heads"),  # BERT
    ("q_lin", "k_lin", "v_lin", "out_lin", "n_heads"),  # DistilBERT
)
_PERCEPTRON = (
    ("expand", "contract"),  # ours
    ("intermediate.dense", "output.dense"),  # BERT
    ("lin1", "lin2"),  # DistilBERT
    ("linear1", "linear2"),  # torch
)


def _find_heads(name: str, module: nn.Module) -> PartLayer | None:
    for *names, number in _ATTENTION:
        found = [_get(module, path) for path in names]
        if all(isinstance(one, nn.Linear) for one in found) and _get(module, number):
            return _make_heads(name, module, found, _get(module, number))
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        fused, width = module.in_proj_weight, module.embed_dim
        return _make_fused_heads(
            name, module, (module, "in_proj_weight", "in_proj_bias"), module.out_proj,
            module.num_heads, width, fused,
        )  # fmt: skip
    both = _get(module, "Wqkv"), _get(module, "Wo")
    number = _get(module, "num_heads") or _get(module, "config.num_attention_heads")
    if all(isinstance(one, nn.Linear) for one in both) and number:
        fused, output = both
        return _make_fused_heads(
            name, module, (fused, "weight", "bias"), output, number, output.in_features,
            fused.weight,
        )  # fmt: skip
    return None


def _make_heads(name: str, module: nn.Module, found: Sequence[Any], num_heads: int) -> PartLayer:
    *inner, output = found
    block = output.in_features // num_heads
    slots = [Slot(one, "weight", one.weight, 0, block) for one in inner]
    slots.append(Slot(output, "weight", output.weight, 1, block))
    biases = [Slot(one, "bias", one.bias, 0, block) for one in inner if one.bias is not None]
    return PartLayer(name, num_heads, tuple(slots), tuple(biases), module)


def _make_fused_heads(
    name: str,
    module: nn.Module,
    fused: tuple[nn.Module, str, str],
    output: Any,
    num_heads: int,
    width: int,
    weight: Tensor,
) -> PartLayer:
    """Of query, key and value in one matrix, one below the other."""
    owner, weight_name, bias_name = fused
    block = width // num_heads
    slots = [Slot(owner, weight_name, weight, 0, block, k * width) for k in range(3)]
    slots.append(Slot(output, "weight", output.weight, 1, block))
    bias = getattr(owner, bias_name)
    biases = (
        []
        if bias is None
        else [Slot(owner, bias_name, bias, 0, block, k * width) for k in range(3)]
    )
    return PartLayer(name, num_heads, tuple(slots), tuple(biases), module)


def _find_units(name: str, module: nn.Module) -> PartLayer | None:
    for names in _PERCEPTRON:
        first, second = (_get(module, path) for path in names)
        if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
            return _make_units(name, module, first, second, 1)
    first, second = _get(module, "Wi"), _get(module, "Wo")  # ModernBERT: units with a gate
    if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
        return _make_units(name, module, first, second, first.out_features // second.in_features)
    return None


def _make_units(
    name: str, module: nn.Module, first: nn.Linear, second: nn.Linear, copies: int
) -> PartLayer:
    num_units = second.in_features
    starts = [k * num_units for k in range(copies)]
    slots = [Slot(first, "weight", first.weight, 0, 1, start) for start in starts]
    slots.append(Slot(second, "weight", second.weight, 1))
    biases = []
    if first.bias is not None:
        biases = [Slot(first, "bias", first.bias, 0, 1, start) for start in starts]
    return PartLayer(name, num_units, tuple(slots), tuple(biases), module)


def _get(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
        if module is None:
            return None
    return module
