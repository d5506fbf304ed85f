r"""What a training is judged by: accuracy or correlation for classification, loss for language.

Epochs are compared, models pruned and curves drawn by one number of a split, which a task names.
CoLA is judged by Matthews' correlation, for 70% of it are in one class; MRPC by its accuracy, with
the F1 that others report of it beside.
A language model is right about a token more or less often too, and its rows have that accuracy, but
nothing is chosen by it. Perplexities follow from the loss, with N tokens and M words in the text:

    per token   exp(loss)          per word   exp(loss * N / M)

This module needs no torch, so that summaries can be read without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = [
    "CLASSIFICATION",
    "CORRELATION",
    "LANGUAGE",
    "PARAPHRASE",
    "Task",
    "find_task",
    "read_task",
]


@dataclass(frozen=True)
class Task:
    """One of the kinds of training.

    Attributes:
        name: ``classification`` or ``language``.
        measure: ``accuracy``, ``matthews`` or ``loss``: a field of an evaluation and, with
            ``validation_`` in front, a column of an epoch's row.
        axis: How it is called beside a curve.
        digits: After the point, where it is printed.
        is_larger_better: Which of two values is better.
        tolerance: How much worse a pruned model may be.
        others: Measures that are shown beside, and choose nothing.
    """

    name: str
    measure: str
    axis: str
    digits: int
    is_larger_better: bool
    tolerance: float
    others: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """What it is judged by, and what is shown beside."""
        return (self.measure, *self.others)

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
        return self.format_measure(self.measure, value)

    def format_measure(self, measure: str, value: float) -> str:
        """The value of one of ``measures`` as it is printed."""
        return f"{value:.{self.digits}f}{'%' if measure == 'accuracy' else ''}"

    def describe(self, values: Mapping[str, float]) -> str:
        """All measures in a line; a single one without its name."""
        if not self.others:
            return self.format(values[self.measure])
        return ", ".join(
            f"{name} {self.format_measure(name, values[name])}" for name in self.measures
        )


CLASSIFICATION = Task("classification", "accuracy", "accuracy, %", 2, True, 1.0)
PARAPHRASE = replace(CLASSIFICATION, others=("f1",))
CORRELATION = Task(
    "classification", "matthews", "Matthews' correlation, %", 2, True, 1.0, ("accuracy",)
)
LANGUAGE = Task("language", "loss", "loss, nats per token", 4, False, 0.05)


# Data sets that are not judged by accuracy alone.
_BY_DATA = {"cola": CORRELATION, "mrpc": PARAPHRASE}


def find_task(kind: str, data: str = "") -> Task:
    """The task of a class of models, such as ``LanguageModel``, on the data set of a name."""
    return LANGUAGE if kind == "LanguageModel" else _BY_DATA.get(data, CLASSIFICATION)


def read_task(config: Mapping[str, Any]) -> Task:
    """The task of a configuration as JSON has it."""
    kind, name = (
        config.get(part, {}).get(key) for part, key in (("model", "kind"), ("data", "name"))
    )
    return find_task(str(kind), str(name))
