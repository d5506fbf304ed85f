r"""A smaller dense model: heads and hidden units that are zero, or the weakest, are cut out.

Exactly what adds nothing to any answer counts as zero:

    a head     in each of its dimensions, the rows of the value with their biases, or the column of
               the output
    a unit     its column, or what is behind it: a row of zeros with act(bias) = 0

A unit with a row of zeros and another bias adds a constant, and stays. Nothing is trained
afterwards.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.arguments import check_choice, check_count, check_kind, check_number
from mirrormargin.errors import ModelError, OptimizerError
from mirrormargin.models import PretrainedEncoder
from mirrormargin.models.block import Block
from mirrormargin.models.narrowing import cut_out, measure_sizes
from mirrormargin.optim.parts import PartLayer, Parts, Slot, find_parts, mark_weakest
from mirrormargin.optim.shards import get_local

__all__ = ["LayerChange", "Shrinking", "find_zero_parts", "shrink"]

Scope = Literal["global", "layer"]
ROUNDING = 1e-9  # 0.29 * 100 is 28.999999999999996
# Where perceptrons keep their activation: BERT's, DistilBERT's and torch's, ModernBERT's.
ACTIVATIONS = ("intermediate.intermediate_act_fn", "activation", "act")


class LayerChange(NamedTuple):
    """What a layer has lost.

    Attributes:
        name: Of the layer.
        before: How many heads or units it had.
        removed: Which of them are gone, from 0.
    """

    name: str
    before: int
    removed: tuple[int, ...]

    @property
    def after(self) -> int:
        return self.before - len(self.removed)


@dataclass(frozen=True, eq=False, repr=False)
class Shrinking:
    """A model that was shrunk.

    Attributes:
        model: The smaller one. Optimizers have to be made for it.
        heads: What the layers have lost, in the order of the model.
        units: Likewise.
        parameters_before: How many numbers the model had.
        parameters_after: How many it has.
    """

    model: nn.Module
    heads: tuple[LayerChange, ...]
    units: tuple[LayerChange, ...]
    parameters_before: int
    parameters_after: int

    def __repr__(self) -> str:
        return (
            f"Shrinking({self.num_removed('heads')} heads and {self.num_removed('units')} units"
            f" removed, {self.parameters_before:,} -> {self.parameters_after:,} parameters)"
        )

    def num_removed(self, kind: Literal["heads", "units"]) -> int:
        """How many heads, or units, are gone."""
        return sum(len(layer.removed) for layer in getattr(self, kind))

    def describe_architecture(self) -> dict[str, Any]:
        """What is needed to build the model again, for JSON.

        Raises:
            OptimizerError: If the model lacks heads or units that are known.
        """
        known = self.model.architecture if isinstance(self.model, PretrainedEncoder) else {}
        return {**known, "sizes": measure_sizes(self.model)}


def shrink(
    model: nn.Module,
    heads: float | int | None = None,
    units: float | int | None = None,
    *,
    scope: Scope = "global",
) -> Shrinking:
    """Remove attention heads and hidden units, the weakest first; every layer keeps one of each.

    The smaller model answers, up to rounding, as the given one would if these parts were zero.
    What is removed is known by ``find_parts``, and so are the models that can be shrunk.

    Args:
        model: Stays as it is.
        heads: None for exactly those that are zero; a float below 1 for that share of them, an
            integer for how many stay. Weak are those of a small norm; those that are zero go first,
            of equal ones the last.
        units: Likewise.
        scope: ``"global"`` ranks all layers together; ``"layer"`` removes the share of each, or
            leaves the number in each.

    Raises:
        ModelError: If that cannot be done.
        OptimizerError: If the model has no heads or units that are known.

    Example:
        >>> model = Block(width=8, num_heads=2, hidden=6)
        >>> model.contract.weight.data[:, 4:] = 0.0
        >>> shrink(model)
        Shrinking(0 heads and 2 units removed, 368 -> 336 parameters)
    """
    check_kind("model", model, nn.Module, "with attention and perceptrons", error=ModelError)
    check_choice("scope", scope, ("global", "layer"), error=ModelError)
    if any(get_local(param) is not param for param in model.parameters()):
        raise ModelError(
            "the model's tensors are spread over processes: give one whose tensors are whole"
        )
    smaller = copy.deepcopy(model)
    wanted = {"heads": heads, "units": units}
    found = {kind: _find(smaller, kind, number) for kind, number in wanted.items()}
    if not any(parts.layers for parts in found.values()):
        find_parts(model, "units")  # says what is known
    changes: dict[str, tuple[LayerChange, ...]] = {}
    for kind, parts in found.items():
        gone = _choose(parts, wanted[kind], scope)
        changes[kind] = tuple(
            LayerChange(layer.name, layer.num_parts, tuple(its.nonzero()[:, 0].tolist()))
            for layer, its in zip(parts.layers, gone, strict=True)
        )
        cut_out(parts, gone)
    before, after = (sum(one.numel() for one in net.parameters()) for net in (model, smaller))
    shrunk = Shrinking(smaller, changes["heads"], changes["units"], before, after)
    if isinstance(smaller, PretrainedEncoder):
        smaller.architecture = shrunk.describe_architecture()
    return shrunk


def _find(model: nn.Module, kind: str, wanted: float | int | None) -> Parts:
    """The parts that can be cut out; none where there are none and none was asked for."""
    try:
        parts = find_parts(model, kind)
    except OptimizerError:
        if wanted is not None:
            raise
        return Parts(kind, ())
    # torch's attention takes the width of a head from that of a token.
    layers = [one for one in parts.layers if not isinstance(one.module, nn.MultiheadAttention)]
    if wanted is not None and len(layers) < len(parts.layers):
        raise ModelError(
            f"{kind} of torch's MultiheadAttention cannot be cut out, for it has as many as its"
            f" width asks for: leave out {kind}"
        )
    return Parts(kind, tuple(layers))


@torch.no_grad()
def _choose(parts: Parts, wanted: float | int | None, scope: Scope) -> list[Tensor]:
    """Of each layer which parts go."""
    scores = []
    for layer in parts.layers:
        own = torch.where(find_zero_parts(layer, parts.kind).cpu(), -1.0, layer.score())
        if not bool(own.isfinite().all()):
            raise ModelError(f"{layer.name} holds nan or inf: it has no weakest {parts.kind}")
        own[(own == own.max()).nonzero()[0]] = torch.inf  # the best one stays, the first of equals
        scores.append(own)
    if wanted is None:
        return [own < 0 for own in scores]
    if scope == "layer":
        return [mark_weakest(own, _count(parts.kind, wanted, len(own), 1)) for own in scores]
    together = torch.cat(scores)
    count = _count(parts.kind, wanted, len(together), len(scores))
    return list(mark_weakest(together, count).split([len(own) for own in scores]))


def _count(kind: str, wanted: float | int, total: int, least: int) -> int:
    """How many of ``total`` go, where at least so many must stay."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        left = check_count(
            kind, wanted, least=least, most=total, hint="which stay", error=ModelError
        )
        return total - left
    hint = "the share that goes, or an integer for how many stay"
    share = check_number(kind, wanted, least=0.0, below=1.0, hint=hint, error=ModelError)
    count = math.floor(share * total + ROUNDING)
    if total - count < least:
        most = math.floor(1e4 * (total - least) / total) / 1e4
        raise ModelError(
            f"{kind} is {share:g}, which leaves {total - count} of {total}, but each of {least}"
            f" layers keeps one at least: give at most {most:g}"
        )
    return count


