r"""One-shot pruning: the entries of the lowest scores become zero.

    score_ij = |w_ij|                    magnitude
             = |w_ij| ||x_j||_2          Wanda, x_j being what goes into column j (input_norms.py)

A share s of N entries leaves exactly round(s N) zeros: entries that are zero already come first,
then the lowest scores, equal ones in the order of the model. Nothing is trained afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_choice, check_number
from mirrormargin.data import Split
from mirrormargin.errors import TrainingError
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.input_norms import Calibration, measure_inputs
from mirrormargin.training.sparsity import select_matrices

__all__ = [
    "Criterion",
    "Ranking",
    "Scope",
    "find_needed",
    "prune",
    "pruning_curve",
    "rank_magnitudes",
]

Scope = Literal["global", "matrix", "row"]
Criterion = Literal["magnitude", "wanda"]
LEAST = 1e-200  # the norm of an input that was always 0: its weights still come after zeros


@torch.no_grad()
def prune(
    model: nn.Module | Mapping[str, Tensor],
    share: float,
    matrices: str = "blocks",
    ranking: Scope | None = None,
    *,
    criterion: Criterion = "magnitude",
    calibration: Calibration | Mapping[str, Tensor] | None = None,
) -> int:
    """Set the entries of the lowest scores to zero, in place.

    Args:
        model: A model, or its state dict. Its other parameters stay as they are.
        share: The share of the chosen entries that is zero afterwards, 0 to 1. If more of them are
            zero already, nothing changes.
        matrices: Which entries are chosen, as in :func:`select_matrices`.
        ranking: ``"global"`` compares all chosen entries, so that some matrices lose more than
            others; ``"matrix"`` prunes the same share of each; ``"row"`` the same share of each
            row, which is what one output of the layer is made of. None is ``"global"`` for
            magnitudes and, as in Sun et al., ``"row"`` for Wanda. By rows a matrix of N entries
            has round(share N) zeros, and the number in a row differs by at most one: where it is
            not whole, the first rows have one more.
        criterion: ``"magnitude"``, |w|; or ``"wanda"``, |w| times the norm of the input that it
            meets.
        calibration: For Wanda, what goes through the model: see :func:`measure_inputs`, whose
            result may be given instead.

    Returns:
        How many of the chosen entries are zero now.

    Raises:
        TrainingError: If an option makes no sense, nothing is chosen, an entry is nan, or a chosen
            matrix has no inputs.

    Example:
        >>> model = nn.Linear(4, 1, bias=False)
        >>> model.weight.data = torch.tensor([[0.3, -0.1, 0.0, -0.2]])
        >>> prune(model, 0.5, "weight"), model.weight.tolist()[0][1:3]
        (2, [0.0, 0.0])
    """
    _check_share(share)
    ranking = _check_ranking(ranking, criterion)
    chosen = select_matrices(model, matrices)
    norms = _find_norms(model, chosen, matrices, criterion, calibration)
    return _prune(chosen, share, ranking, norms)


def pruning_curve(
    model: nn.Module,
    measure: Split | Callable[[nn.Module], float],
    shares: Sequence[float],
    matrices: str = "blocks",
    ranking: Scope | None = None,
    *,
    criterion: Criterion = "magnitude",
    calibration: Calibration | Mapping[str, Tensor] | None = None,
) -> list[float]:
    """What a model can still do when a share of its weights is gone, for each share.

    Args:
        model: Has its weights back afterwards, bit for bit, also if ``measure`` raises.
        measure: A split, such as ``data.test``, for the accuracy in % on it; or a function from
            the pruned model to any number.
        shares: In any order; each prunes the model as it was given.
        matrices: As in :func:`prune`.
        ranking: As in :func:`prune`.
        criterion: As in :func:`prune`.
        calibration: As in :func:`prune`; goes through the model once, before anything is pruned.

    Returns:
        One number for each share.

    Raises:
        TrainingError: As :func:`prune`, before anything is evaluated.
    """
    for share in shares:
        _check_share(share)
    ranking = _check_ranking(ranking, criterion)
    chosen = select_matrices(model, matrices)
    norms = _find_norms(model, chosen, matrices, criterion, calibration)
    originals = {name: weight.detach().clone() for name, weight in chosen.items()}
    numbers = []
    try:
        for share in shares:
            _prune(chosen, share, ranking, norms)
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


def _check_ranking(ranking: Any, criterion: Any) -> Scope:
    check_choice("criterion", criterion, get_args(Criterion), error=TrainingError)
    if ranking is None:
        return "row" if criterion == "wanda" else "global"
    return check_choice("ranking", ranking, get_args(Scope), error=TrainingError)


def _find_norms(
    model: nn.Module | Mapping[str, Tensor],
    chosen: Mapping[str, Tensor],
    matrices: str,
    criterion: str,
    calibration: Calibration | Mapping[str, Tensor] | None,
) -> Mapping[str, Tensor] | None:
    """The norms of the inputs of each chosen matrix; None where magnitudes alone count."""
    if criterion == "magnitude":
        if calibration is not None:
            raise TrainingError('calibration is for criterion="wanda": leave it out')
        return None
    if calibration is None:
        raise TrainingError(
            'criterion="wanda" weighs weights by their inputs: give calibration=data.train, or'
            " batches that the model is called with"
        )
    if not isinstance(calibration, Mapping):
        if not isinstance(model, nn.Module):
            raise TrainingError(
                "a state dict cannot be run: give the model, or what measure_inputs(model, ...)"
                " returned as calibration"
            )
        return measure_inputs(model, calibration, matrices)
    for name, weight in chosen.items():
        if getattr(calibration.get(name), "shape", None) != weight.shape[1:]:
            raise TrainingError(
                f"calibration holds no norms of the {weight.shape[1]} inputs of {name}: give what"
                f" measure_inputs(model, data.train, {matrices!r}) returned"
            )
    return calibration


@torch.no_grad()
def _prune(
    chosen: Mapping[str, Tensor], share: float, ranking: Scope, norms: Mapping[str, Tensor] | None
) -> int:
    for name, weight in chosen.items():
        if bool(weight.isnan().any()):
            raise TrainingError(f"{name} holds nan: it has no smallest entries; nothing is pruned")
    weights, scores = list(chosen.values()), list(chosen.values())
    if norms is not None:
        scores = [
            weight.double() * norms[name].to(weight.device).clamp_min(LEAST)
            for name, weight in chosen.items()
        ]
    if ranking == "global":
        masks = _find_smallest(scores, share)
    elif ranking == "matrix":
        masks = [mask for one in scores for mask in _find_smallest([one], share)]
    else:
        masks = [_find_smallest_of_rows(one, share) for one in scores]
    for weight, mask in zip(weights, masks, strict=True):
        weight.masked_fill_(mask.to(weight.device), 0)
    return sum(int((weight == 0).sum()) for weight in weights)


def _find_smallest_of_rows(scores: Tensor, share: float) -> Tensor:
    """A mask that holds round(share N) entries, and as many of each row, or one more."""
    num_rows, num_columns = scores.shape
    each, rest = divmod(round(share * scores.numel()), max(num_rows, 1))
    counts = each + (torch.arange(num_rows, device=scores.device) < rest)
    order = scores.abs().argsort(dim=1, stable=True)
    is_taken = torch.arange(num_columns, device=scores.device) < counts[:, None]
    return torch.zeros_like(is_taken).scatter_(1, order, is_taken)


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
