"""The model that a configuration asks for, fitted to its data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from mirrormargin.data import DataSet, InputForm, load_data
from mirrormargin.errors import TrainingError
from mirrormargin.models import PretrainedEncoder, TextTransformer, VisionTransformer
from mirrormargin.training.config import EncoderModel, ImageModel, TrainingConfig
from mirrormargin.training.folder import TrainingFolder

__all__ = ["build_model", "load_model", "load_training_data"]


def load_training_data(
    config: TrainingConfig,
    *,
    data_dir: str | Path | None = None,
    download: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> DataSet:
    """The data of a configuration; the options are those of :func:`mirrormargin.data.load_data`."""
    return load_data(**asdict(config.data), data_dir=data_dir, download=download, progress=progress)


def load_model(
    folder: str | os.PathLike[str], inputs: InputForm | None = None, weights: str = "selected"
) -> nn.Module:
    """The model of a folder that was trained in, in evaluation mode.

    Args:
        folder: Where ``train_model`` or ``mirrormargin train`` worked.
        inputs: What it reads, or the data that it was trained on; None for what the folder says.
        weights: ``"selected"`` by validation data, ``"final"``, or the path of a pruned file.

    Raises:
        TrainingError: If the training has not ended, its file is damaged, or the pruned one is of
            another model.
    """
    from mirrormargin.training.tensor_files import load_pruned

    home = TrainingFolder(folder)
    is_own = weights in ("selected", "final")
    state, config = home.read_weights(weights if is_own else "final")
    model = build_model(config, home.read_inputs() if inputs is None else inputs)
    try:
        model.load_state_dict(state if is_own else load_pruned(weights))
    except RuntimeError as error:
        raise TrainingError(
            f"{weights} holds no weights of the model in {folder}, but other names or shapes: give"
            " a file that was pruned from it"
        ) from error
    return model.eval()


def build_model(config: TrainingConfig, data: InputForm) -> nn.Module:
    """A model with the initial weights of the configuration's seed.

    Raises:
        TrainingError: If the model does not take such data.
    """
    kind = "image" if isinstance(config.model, ImageModel) else "text"
    if data.kind != kind:
        raise TrainingError(
            f"{config.name} has a model for {kind}s, but {data.name} holds {data.kind}s"
        )
    num_classes = len(data.classes)
    with torch.random.fork_rng([]):  # models are built on the CPU
        torch.manual_seed(config.seeds.init)
        if isinstance(config.model, EncoderModel):
            return PretrainedEncoder(
                config.model.pretrained, num_classes, dropout=config.model.dropout
            )
        sizes = asdict(config.model)
        if isinstance(config.model, ImageModel):
            assert data.mean is not None
            assert data.std is not None
            height, width = data.shape[-2:]
            if height != width:
                raise TrainingError(
                    f"the images of {data.name} have {width} x {height} pixels: the model takes"
                    " square ones, so crop or resize them"
                )
            return VisionTransformer(num_classes, size=width, mean=data.mean, std=data.std, **sizes)
        assert data.vocabulary is not None
        return TextTransformer(len(data.vocabulary), num_classes, length=data.shape[0], **sizes)
