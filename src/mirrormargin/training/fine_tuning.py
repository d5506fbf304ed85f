"""What a fine-tuning has changed: the pretrained base, the change, and both together."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import nn

from mirrormargin.arguments import show
from mirrormargin.data import InputForm
from mirrormargin.deltas import SparseDelta
from mirrormargin.errors import TrainingError
from mirrormargin.training.building import build_model, load_model
from mirrormargin.training.config import EncoderModel, TrainingConfig
from mirrormargin.training.folder import TrainingFolder

__all__ = ["HEAD", "apply_delta", "extract_delta", "load_base", "read_fine_tuning"]

HEAD = "head.*"  # it is new in every training, and stored whole


def read_fine_tuning(folder: str | os.PathLike[str]) -> TrainingConfig:
    """The configuration of a training that began with pretrained weights.

    Raises:
        TrainingError: If it trained a model from the start, or there is no training.
    """
    home = TrainingFolder(folder)
    config = home.read_config()
    home.refuse_shrunk()
    if not isinstance(config.model, EncoderModel):
        raise TrainingError(
            f"{home.path} trained a model from the start: only what was fine-tuned from pretrained"
            " weights, such as sst2/minilm, has a delta"
        )
    return config


def load_base(folder: str | os.PathLike[str], inputs: InputForm | None = None) -> nn.Module:
    """The model of a fine-tuning as it was before: pretrained, with a new head.

    Raises:
        TrainingError: If it was not pretrained, or the training has not ended.
        ModelError: If the pretrained weights are not at hand.
    """
    config = read_fine_tuning(folder)
    inputs = TrainingFolder(folder).read_inputs() if inputs is None else inputs
    return build_model(config, inputs).eval()


def extract_delta(
    folder: str | os.PathLike[str],
    *,
    weights: str = "selected",
    keep: int | None = None,
    share: float | None = None,
    tolerance: float | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
) -> SparseDelta:
    """The largest changes that a fine-tuning has made, with its head.

    Args:
        folder: Of the training.
        weights: As in :func:`mirrormargin.training.load_model`.
        keep: How many changes; or give ``share`` or ``tolerance``, as in
            :meth:`mirrormargin.SparseDelta.extract`.
        share: How many of all weights.
        tolerance: How much of the score may be lost.
        evaluate: From a model to its score, for ``tolerance``.
    """
    home = TrainingFolder(folder)
    base, model = load_base(home), load_model(home, weights=weights)
    config, inputs = home.read_config(), home.read_inputs()
    info: dict[str, Any] = {
        "configuration": config.name,
        "digest": config.digest(),
        "classes": list(inputs.classes),
        "weights": weights if weights in ("selected", "final") else Path(weights).name,
    }
    return SparseDelta.extract(
        model,
        base,
        keep=keep,
        share=share,
        tolerance=tolerance,
        evaluate=evaluate,
        whole=[HEAD],
        info=info,
    )


def apply_delta(folder: str | os.PathLike[str], delta: str | os.PathLike[str]) -> nn.Module:
    """The base of a fine-tuning with a delta from a file, in evaluation mode.

    Raises:
        TrainingError: If the training was none of pretrained weights, or the delta has other
            classes, or no head.
        DeltaError: If it is damaged, or of another base.
    """
    home = TrainingFolder(folder)
    read_fine_tuning(home)
    found, inputs = SparseDelta.load(delta), home.read_inputs()
    classes = found.info.get("classes")
    if classes is not None and classes != list(inputs.classes):
        raise TrainingError(
            f"{delta} answers with {show(classes)}, the training in {home.path} with"
            f" {show(list(inputs.classes))}: give the folder of a training of the same task"
        )
    model = load_base(home, inputs)
    names = {*found.whole, *found.space.shapes}
    lacking = [name for name in model.state_dict() if fnmatchcase(name, HEAD) and name not in names]
    if lacking:
        raise TrainingError(
            f"{delta} lacks {lacking[0]}, without which the model has a new head that answers at"
            " random: give a file with the head, as mirrormargin delta writes it"
        )
    found.apply(model)
    return model
