r"""How many differences are enough? The smallest number whose score is within a tolerance.

Of the candidates

    0 < 1 < ... < round(10^(j / 10)) < ... < all that are not 0

the smallest is taken whose score is at least the model's own minus the tolerance, by bisection:
about eight evaluations for ten million differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_number
from mirrormargin.deltas.changes import make_changes
from mirrormargin.deltas.delta_file import Contents
from mirrormargin.deltas.ranking import Limit
from mirrormargin.deltas.tensors import read_tensors
from mirrormargin.errors import DeltaError

__all__ = ["find_smallest"]

PER_DECADE = 10


def find_smallest(
    model: nn.Module,
    evaluate: Callable[[nn.Module], Any],
    tolerance: float,
    most: int,
    extract: Callable[[Limit], Contents],
    base: Mapping[str, Tensor],
) -> Contents:
    """The smallest delta that is good enough; the model has its bits again in the end.

    Args:
        model: The fine-tuned one, which is evaluated and changed meanwhile.
        evaluate: From the model to its score.
        tolerance: By how much the score may be worse than the model's.
        most: How many differences there are.
        extract: From a number of differences to the delta.
        base: Tensors by name.

    Raises:
        DeltaError: If no candidate is good enough, or a score is no finite number.
    """
    candidates = _list_candidates(most)

    def score() -> float:
        return check_number("the score of evaluate", evaluate(model), error=DeltaError)

    with _kept(model) as tensors:

        def is_enough(delta: Contents) -> bool:
            _become(tensors, base, delta)
            return score() >= least

        least = score() - tolerance
        low, high = -1, len(candidates)  # up to low they are too few, from high on enough
        while high - low > 1:
            middle = (low + high) // 2
            found = extract(lambda size: candidates[middle])  # noqa: B023 - called at once
            low, high = (low, middle) if is_enough(found) else (middle, high)
    if high == len(candidates):
        raise DeltaError(
            f"no delta of up to {most:,} differences scores {least:g}, not even all of them: give"
            " values=torch.float32 or a larger tolerance"
        )
    return extract(lambda size: candidates[high])


def _list_candidates(most: int) -> list[int]:
    steps = range(math.ceil(PER_DECADE * math.log10(most))) if most else ()
    return sorted({0, most, *(min(round(10 ** (one / PER_DECADE)), most) for one in steps)})


def _become(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], delta: Contents) -> None:
    """Give a model the base's weights and add the delta; what is whole in it stays."""
    with torch.no_grad():
        for name in delta.space.shapes:
            tensors[name].copy_(base[name])
    for change in make_changes(tensors, delta._replace(whole={})):
        change.write(tensors[change.name])
    with torch.no_grad():
        for name, one in delta.space.tied.items():  # they may be copies of each other
            tensors[name].copy_(tensors[one])


@contextmanager
def _kept(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The tensors of a model, which get their values again in the end, and the modes it was in."""
    tensors = read_tensors("model", model)
    values = {name: one.detach().clone() for name, one in tensors.items()}
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield tensors
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for name, one in values.items():
                tensors[name].copy_(one)
