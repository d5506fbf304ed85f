"""Loss and accuracy of a model on a part of a data set."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.arguments import check_count
from mirrormargin.data import Split
from mirrormargin.errors import TrainingError

__all__ = ["Evaluation", "compute_loss", "compute_probabilities", "count_right", "evaluate"]

BATCH = 250


class Evaluation(NamedTuple):
    """Mean loss, and accuracy in %."""

    loss: float
    accuracy: float


def compute_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy; with one logit an example, of its being class 1."""
    if logits.ndim == 1:
        return functional.binary_cross_entropy_with_logits(
            logits, labels.to(logits.dtype), reduction=reduction
        )
    return functional.cross_entropy(logits, labels, reduction=reduction)


def count_right(logits: Tensor, labels: Tensor) -> int:
    """How many examples get their own class."""
    chosen = (logits > 0).long() if logits.ndim == 1 else logits.argmax(dim=1)
    return int((chosen == labels).sum())


@torch.no_grad()
def compute_probabilities(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a model in evaluation mode gives each class, (N, classes)."""
    parts = []
    for batch in inputs.split(BATCH):
        logits = model(batch)
        if logits.ndim == 1:  # of class 1; class 0 has 0
            logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
        parts.append(logits.double().softmax(dim=1))
    return torch.cat(parts)


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, size: int | None = None) -> Evaluation:
    """Mean loss and accuracy in % on the first ``size`` examples, all of them by default.

    Args:
        model: Is evaluated in evaluation mode, and put back into the mode it was in.
        split: Such as ``data.validation``.
        size: At most so many examples; None for all.
    """
    if size is not None:
        check_count("size", size, error=TrainingError)
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    loss, right = 0.0, 0
    count = len(split) if size is None else min(size, len(split))
    try:
        for start in range(0, count, BATCH):
            chosen = slice(start, min(start + BATCH, count))
            labels = split.labels[chosen].to(device)
            logits = model(split.inputs[chosen].to(device))
            loss += float(compute_loss(logits, labels, "sum"))
            right += count_right(logits, labels)
    finally:
        model.train(was_training)
    return Evaluation(loss / count, 100 * right / count)