@torch.no_grad()
def find_zero_parts(layer: PartLayer, kind: str) -> Tensor:
    """Which heads or units of a layer add nothing to any answer, (num_parts,), booleans."""
    *first, last = layer.slots
    is_zero = _are_zero(last, layer)
    if kind == "heads":
        value = first[2]
        is_zero |= _are_zero(value, layer) & (_get_biases(value, layer) == 0)
        return is_zero.view(layer.num_parts, -1).all(dim=1)
    activation = _find_activation(layer.module)
    for number, slot in enumerate(first):  # a second one is that of a gate
        behind = _get_biases(slot, layer)
        if number == 0:
            behind = activation(behind)
        is_zero |= _are_zero(slot, layer) & (behind == 0)
    return is_zero


def _are_zero(slot: Slot, layer: PartLayer) -> Tensor:
    """Of each entry along the axis that belongs to a part, whether all is zero there."""
    return (_get_entries(slot, layer) == 0).all(dim=1)


def _get_biases(slot: Slot, layer: PartLayer) -> Tensor:
    """What is added to each row of a slot, one number for each."""
    for bias in layer.biases:
        if bias.owner is slot.owner and bias.start == slot.start:
            return _get_entries(bias, layer)[:, 0]
    return slot.param.new_zeros(layer.num_parts * slot.block)


def _get_entries(slot: Slot, layer: PartLayer) -> Tensor:
    rows = slot.param.movedim(slot.dim, 0)
    return rows.narrow(0, slot.start, layer.num_parts * slot.block).reshape(
        layer.num_parts * slot.block, -1
    )


def _find_activation(module: Any) -> Callable[[Tensor], Tensor]:
    """That of a perceptron; where it is not known nothing is zero behind it."""
    if isinstance(module, Block):
        return functional.gelu
    for path in ACTIVATIONS:
        found: Any = module
        for name in path.split("."):
            found = getattr(found, name, None)
        if callable(found):
            return found  # pyright: ignore[reportReturnType]
    return torch.ones_like
