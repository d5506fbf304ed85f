"""What a training is made of, as plain frozen dataclasses that JSON can hold.

A configuration holds everything that the result depends on: data, model, optimizer, length of the
training, seeds. Two trainings with the same digest are therefore the same training.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from mirrormargin.errors import TrainingError
from mirrormargin.training.settings import Settings, list_changes, read_settings
from mirrormargin.training.tasks import LANGUAGE, Task, find_task

__all__ = [
    "ADAPTIVE",
    "OPTIMIZERS",
    "WITH_EXPONENT",
    "DataConfig",
    "EncoderModel",
    "GradualPruning",
    "ImageModel",
    "L1Penalty",
    "LanguageModel",
    "OptimizerConfig",
    "Powerpropagation",
    "Precision",
    "Schedule",
    "Seeds",
    "TextModel",
    "TrainingConfig",
    "can_extend",
]

OPTIMIZERS = ("MirrorDescent", "MirrorAdam", "SGD", "SNGD", "Polyak", "Adam", "AdamW")
WITH_EXPONENT = ("MirrorDescent", "MirrorAdam", "Polyak")  # they have a p
ADAPTIVE = ("MirrorAdam", "Adam", "AdamW")  # a learning rate that suits one of them suits all

Size = Annotated[int, Meta(ge=1, description="a whole number, at least 1")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number, 0 to 2^63 - 1")]
Share = Annotated[float, Meta(ge=0, le=1, description="a share in [0, 1]")]
Dropout = Annotated[float, Meta(ge=0, lt=1, description="a rate of dropout, in [0, 1)")]
InitStd = Annotated[float, Meta(gt=0, description="a standard deviation, above 0")]
Beta = Annotated[float, Meta(ge=0, lt=1, description="a decay rate of a mean, in [0, 1)")]
Clip = Annotated[float, Meta(gt=0, description="the largest norm of a gradient, above 0")]
TrainingLoss = Annotated[float, Meta(gt=0, description="the training loss, above 0")]
Precision = Literal["float32", "mixed", "bfloat16"]
Patterns = Annotated[
    tuple[str, ...], Meta(description='a list of patterns such as ["blocks", "head.*"], or null')
]
Groups = Annotated[
    tuple[tuple[str, dict[str, Any]], ...],
    Meta(description='a list such as [["blocks.*", {"p": 1.1}]]'),
]


@dataclass(frozen=True)
class DataConfig(Settings):
    """Arguments of :func:`mirrormargin.data.load_data`."""

    name: str
    length: Size | None = None
    keep: str = "head"
    vocab_size: Size | None = None
    num_train: Size | None = None
    text_column: str = "text"
    label_column: str = "label"
    test_data: str | None = None
    vocabulary: Literal["wordpiece", "words"] = "wordpiece"


@dataclass(frozen=True)
class TextModel(Settings):
    """Sizes of a :class:`mirrormargin.models.TextTransformer`."""

    width: Size
    num_layers: Size
    num_heads: Size
    hidden: Size | None = None
    dropout: Dropout = 0.2
    attention_dropout: Dropout | None = None
    embedding_dropout: Dropout | None = None
    init_std: InitStd | None = None


@dataclass(frozen=True)
class ImageModel(Settings):
    """Sizes of a :class:`mirrormargin.models.VisionTransformer`."""

    patch: Size
    width: Size
    num_layers: Size
    num_heads: Size
    hidden: Size
    upscale: Size | None = None
    dropout: Dropout = 0.1
    attention_dropout: Dropout | None = None
    hidden_dropout: Dropout = 0.0
    init_std: InitStd | None = None


@dataclass(frozen=True)
class EncoderModel(Settings):
    """A :class:`mirrormargin.models.PretrainedEncoder` with a new head."""

    pretrained: str = "minilm"
    dropout: Dropout = 0.1


@dataclass(frozen=True)
class LanguageModel(Settings):
    """Sizes of a :class:`mirrormargin.models.LanguageTransformer`."""

    width: Size
    num_layers: Size
    num_heads: Size
    hidden: Size | None = None
    dropout: Dropout = 0.0
    attention_dropout: Dropout | None = None
    init_std: InitStd = 0.02


@dataclass(frozen=True)
class OptimizerConfig(Settings):
    """An optimizer by name (see :mod:`mirrormargin.training.building`) and its options.

    ``groups`` gives parameters whose name matches a shell-style pattern other options, such as
    ``(("blocks.*", {"p": 1.1}),)``; the first match wins, and all others keep the options here.
    ``beta2``, the decay rate of squared gradients, is 0.999 unless it is given. ``state_dtype`` is
    what this library's optimizers keep u and moments in. With ``center`` mirror optimizers train
    the change of the initial weights.
    """

    name: str
    lr: float
    p: float = 2.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    scale: float | str | None = None
    step_rule: str = "constant"
    max_lr: float | None = None
    beta2: Beta | None = None
    groups: Groups = ()
    state_dtype: Literal["float32", "bfloat16"] | None = None
    center: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = tuple(
            (pattern, {k: float(v) if type(v) is int else v for k, v in options.items()})
            for pattern, options in self.groups
        )
        object.__setattr__(self, "groups", groups)

    @property
    def is_polyak(self) -> bool:
        """Whether a step needs the loss."""
        return self.name == "Polyak" or self.step_rule == "polyak"


@dataclass(frozen=True)
class L1Penalty(Settings):
    """``strength * ||w||_1`` of the block matrices, added to the mean loss."""

    strength: Annotated[float, Meta(ge=0, description="a number, at least 0")]


@dataclass(frozen=True)
class Powerpropagation(Settings):
    """``w = theta |theta|^(alpha - 1)`` for the block matrices; theta is trained."""

    alpha: Annotated[float, Meta(ge=1, description="a number, at least 1")]


@dataclass(frozen=True)
class GradualPruning(Settings):
    """Block matrices are pruned by magnitude while they train, to ``share`` zeros.

    The share of zeros grows as ``share (1 - (1 - s)^3)``, s going from 0 to 1 between the shares
    ``start`` and ``end`` of all steps (Zhu and Gupta, 2017). With ``memoryless`` all weights train
    on between two rankings and any of them may come back, until the course ends.
    """

    share: float
    start: float = 0.2
    end: float = 0.8
    memoryless: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.share < 1 and 0 <= self.start < self.end <= 1):
            raise TrainingError(
                "gradual pruning needs a share in [0, 1) and 0 <= start < end <= 1, got"
                f" {self.share}, {self.start} and {self.end}"
            )


@dataclass(frozen=True)
class Schedule(Settings):
    """A :class:`mirrormargin.SparsitySchedule` of the block matrices, which takes these options.

    ``groups`` removes whole ``"heads"``, ``"units"`` or, as ``"heads+units"``, this share of both.
    """

    share: float
    start: float = 0.0
    end: float = 0.7
    every: Size = 20
    scope: Literal["global", "tensor"] = "global"
    removed: Literal["forgotten", "clipped", "decayed", "kept"] = "forgotten"
    regrow: Share = 0.0
    pattern: str | None = None
    groups: Literal["rows", "heads", "units", "heads+units"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.share < 1 and 0 <= self.start < self.end <= 1):
            raise TrainingError(
                "a schedule needs a share in [0, 1) and 0 <= start < end <= 1, got"
                f" {self.share}, {self.start} and {self.end}"
            )


Sparsifier = Annotated[
    L1Penalty | Powerpropagation | GradualPruning | Schedule | None,
    Meta(
        description='null, or one of {"kind": "Schedule", "share": 0.95},'
        ' {"kind": "L1Penalty", "strength": 3e-5}, {"kind": "Powerpropagation", "alpha": 4},'
        ' {"kind": "GradualPruning", "share": 0.95}'
    ),
]


@dataclass(frozen=True)
class Seeds(Settings):
    """Of the initial weights, of the order of the data, and of dropout and augmentation."""

    init: Seed = 0
    order: Seed = 0
    dropout: Seed = 0


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """One training.

    Args:
        name: Such as ``imdb/small``.
        data: What to learn.
        model: What learns it.
        optimizer: How.
        epochs: At most so many passes through the training data.
        batch_size: Examples in a step; the last, smaller batch of an epoch is left out.
        reduction: ``"mean"`` or, as paper A's text models, ``"sum"`` of the losses in a batch.
        schedule: ``"constant"``, or ``"cosine"`` or ``"linear"`` (to ``final_rate`` at the end).
        warmup: Share of the steps in which the learning rate rises linearly from 0.
        final_rate: Share of the learning rate that is left at the end of a cosine or a line.
        epoch_steps: End an epoch after so many steps; None for all of the data.
        stop_accuracy: End after the epoch whose training accuracy reached this; of a language
            model, that is how often it is right about the next token.
        stop_loss: End after the epoch whose mean training loss is at most this.
        clip: Largest norm of the gradient; None for any.
        augment: Shift images by up to 4 pixels and mirror half of them.
        sparsifier: Another way to sparse weights, to compare with.
        protocol_size: Test examples evaluated after every epoch, under the paper's protocol only;
            None for all.
        validation_size: Validation examples evaluated after every epoch; None for all.
        frontier_size: Examples of a split that pruned models are evaluated on; None for all.
        attention_size: Training examples whose attention maps are measured before the first epoch
            and after every one; None for no measurement.
        paper_protocol: Evaluate on test data after every epoch, as paper A did. These accuracies
            choose an epoch in the one table that says so, and nothing else.
        precision: ``"float32"``; ``"mixed"`` for activations in bfloat16 while training (a CPU
            needs instructions for it to gain anything); ``"bfloat16"`` for weights too.
        compile: Compile the model (torch.compile).
        seeds: Of everything random.
        trainable: Which parameters are trained, as in
            :func:`mirrormargin.training.freezing.freeze_others`; None for all.
        by_length: Make batches of texts of similar length: pretrained encoders then compute
            little padding.
        proximal_l1: After every step move u of the block matrices towards 0 by the learning rate
            times this, beside whatever the sparsifier does (see ``training/sparsifiers.py``).
    """

    name: str
    data: DataConfig
    model: TextModel | ImageModel | EncoderModel | LanguageModel
    optimizer: OptimizerConfig
    epochs: Size
    batch_size: Size = 100
    reduction: Literal["mean", "sum"] = "mean"
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup: Share = 0.0
    stop_accuracy: Share | None = None
    stop_loss: TrainingLoss | None = None
    clip: Clip | None = None
    augment: bool = False
    sparsifier: Sparsifier = None
    protocol_size: Size | None = None
    validation_size: Size | None = None
    frontier_size: Size | None = None
    attention_size: Size | None = None
    paper_protocol: bool = False
    precision: Precision = "float32"
    compile: bool = False
    seeds: Seeds = field(default_factory=Seeds)
    final_rate: Share = 0.0
    epoch_steps: Size | None = None
    trainable: Patterns | None = None
    by_length: bool = False
    proximal_l1: Annotated[float, Meta(ge=0, description="a number, at least 0")] = 0.0

    @property
    def task(self) -> Task:
        """What it is judged by."""
        return find_task(type(self.model).__name__, self.data.name)

    def count_epoch_steps(self, num_examples: int) -> int:
        """How many steps an epoch on so many examples has."""
        steps = num_examples // min(self.batch_size, num_examples)
        return steps if self.epoch_steps is None else min(steps, self.epoch_steps)

    def is_sparse_after(self, step: int, num_steps: int) -> bool:
        """Whether weights of that step are as sparse as they will be."""
        own = self.sparsifier
        return not isinstance(own, Schedule) or step >= own.end * num_steps

    def __post_init__(self) -> None:
        super().__post_init__()
        stops_early = self.stop_accuracy is not None or self.stop_loss is not None
        if isinstance(self.sparsifier, GradualPruning | Schedule) and stops_early:
            raise TrainingError(
                "a share that rises with the steps needs all of them: leave out stop_accuracy and"
                " stop_loss"
            )
        is_mirror = self.optimizer.name in ("MirrorDescent", "MirrorAdam")
        if isinstance(self.sparsifier, Schedule) and not is_mirror:
            raise TrainingError(
                f"a schedule is for MirrorAdam and MirrorDescent, which at p = 2 are AdamW and SGD,"
                f" and not for {self.optimizer.name}: choose one of them, or GradualPruning"
            )
        if self.task is LANGUAGE:
            for name in ("attention_size", "augment", "paper_protocol"):
                if getattr(self, name):
                    raise TrainingError(
                        f"{name} is not supported for language models: leave it out"
                    )
        if self.trainable is not None and isinstance(
            self.sparsifier, GradualPruning | Powerpropagation
        ):
            raise TrainingError(
                "gradual pruning and powerpropagation change all block matrices, frozen ones too:"
                " leave out trainable, or the sparsifier"
            )
        if self.by_length and not isinstance(self.model, EncoderModel):
            raise TrainingError(
                "by_length saves padding for pretrained encoders, and nothing for the model of"
                f" {self.name}: leave it out"
            )
        if self.proximal_l1 and (
            self.optimizer.center or isinstance(self.sparsifier, Powerpropagation)
        ):
            raise TrainingError(
                "proximal_l1 draws weights to 0, and not to a centre or through a power: leave it"
                " out, or the centre or power"
            )
        is_changed = self.clip is not None or isinstance(self.sparsifier, L1Penalty)
        if self.optimizer.is_polyak and is_changed:
            raise TrainingError(
                "Polyak's steps need the gradient of the loss itself: leave out clip and the l1"
                " penalty, or choose another optimizer"
            )

    @classmethod
    def from_dict(cls, document: Any) -> TrainingConfig:
        """Inverse of :meth:`as_dict`.

        Raises:
            TrainingError: If a setting is missing or unknown, or takes no such value.
        """
        try:
            return read_settings(cls, document)
        except TrainingError as error:
            raise TrainingError(f"this is no training configuration: {error}") from error


def can_extend(found: TrainingConfig, config: TrainingConfig) -> bool:
    """Whether a training is the beginning of one with more epochs.

    Shares that rise are planned from the number of all steps: they cannot be extended.
    """
    is_planned = isinstance(config.sparsifier, GradualPruning | Schedule)
    if found.epochs >= config.epochs or is_planned:
        return False
    return list_changes(found, config) == ["epochs"]
