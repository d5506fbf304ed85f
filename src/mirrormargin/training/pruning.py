"""One-shot magnitude pruning: the smallest entries become zero.

A share s of N entries leaves exactly round(s N) zeros: entries that are zero already come first,
then the smallest magnitudes, equal ones in the order of the model. Nothing is trained afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_choice, check_number
from mirrormargin.data import Split
from mirrormargin.errors import TrainingError
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.sparsity import select_matrices

__all__ = ["Ranking", "find_needed", "prune", "pruning_curve", "rank_magnitudes"]

RANKINGS = ("global", "matrix")


@torch.no_grad()
def prune(
    model: nn.Module | Mapping[str, Tensor],
    share: float,
    matrices: str = "blocks",
    ranking: str = "global",
) -> int:
    """Set the smallest entries to zero, in place.

    Args:
        model: A model, or its state dict. Its other parameters stay as they are.
        share: The share of the chosen entries that is zero afterwards, 0 to 1. If more of them are
            zero already, nothing changes.
        matrices: Which entries are chosen, as in :func:`select_matrices`.
        ranking: ``"global"`` compares all chosen entries, so that some matrices lose more than
            others; ``"matrix"`` prunes the same share of each.

    Returns:
        How many of the chosen entries are zero now.

    Raises:
        TrainingError: If an option makes no sense, nothing is chosen, or an entry is nan.

    Example:
        >>> model = nn.Linear(4, 1, bias=False)
        >>> model.weight.data = torch.tensor([[0.3, -0.1, 0.0, -0.2]])
        >>> prune(model, 0.5, "weight"), model.weight.tolist()[0][1:3]
        (2, [0.0, 0.0])
    """
    _check_share(share)
    check_choice("ranking", ranking, RANKINGS, error=TrainingError)
    chosen = select_matrices(model, matrices)
    for name, weight in chosen.items():
        if bool(weight.isnan().any()):
            raise TrainingError(f"{name} holds nan: it has no smallest entries; nothing is pruned")
    groups = [list(chosen.values())] if ranking == "global" else [[w] for w in chosen.values()]
    for group in groups:
        masks = _find_smallest(group, share)
        for weight, mask in zip(group, masks, strict=True):
            weight.masked_fill_(mask.to(weight.device), 0)
    return sum(int((weight == 0).sum()) for weight in chosen.values())


def pruning_curve(
    model: nn.Module,
    measure: Split | Callable[[nn.Module], float],
    shares: Sequence[float],
    matrices: str = "blocks",
    ranking: str = "global",
) -> list[float]:
    """What a model can still do when a share of its weights is gone, for each share.

    Args:
        model: Has its weights back afterwards, bit for bit, also if ``measure`` raises.
        measure: A split, such as ``data.test``, for the accuracy in % on it; or a function from
            the pruned model to any number.
        shares: In any order; each prunes the model as it was given.
        matrices: As in :func:`prune`.
        ranking: As in :func:`prune`.

    Returns:
        One number for each share.

    Raises:
        TrainingError: As :func:`prune`, before anything is evaluated.
    """
    for share in shares:
        _check_share(share)
    chosen = select_matrices(model, matrices)
    originals = {name: weight.detach().clone() for name, weight in chosen.items()}
    numbers = []
    try:
        for share in shares:
            prune(model, share, matrices, ranking)
            if isinstance(measure, Split):
                numbers.append(evaluate(model, measure).accuracy)
            else:
                numbers.append(float(measure(model)))
            _restore(chosen, originals)
    finally:
        _restore(chosen, originals)
    return numbers


class Ranking(NamedTuple):
    """The entries of some weights by size.

    Attributes:
        magnitudes: |w| of all entries, in one vector.
        num_smallest: How many entries are to be removed.
        threshold: The largest magnitude among them; -1 if none is to be removed.
    """

    magnitudes: Tensor
    num_smallest: int
    threshold: float


def rank_magnitudes(weights: Sequence[Tensor], share: float) -> Ranking:
    """Find the threshold: round(share N) of all N entries, the smallest ones, do not exceed it."""
    wide = torch.float64 if any(w.dtype is torch.float64 for w in weights) else torch.float32
    devices = {weight.device for weight in weights}
    device = devices.pop() if len(devices) == 1 else torch.device("cpu")
    magnitudes = torch.cat([weight.detach().flatten().to(device, wide).abs() for weight in weights])
    count = round(share * len(magnitudes))
    threshold = float(magnitudes.kthvalue(count).values) if count else -1.0
    return Ranking(magnitudes, count, threshold)


def find_needed(shares: Sequence[float], accuracies: Sequence[float], unpruned: float) -> float:
    """The share of weights that must be left for an accuracy within a point of the unpruned one.

    That is the least r such that this holds for all shares left from r to 1, interpolated linearly
    in log r between the shares that were measured; the least of those if it holds for all.

    Args:
        shares: Removed, rising.
        accuracies: In %, with each of them removed.
        unpruned: In %, with nothing removed.

    Example:
        >>> round(find_needed([0.9, 0.99], [85.0, 83.0], 85.0), 4)
        0.0316
    """
    left, before = 1.0, float(unpruned)
    for share, accuracy in zip(shares, accuracies, strict=True):
        if accuracy < unpruned - 1:
            part = (before - (unpruned - 1)) / (before - accuracy)
            return math.exp((1 - part) * math.log(left) + part * math.log(1 - share))
        left, before = 1 - share, accuracy
    return float(left)


def _check_share(share: float) -> None:
    check_number("share", share, least=0.0, most=1.0, error=TrainingError)


def _find_smallest(weights: Sequence[Tensor], share: float) -> list[Tensor]:
    """For each weight a mask; together they hold exactly round(share N) entries."""
    ranked = rank_magnitudes(weights, share)
    mask = ranked.magnitudes < ranked.threshold
    ties = (ranked.magnitudes == ranked.threshold).nonzero().flatten()
    mask[ties[: ranked.num_smallest - int(mask.sum())]] = True
    sizes = [weight.numel() for weight in weights]
    return [
        part.view(weight.shape) for part, weight in zip(mask.split(sizes), weights, strict=True)
    ]


@torch.no_grad()
def _restore(weights: Mapping[str, Tensor], originals: Mapping[str, Tensor]) -> None:
    for name, weight in weights.items():
        weight.copy_(originals[name])
