r"""What goes into the linear layers of a model, by which Wanda tells weights that matter.

    score_ij = |w_ij| ||x_j||_2,      ||x_j||_2^2 = sum of x_j^2 over examples and their tokens

(Sun, Liu, Bair and Kolter, "A simple and effective pruning approach for large language models",
2023, arXiv:2306.11695.) x is what calibration examples become on their way to the layer. They go
through the model one at a time, so that none of them has padding, which would be counted as tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_count, check_kind, check_seed, read_items
from mirrormargin.data import Split
from mirrormargin.errors import TrainingError
from mirrormargin.training.sparsity import select_matrices

__all__ = ["NUM_EXAMPLES", "Calibration", "draw_calibration", "measure_inputs"]

NUM_EXAMPLES = 128  # as in the paper

Calibration = Split | Tensor | Iterable[Any]


def draw_calibration(split: Split, size: int = NUM_EXAMPLES, seed: int = 0) -> list[Tensor]:
    """Examples of a split, drawn at random, as batches of one.

    Args:
        split: ``data.train``: what is held out should choose no weights.
        size: How many; all if there are fewer.
        seed: Of the draw.

    Raises:
        TrainingError: If the split is empty, or an argument makes no sense.
    """
    check_kind("split", split, Split, "such as data.train", error=TrainingError)
    size = check_count("size", size, error=TrainingError)
    seed = check_seed(seed, most=2**63 - 1, error=TrainingError)
    if not len(split):
        raise TrainingError("the split is empty: there is nothing to calibrate with")
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    return [split.inputs[i : i + 1] for i in order[:size].tolist()]


@torch.no_grad()
def measure_inputs(
    model: nn.Module, calibration: Calibration, matrices: str = "blocks"
) -> dict[str, Tensor]:
    """The norm ||x_j||_2 of each input of the chosen matrices, over all calibration examples.

    Args:
        model: Is run in evaluation mode, and put back into the mode it was in.
        calibration: A split, of which :func:`draw_calibration` draws 128 examples; or batches of
            your own, of which all tokens count: each a tensor, a tuple of the model's arguments, or
            a mapping with their names. One tensor is one batch.
        matrices: Which matrices, as in :func:`prune`.

    Returns:
        Name of the matrix (out, in) -> norms (in,), float64.

    Raises:
        TrainingError: If nothing goes through one of the matrices, because it is no weight of an
            ``nn.Linear`` layer (embeddings, fused attention) or the layer is not called; or what
            goes through it is not finite.
    """
    check_kind("model", model, nn.Module, "whose inputs to measure", error=TrainingError)
    chosen = select_matrices(model, matrices)
    squares: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(partial(_add_squares, squares, name), with_kwargs=True)
        for module in model.modules()
        for name, weight in chosen.items()
        if isinstance(module, nn.Linear) and module.weight is weight
    ]
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        for batch in _list_batches(calibration):
            _call(model, batch, device)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    if absent := [name for name in chosen if name not in squares]:
        more = f" and {len(absent) - 6} more" if len(absent) > 6 else ""
        raise TrainingError(
            f"nothing is known to go through {', '.join(absent[:6])}{more}: only nn.Linear layers"
            " that the model calls have inputs, embeddings and fused matrices have none; choose"
            ' matrices without them, or the criterion "magnitude"'
        )
    for name, own in squares.items():
        if not bool(own.isfinite().all()):
            raise TrainingError(f"what goes through {name} holds nan or inf: nothing is pruned")
    return {name: squares[name].sqrt() for name in chosen}


def _add_squares(
    squares: dict[str, Tensor],
    name: str,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    output: Any,
) -> None:
    x = args[0] if args else kwargs["input"]
    own = x.detach().double().reshape(-1, x.shape[-1]).square().sum(dim=0)
    squares[name] = squares[name] + own if name in squares else own


def _list_batches(calibration: Calibration) -> list[Any]:
    if isinstance(calibration, Split):
        return list(draw_calibration(calibration))
    if isinstance(calibration, Tensor):
        return [calibration]
    allowed = "a split such as data.train, or batches that the model is called with"
    batches = list(read_items("calibration", calibration, allowed, error=TrainingError))
    if not batches:
        raise TrainingError(f"calibration holds no batches: give {allowed}")
    return batches


def _call(model: nn.Module, batch: Any, device: torch.device) -> None:
    if isinstance(batch, Mapping):
        model(**{name: _move(one, device) for name, one in batch.items()})
    else:
        parts = batch if isinstance(batch, (tuple, list)) else (batch,)
        model(*(_move(one, device) for one in parts))


def _move(one: Any, device: torch.device) -> Any:
    return one.to(device) if isinstance(one, Tensor) else one
