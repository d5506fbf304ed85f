r"""What a training came to, as JSON: where it is from, accuracies, weights, pruning, selection.

Everything that chooses among trainings reads the ``validation`` part; the ``test`` part is written
only for trainings that have been chosen. (Under the paper's protocol ``epochs`` has test accuracies
too: they choose an epoch in the one table that says so, and nothing else.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from mirrormargin.data import DataSet, Split, make_encoder
from mirrormargin.environment import describe_environment
from mirrormargin.errors import TrainingError
from mirrormargin.training.building import build_model
from mirrormargin.training.config import TrainingConfig
from mirrormargin.training.configurations import format_command
from mirrormargin.training.evaluation import Evaluation, compute_perplexity, evaluate
from mirrormargin.training.loop import Training
from mirrormargin.training.pruning import pruning_curve
from mirrormargin.training.sparsity import (
    measure_sparsity,
    select_matrices,
    summarize_attention_weights,
)
from mirrormargin.training.tasks import LANGUAGE, Task
from mirrormargin.training.token_selection import score_token_selection

__all__ = ["SHARES", "describe_origin", "describe_weights", "summarize_training"]

SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998)
REVIEWS = ("imdb", "sst2")  # data sets whose models can be asked about short reviews


def describe_origin(config: TrainingConfig, data: DataSet, device: str = "cpu") -> dict[str, Any]:
    """The command, the data and the machine that a training comes from."""
    return {
        "command": f"{format_command(config)} --threads {torch.get_num_threads()}",
        "digest": config.digest(),
        "config": config.as_dict(),
        "data": {"name": data.name, "note": data.note, "sha256": data.sha256},
        "environment": describe_environment(),
        "threads": torch.get_num_threads(),
        "device": device,
    }


def summarize_training(
    training: Training,
    data: DataSet,
    *,
    with_test: bool = True,
    device: str = "cpu",
) -> dict[str, Any]:
    """Evaluate a training that has ended.

    Args:
        training: Its final weights are looked into; the selected ones are evaluated too.
        data: What it was trained on.
        with_test: Whether to evaluate on test data: not while something is still being chosen.
        device: Where to compute.

    Returns:
        What :func:`describe_origin` says; ``epochs``, ``selected_epoch``, ``shares``, ``seconds``;
        ``validation`` and, if wanted, ``test``, each with accuracies in % (``last``, ``selected``
        and, under the paper's protocol, ``best``) and ``frontier`` (for all block matrices and, on
        test data, the attention matrices: accuracy with each of SHARES of their entries removed);
        ``weights``; for models of reviews ``selection``. For a language model there are losses
        instead of accuracies and, of the selected epoch, ``perplexity`` and ``word_perplexity``
        (None if words are not known); where a task has more measures than the one that it is judged
        by, ``others`` has those of the selected epoch. If a test part is wanted that the data
        lacks, ``has_test`` is False.
    """
    task = training.config.task
    model = build_model(training.config, data).to(device)
    select = None
    if data.name in REVIEWS:
        select = partial(score_token_selection, model, make_encoder(data), longest=data.shape[0])
    try:
        untrained = None if select is None else select()
    except TrainingError:  # no review fits a vocabulary or length as small as this
        untrained = None
    model.load_state_dict(training.final)
    parts = {"validation": data.validation}
    is_testless = with_test and len(data.test) == 0
    if with_test and not is_testless:
        parts["test"] = data.test
    summary: dict[str, Any] = {
        **describe_origin(training.config, data, device),
        "epochs": training.epochs,
        "selected_epoch": training.selected_epoch,
        "shares": list(SHARES),
        "seconds": round(training.seconds, 1),
    }
    if is_testless:
        summary["has_test"] = False
    for name, split in parts.items():
        # Settings are chosen by how well all block matrices can be pruned, on validation data. The
        # curve of the attention matrices chooses nothing: it is measured on test data only.
        groups = ("blocks",) if name == "validation" else ("blocks", "attention")
        summary[name] = _describe_final(model, split, training.config, groups)
    summary["weights"] = describe_weights(model) | {"underflowed": training.underflowed}
    if select is not None and untrained is not None:
        # The score of a model that has learnt nothing is far from 0: to compare with.
        summary["selection"] = {
            **select().as_dict(),
            "untrained": untrained.as_dict()["scaled"],
        }
    model.load_state_dict(training.selected)
    for name, split in parts.items():
        is_last = training.selected_epoch == len(training.epochs)
        if is_last and not task.others:
            measured = summary[name]["last"]
        else:
            found = evaluate(model, split)
            measured = _round(found, task.measure)
            if task.others:
                summary[name]["others"] = {other: _round(found, other) for other in task.others}
        summary[name]["selected"] = measured
        if task is LANGUAGE:
            perplexity = compute_perplexity(measured, split)
            summary[name]["perplexity"] = round(perplexity.per_token, 4)
            word = perplexity.per_word
            summary[name]["word_perplexity"] = None if word is None else round(word, 3)
    if with_test and training.config.paper_protocol:
        summary["test"]["best"] = max(row["test_accuracy"] for row in training.epochs)
    return summary


def _describe_final(
    model: nn.Module, split: Split, config: TrainingConfig, groups: Sequence[str]
) -> dict[str, Any]:
    """Accuracies or losses of the final weights; pruned ones are compared with ``unpruned``."""
    size = config.frontier_size

    def measure(pruned: nn.Module) -> float:
        return _measure(pruned, split, config.task, size)

    last = _measure(model, split, config.task)
    return {
        "last": last,
        "unpruned": last if size is None or size >= len(split) else measure(model),
        "frontier": {
            matrices: pruning_curve(model, measure, SHARES, matrices) for matrices in groups
        },
    }


def _measure(model: nn.Module, split: Split, task: Task, size: int | None = None) -> float:
    """What a task is judged by."""
    return _round(evaluate(model, split, size), task.measure)


def _round(found: Evaluation, measure: str) -> float:
    return round(getattr(found, measure), 6 if measure == "loss" else 4)


def describe_weights(model: nn.Module) -> dict[str, Any]:
    """Statistics of the attention matrices, by kind, and of all block matrices."""
    groups = summarize_attention_weights(model)
    groups["blocks"] = measure_sparsity(select_matrices(model, "blocks"))
    described = {}
    for kind, statistics in groups.items():
        row = statistics.as_dict()
        # Most bins to the right are empty; what is cut off here is all zeros.
        histogram = row["histogram"]
        while histogram and histogram[-1] == 0:
            histogram.pop()
        described[kind] = {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in row.items()
        }
    return described
