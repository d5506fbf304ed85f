"""How good a model is on a part of a data set, and the perplexity of a language model.

A language model answers at every token, so its loss and accuracy are means over tokens.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mirrormargin.arguments import check_count
from mirrormargin.data import Split
from mirrormargin.data.language_sets import IGNORED
from mirrormargin.errors import TrainingError
from mirrormargin.training.distributed import Ranks
from mirrormargin.training.measures import Confusion, compute_f1, compute_matthews

__all__ = [
    "Evaluation",
    "Perplexity",
    "compute_loss",
    "compute_perplexity",
    "compute_probabilities",
    "count_right",
    "evaluate",
]

BATCH = 250  # examples
TOKENS = 4_000  # of a language model: each has a logit for every token of the vocabulary


class _LossAndAccuracy(NamedTuple):
    loss: float
    accuracy: float


class Evaluation(_LossAndAccuracy):
    """A pair: mean loss, and accuracy in %. Of a classifier it knows more.

    Attributes:
        confusion: Of each class, how often each class was the answer; None for a language model.
    """

    confusion: Confusion | None

    def __new__(
        cls, loss: float, accuracy: float, confusion: Confusion | None = None
    ) -> Evaluation:
        """The pair with what else is known."""
        pair = super().__new__(cls, loss, accuracy)
        pair.confusion = confusion
        return pair

    @property
    def f1(self) -> float:
        """Of class 1 out of two, in %."""
        return compute_f1(self._get_confusion())

    @property
    def matthews(self) -> float:
        """Matthews' correlation, in %."""
        return compute_matthews(self._get_confusion())

    def _get_confusion(self) -> Confusion:
        if self.confusion is None:
            raise TrainingError("a language model has no classes: look at its loss")
        return self.confusion


class Perplexity(NamedTuple):
    """exp of the mean loss of a token, and of a word, None if the words are not known."""

    per_token: float
    per_word: float | None


def compute_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy; with one logit an example, of its being class 1.

    Logits (B, T, tokens) of a language model count one by one.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # a sum of many terms
    if logits.ndim == 3:
        return functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction=reduction, ignore_index=IGNORED
        )
    if logits.ndim == 1:
        return functional.binary_cross_entropy_with_logits(
            logits, labels.to(logits.dtype), reduction=reduction
        )
    return functional.cross_entropy(logits, labels, reduction=reduction)


def count_right(logits: Tensor, labels: Tensor) -> int:
    """How many examples, or tokens, get their own class."""
    return int((_choose(logits) == labels).sum())


def _choose(logits: Tensor) -> Tensor:
    return (logits > 0).long() if logits.ndim == 1 else logits.argmax(dim=-1)


def _count_answers(logits: Tensor, labels: Tensor) -> Tensor | None:
    """How many examples of each class got which answer, (classes, classes), on the CPU."""
    if labels.ndim != 1:
        return None
    num_classes = 2 if logits.ndim == 1 else logits.shape[1]
    pairs = num_classes * labels + _choose(logits)
    return pairs.bincount(minlength=num_classes**2).view(num_classes, num_classes).cpu()


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
def evaluate(
    model: nn.Module, split: Split, size: int | None = None, ranks: Ranks | None = None
) -> Evaluation:
    """Mean loss and accuracy in % on the first ``size`` examples, all of them by default.

    Args:
        model: Is evaluated in evaluation mode, and put back into the mode it was in.
        split: Such as ``data.validation``.
        size: At most so many examples; None for all.
        ranks: Processes that share the work, each with the same weights or a shard of them.

    Raises:
        TrainingError: If the split is empty, or the size makes no sense.
    """
    if size is not None:
        check_count("size", size, error=TrainingError)
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    count = len(split) if size is None else min(size, len(split))
    if not count:
        raise TrainingError("the split is empty: there is nothing to evaluate on")
    batch = BATCH if split.labels.ndim == 1 else max(1, TOKENS // split.labels.shape[1])
    starts, sums = range(0, count, batch), {}
    ranks = Ranks(str(device)) if ranks is None else ranks
    try:
        # Where batches are missing in the end the first is repeated: sharded weights are gathered
        # by all ranks together.
        for number in range(ranks.rank, -(-len(starts) // ranks.count) * ranks.count, ranks.count):
            start = starts[number] if number < len(starts) else 0
            chosen = slice(start, min(start + batch, count))
            labels = split.labels[chosen].to(device)
            logits = model(split.inputs[chosen].to(device))
            loss = float(compute_loss(logits, labels, "sum"))
            right, answers = count_right(logits, labels), int((labels != IGNORED).sum())
            sums[start] = (loss, right, answers, _count_answers(logits, labels))
    finally:
        model.train(was_training)
    found = {start: row for one in ranks.gather(sums) for start, row in one.items()}
    # Added in the order of the examples: the same number, whoever computed the parts.
    *columns, counts = zip(*map(found.get, starts), strict=True)
    loss, right, answers = (sum(column) for column in columns)
    confusion = None
    if counts[0] is not None:
        confusion = tuple(tuple(row) for row in torch.stack(counts).sum(dim=0).tolist())
    return Evaluation(loss / answers, 100 * right / answers, confusion)


def compute_perplexity(loss: float, split: Split) -> Perplexity:
    """Perplexities of a language model whose mean loss on all of a split is known."""
    per_word = None
    if split.num_words is not None:
        per_word = _exp(loss * int((split.labels != IGNORED).sum()) / split.num_words)
    return Perplexity(_exp(loss), per_word)


def _exp(loss: float) -> float:
    """JSON holds no infinity, and a model that is so bad has no use for the difference."""
    return math.exp(min(loss, 700.0))
