r"""What a configuration asks for: its data, its model, its optimizer and its learning rate.

MirrorDescent, MirrorAdam   this library's
SGD, Adam, AdamW            torch's, the fastest form there is on the device
SNGD                        stochastic normalised gradient descent: lr / ||gradient|| over all
                            parameters together, or all of a group (paper B)
Polyak                      stochastic Polyak steps at p, lr being the factor, capped at max_lr

In step k = 0, 1, ... the learning rate is multiplied with a factor: a linear rise over the first
w = warmup * steps, then constant, or down a cosine or a line.

    factor(k) = (k + 1) / w                                  for k < w
                1                                            constant, afterwards
                f + (1 - f) (1 + cos(pi (k - w) / (steps - w))) / 2      cosine, afterwards
                f + (1 - f) (1 - (k - w) / (steps - w))                  linear, afterwards

f being the configuration's final_rate, 0 unless it says otherwise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from mirrormargin.arguments import StepRule, check_choice
from mirrormargin.data import DataSet, InputForm, load_data
from mirrormargin.data.encoder_tokens import parse_tokenizer
from mirrormargin.errors import TrainingError
from mirrormargin.models import (
    LanguageTransformer,
    PretrainedEncoder,
    SpecialTokens,
    TextTransformer,
    VisionTransformer,
)
from mirrormargin.models.checkpoints import read_tokenizer
from mirrormargin.models.narrowing import check_sizes
from mirrormargin.optim import MirrorAdam, MirrorDescent, param_groups
from mirrormargin.optim.groups import are_zero
from mirrormargin.training.config import (
    ADAPTIVE,
    OPTIMIZERS,
    EncoderModel,
    ImageModel,
    LanguageModel,
    OptimizerConfig,
    TextModel,
    TrainingConfig,
)
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.freezing import freeze_others

__all__ = ["build_model", "build_optimizer", "find_factor", "load_model", "load_training_data"]


KINDS = {"text": "texts", "image": "images", "language": "a text to continue"}


def load_training_data(
    config: TrainingConfig,
    *,
    data_dir: str | Path | None = None,
    download: bool = False,
    progress: Callable[[int, int], object] | None = None,
    inputs: InputForm | None = None,
) -> DataSet:
    """The data of a configuration; the options are those of :func:`mirrormargin.data.load_data`.

    Texts for a pretrained encoder are read by its own tokenizer: that of ``inputs``, which a
    training that has ended keeps, or else that of the checkpoint.
    """
    tokenizer = None
    if inputs is not None:
        tokenizer = inputs.encoder_tokenizer
    elif isinstance(config.model, EncoderModel):
        tokenizer = read_tokenizer(config.model.pretrained)
    return load_data(
        **asdict(config.data),
        encoder_tokenizer=tokenizer,
        data_dir=data_dir,
        download=download,
        progress=progress,
    )


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
    state, config = home.read_weights(weights if is_own else "selected")
    inputs = home.read_inputs() if inputs is None else inputs
    model = build_model(config, inputs, home.read_architecture())
    try:
        model.load_state_dict(state if is_own else load_pruned(weights))
    except RuntimeError as error:
        raise TrainingError(
            f"{weights} holds no weights of the model in {folder}, but other names or shapes: give"
            " a file that was pruned from it"
        ) from error
    return model.eval()


def build_model(
    config: TrainingConfig, data: InputForm, architecture: Mapping[str, Any] | None = None
) -> nn.Module:
    """A model with the initial weights of the configuration's seed.

    Args:
        config: Which model.
        data: What it reads, and its classes.
        architecture: What ``TrainingFolder.read_architecture`` says, for weights that are going to
            be loaded: a pretrained encoder is built without its checkpoint, and what was shrunk
            with as many heads and hidden units as are left.

    Raises:
        TrainingError: If the model does not take such data, or has no parameters of names that
            are to be trained.
    """
    kind = _find_kind(config)
    if data.kind != kind:
        raise TrainingError(
            f"{config.name} has a model for {KINDS[kind]}, but {data.name} holds {KINDS[data.kind]}"
        )
    with torch.random.fork_rng([]):  # models are built on the CPU
        torch.manual_seed(config.seeds.init)
        model = _make_model(config, data, architecture)
    if config.trainable is not None:
        freeze_others(model, config.trainable)
    return model.bfloat16() if config.precision == "bfloat16" else model


def _make_model(
    config: TrainingConfig, data: InputForm, architecture: Mapping[str, Any] | None
) -> nn.Module:
    num_classes = len(data.classes)
    if isinstance(config.model, EncoderModel):
        return PretrainedEncoder(
            config.model.pretrained,
            num_classes,
            dropout=config.model.dropout,
            special=_describe_special(data),
            architecture=architecture,
        )
    sizes = asdict(config.model) | _read_sizes(config.model, architecture)
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
    if isinstance(config.model, LanguageModel):
        return LanguageTransformer(len(data.vocabulary), length=data.shape[0], **sizes)
    return TextTransformer(len(data.vocabulary), num_classes, length=data.shape[0], **sizes)


def _read_sizes(
    model: TextModel | ImageModel | LanguageModel, architecture: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The sizes of a model that was shrunk; none of one that was not."""
    if architecture is None or "sizes" not in architecture:
        return {}
    hidden = 4 * model.width if model.hidden is None else model.hidden
    whole = {
        "num_heads": [model.num_heads] * model.num_layers,
        "hidden": [hidden] * model.num_layers,
        "head_width": model.width // model.num_heads,
    }
    return check_sizes(architecture["sizes"], whole)


