r"""How well answers agree with labels, from their counts: F1 and Matthews' correlation, in %.

With n_kl answers l to examples of class k, s answers in all, c of them right, t_k = sum_l n_kl
examples and p_l = sum_k n_kl answers of a class,

    F1        2 n_11 / (t_1 + p_1)                                  of class 1 out of two
    Matthews  (c s - t . p) / sqrt((s^2 - p . p) (s^2 - t . t))     of any number of classes

Both are 0 where they are 0 / 0: nothing is in class 1, or all answers or labels are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirrormargin.errors import TrainingError

__all__ = ["Confusion", "compute_f1", "compute_matthews"]

Confusion = tuple[tuple[int, ...], ...]
"""Of each class the numbers of answers, by class: ``confusion[label][answer]``."""


def compute_f1(confusion: Sequence[Sequence[int]]) -> float:
    """The harmonic mean of precision and recall of class 1, in %.

    Raises:
        TrainingError: If there are other than two classes.

    Example:
        >>> compute_f1([[3, 1], [1, 3]])
        75.0
    """
    if len(confusion) != 2:
        raise TrainingError(f"F1 is of two classes, got {len(confusion)}: measure the accuracy")
    (_, wrong), (missed, right) = confusion
    total = 2 * right + wrong + missed
    return 100 * 2 * right / total if total else 0.0


def compute_matthews(confusion: Sequence[Sequence[int]]) -> float:
    """The correlation of answers and labels, in %: 0 for answers that know nothing of the labels.

    Example:
        >>> compute_matthews([[3, 1], [1, 3]]), compute_matthews([[0, 2], [0, 6]])
        (50.0, 0.0)
    """
    labels = [sum(row) for row in confusion]
    answers = [sum(column) for column in zip(*confusion, strict=True)]
    total, right = sum(labels), sum(row[k] for k, row in enumerate(confusion))
    covariance = right * total - sum(t * p for t, p in zip(labels, answers, strict=True))
    spread = [total**2 - sum(count**2 for count in counts) for counts in (labels, answers)]
    return 100 * covariance / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0
