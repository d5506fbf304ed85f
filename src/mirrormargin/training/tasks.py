r"""What a training is judged by: accuracy for classification, loss for language.

Epochs are compared, models pruned and curves drawn by one number of a split, which a task names.
A language model is right about a token more or less often too, and its rows have that accuracy, but
nothing is chosen by it. Perplexities follow from the loss, with N tokens and M words in the text:

    per token   exp(loss)          per word   exp(loss * N / M)

This module needs no torch, so that summaries can be read without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CLASSIFICATION", "LANGUAGE", "Task", "find_task", "read_task"]


@dataclass(frozen=True)
class Task:
    """One of the two kinds of training.

    Attributes:
        name: ``classification`` or ``language``.
        measure: ``accuracy`` or ``loss``: a field of an evaluation and, with ``validation_`` in
            front, a column of an epoch's row.
        axis: How it is called beside a curve.
        digits: After the point, where it is printed.
        is_larger_better: Which of two values is better.
        tolerance: How much worse a pruned model may be.
    """

    name: str
    measure: str
    axis: str
    digits: int
    is_larger_better: bool
    tolerance: float

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value is better than another one, not equal."""
        return value > other if self.is_larger_better else value < other

    def is_kept(self, value: float, unpruned: float) -> bool:
        """Whether a pruned model is within the tolerance of what it was."""
        if self.is_larger_better:
            return value >= unpruned - self.tolerance
        return value <= unpruned + self.tolerance

    def format(self, value: float) -> str:
        """The value as it is printed."""
        return f"{value:.{self.digits}f}{'%' if self.measure == 'accuracy' else ''}"


CLASSIFICATION = Task("classification", "accuracy", "accuracy, %", 2, True, 1.0)
LANGUAGE = Task("language", "loss", "loss, nats per token", 4, False, 0.05)


def find_task(kind: str) -> Task:
    """The task of a class of models, such as ``LanguageModel``."""
    return LANGUAGE if kind == "LanguageModel" else CLASSIFICATION


def read_task(config: Mapping[str, Any]) -> Task:
    """The task of a configuration as JSON has it."""
    return find_task(str(config.get("model", {}).get("kind")))