def _describe_special(data: InputForm) -> SpecialTokens:
    """What a pretrained encoder must know of the tokenizer that its inputs were made by."""
    if data.encoder_tokenizer is None:
        return SpecialTokens()
    own = parse_tokenizer(data.encoder_tokenizer)
    framing = own.framing
    return SpecialTokens(
        framing.padding, framing.before[0], framing.between[0], own.has_types, len(own)
    )


def _find_kind(config: TrainingConfig) -> str:
    if isinstance(config.model, LanguageModel):
        return "language"
    return "image" if isinstance(config.model, ImageModel) else "text"


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """The optimizer of all of a model's trainable parameters.

    Raises:
        TrainingError: If there is no such optimizer, or an option does nothing for it.
        OptimizerError: If it does not take a value.
    """
    check_choice("the optimizer", config.name, OPTIMIZERS, error=TrainingError)
    optimizer = _build(config, param_groups(model, {"*": {}}))
    patterns = {pattern: dict(options) for pattern, options in config.groups}
    for pattern, options in patterns.items():
        for name in options.keys() - optimizer.defaults.keys():
            raise TrainingError(f"{config.name} has no {name}, which the group {pattern!r} sets")
    if patterns:
        # All parameters may be named by the patterns already.
        is_rest = not _covers(patterns, model)
        optimizer = _build(config, param_groups(model, patterns | ({"*": {}} if is_rest else {})))
    return optimizer


def find_factor(
    schedule: str, warmup: float, step: int, num_steps: int, final_rate: float = 0.0
) -> float:
    """What the learning rate is multiplied with in step ``step``, from 0, of ``num_steps``."""
    rising = warmup * num_steps
    if step < rising:
        return min((step + 1) / rising, 1.0)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        fall = 1 - (step - rising) / (num_steps - rising)
    else:
        fall = (1 + math.cos(math.pi * (step - rising) / (num_steps - rising))) / 2
    return final_rate + (1 - final_rate) * fall


def _covers(patterns: dict[str, Any], model: nn.Module) -> bool:
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names)


def _build(config: OptimizerConfig, params: Any) -> Optimizer:
    decay: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    state = None if config.state_dtype is None else getattr(torch, config.state_dtype)
    mirror: dict[str, Any] = {"p": config.p, "scale": config.scale, "state_dtype": state}
    mirror["center"] = config.center
    betas = (0.9, 0.999 if config.beta2 is None else config.beta2)
    if config.name not in ADAPTIVE:
        _refuse(config, "beta2")
    if config.name in ("MirrorDescent", "MirrorAdam"):
        # A configuration chooses p for all of its tensors, those that start at zero too.
        params = [{"p": config.p, **group} for group in params]
        if config.scale == "rms":
            params = [part for group in params for part in _part_zeros(group)]
    if config.name == "MirrorDescent":
        return MirrorDescent(
            params,
            **decay,
            **mirror,
            momentum=config.momentum,
            step_rule=cast(StepRule, config.step_rule),  # checked by the optimizer
            max_lr=config.max_lr,
            loss_over="rank",  # the loop has averaged it
        )
    if config.name == "Polyak":
        _refuse(config, "momentum", "step_rule")
        return MirrorDescent(
            params,
            **decay,
            **mirror,
            step_rule="polyak",
            norm_over="group",
            max_lr=config.max_lr,
            loss_over="rank",
        )
    _refuse(config, "step_rule", "max_lr")
    if config.name == "MirrorAdam":
        _refuse(config, "momentum")
        return MirrorAdam(params, **decay, **mirror, betas=betas)
    _refuse(config, "p", "scale", "center")
    if config.name == "SNGD":
        return MirrorDescent(
            params,
            **decay,
            momentum=config.momentum,
            step_rule="normalized",
            norm_over="group",
            state_dtype=state,
        )
    _refuse(config, "state_dtype")
    if config.name == "SGD":
        return torch.optim.SGD(params, **decay, momentum=config.momentum, fused=True)
    _refuse(config, "momentum")
    kind = torch.optim.Adam if config.name == "Adam" else torch.optim.AdamW
    return kind(params, **decay, betas=betas, fused=True)


def _part_zeros(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Tensors that start at zero have no size to take a scale from: they train at p = 2."""
    is_zero = are_zero([param for _, param in group["params"]])
    pairs = list(zip(group["params"], is_zero, strict=True))
    zeros, others = ([one for one, is_it in pairs if is_it == wanted] for wanted in (True, False))
    parts = [{**group, "params": others}, {**group, "params": zeros, "p": 2.0, "scale": None}]
    return [part for part in parts if part["params"]]


def _refuse(config: OptimizerConfig, *names: str) -> None:
    """Options that would silently do nothing are mistakes."""
    default = OptimizerConfig(config.name, config.lr)
    for name in names:
        if getattr(config, name) != getattr(default, name):
            raise TrainingError(
                f"{config.name} has no {name}, got {getattr(config, name)!r}: leave it out or"
                " choose another optimizer"
            )
