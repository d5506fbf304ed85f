"""What a training is made of, as plain frozen dataclasses that JSON can hold.

A configuration names everything that decides the result: data, model, optimizer, length of the
training, seeds. Its digest therefore names the result.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from mirrormargin.errors import TrainingError

__all__ = [
    "OPTIMIZERS",
    "DataConfig",
    "EncoderModel",
    "GradualPruning",
    "ImageModel",
    "L1Penalty",
    "OptimizerConfig",
    "Powerpropagation",
    "Seeds",
    "TextModel",
    "TrainingConfig",
]


# To be raised when code changes in a way that gives other results for the same settings.
RECIPE = 1
OPTIMIZERS = ("MirrorDescent", "MirrorAdam", "SGD", "SNGD", "Polyak", "Adam", "AdamW")


class _Settings:
    """Numbers are floats where floats are meant: equal settings then have equal digests.

    Whole numbers are sizes, at least 1, and rates of dropout are in [0, 1).
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # pyright: ignore[reportArgumentType]
            name, value, kind = item.name, getattr(self, item.name), str(item.type)
            if "float" in kind and type(value) is int:
                object.__setattr__(self, name, float(value))
            if value is None:
                continue
            if "int" in kind.replace(" ", "").split("|") and not (type(value) is int and value > 0):
                raise TrainingError(f"{name} is a whole number, at least 1, got {value!r}")
            if "dropout" in name and not (isinstance(value, float | int) and 0 <= value < 1):
                raise TrainingError(f"{name} is a rate of dropout, in [0, 1), got {value!r}")
            if name == "init_std" and not (isinstance(value, float | int) and value > 0):
                raise TrainingError(f"init_std is a standard deviation, above 0, got {value!r}")


@dataclass(frozen=True)
class DataConfig(_Settings):
    """Arguments of :func:`mirrormargin.data.load_data`."""

    name: str
    length: int | None = None
    keep: str = "head"
    vocab_size: int | None = None
    num_train: int | None = None
    text_column: str = "text"
    label_column: str = "label"


@dataclass(frozen=True)
class TextModel(_Settings):
    """Sizes of a :class:`mirrormargin.models.TextTransformer`."""

    width: int
    num_layers: int
    num_heads: int
    hidden: int | None = None
    dropout: float = 0.2
    attention_dropout: float | None = None
    embedding_dropout: float | None = None
    init_std: float | None = None


@dataclass(frozen=True)
class ImageModel(_Settings):
    """Sizes of a :class:`mirrormargin.models.VisionTransformer`."""

    patch: int
    width: int
    num_layers: int
    num_heads: int
    hidden: int
    upscale: int | None = None
    dropout: float = 0.1
    attention_dropout: float | None = None
    hidden_dropout: float = 0.0
    init_std: float | None = None


@dataclass(frozen=True)
class EncoderModel(_Settings):
    """A :class:`mirrormargin.models.PretrainedEncoder` with a new head."""

    pretrained: str = "minilm"
    dropout: float = 0.1


@dataclass(frozen=True)
class OptimizerConfig(_Settings):
    """An optimizer by name (see :mod:`mirrormargin.training.optimizers`) and its options.

    ``groups`` gives parameters whose name matches a shell-style pattern other options, such as
    ``(("blocks.*", {"p": 1.1}),)``; the first match wins, and all others keep the options here.
    """

    name: str
    lr: float
    p: float = 2.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    scale: float | str | None = None
    step_rule: str = "constant"
    max_lr: float | None = None
    groups: tuple[tuple[str, dict[str, Any]], ...] = ()

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
class L1Penalty(_Settings):
    """``strength * ||w||_1`` of the block matrices, added to the mean loss."""

    strength: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.strength >= 0:
            raise TrainingError(f"the strength of a penalty is at least 0, got {self.strength}")


@dataclass(frozen=True)
class Powerpropagation(_Settings):
    """``w = theta |theta|^(alpha - 1)`` for the block matrices; theta is trained."""

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha >= 1:
            raise TrainingError(f"Powerpropagation's alpha is at least 1, got {self.alpha}")


@dataclass(frozen=True)
class GradualPruning(_Settings):
    """Block matrices are pruned by magnitude while they train, to ``share`` zeros.

    The share of zeros grows as ``share (1 - (1 - s)^3)``, s going from 0 to 1 between the shares
    ``start`` and ``end`` of all steps (Zhu and Gupta, 2017).
    """

    share: float
    start: float = 0.2
    end: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.share < 1 and 0 <= self.start < self.end <= 1):
            raise TrainingError(
                "gradual pruning needs a share in [0, 1) and 0 <= start < end <= 1, got"
                f" {self.share}, {self.start} and {self.end}"
            )


@dataclass(frozen=True)
class Seeds:
    """Of the initial weights, of the order of the data, and of dropout and augmentation."""

    init: int = 0
    order: int = 0
    dropout: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is not int or not 0 <= value < 2**63:
                raise TrainingError(f"seeds.{name} is a whole number, 0 to 2^63 - 1, got {value!r}")


@dataclass(frozen=True)
class TrainingConfig(_Settings):
    """One training.

    Args:
        name: Such as ``imdb/small``.
        data: What to learn.
        model: What learns it.
        optimizer: How.
        epochs: At most so many passes through the training data.
        batch_size: Examples in a step; the last, smaller batch of an epoch is left out.
        reduction: ``"mean"`` or, as paper A's text models, ``"sum"`` of the losses in a batch.
        schedule: ``"constant"`` or ``"cosine"`` (to 0 at the end).
        warmup: Share of the steps in which the learning rate rises linearly from 0.
        stop_accuracy: End after the epoch whose training accuracy reached this.
        clip: Largest norm of the gradient; None for any.
        augment: Shift images by up to 4 pixels and mirror half of them.
        sparsifier: Another way to sparse weights, to compare with.
        protocol_size: Test examples evaluated after every epoch, under the paper's protocol only;
            None for all.
        frontier_size: Examples of a split that pruned models are evaluated on; None for all.
        paper_protocol: Evaluate on test data after every epoch, as paper A did. Never used to
            choose anything but the figure that is labelled so.
        precision: ``"float32"``, or ``"mixed"`` for bfloat16 where a GPU is used.
        compile: Compile the model (torch.compile).
        seeds: Of everything random.
    """

    name: str
    data: DataConfig
    model: TextModel | ImageModel | EncoderModel
    optimizer: OptimizerConfig
    epochs: int
    batch_size: int = 100
    reduction: str = "mean"
    schedule: str = "constant"
    warmup: float = 0.0
    stop_accuracy: float | None = None
    clip: float | None = None
    augment: bool = False
    sparsifier: L1Penalty | Powerpropagation | GradualPruning | None = None
    protocol_size: int | None = None
    frontier_size: int | None = None
    paper_protocol: bool = False
    precision: str = "float32"
    compile: bool = False
    seeds: Seeds = field(default_factory=Seeds)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("reduction", ("mean", "sum")),
            ("schedule", ("constant", "cosine")),
            ("precision", ("float32", "mixed")),
        ):
            if getattr(self, name) not in allowed:
                raise TrainingError(
                    f"{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name, value in (("warmup", self.warmup), ("stop_accuracy", self.stop_accuracy)):
            if value is not None and not (isinstance(value, float) and 0 <= value <= 1):
                raise TrainingError(f"{name} is a share in [0, 1], got {value!r}")
        if self.clip is not None and not (isinstance(self.clip, float) and self.clip > 0):
            raise TrainingError(
                f"clip is the largest norm of a gradient, above 0, got {self.clip!r}"
            )
        if isinstance(self.sparsifier, GradualPruning) and self.stop_accuracy is not None:
            raise TrainingError(
                "gradual pruning needs all steps to come to its share: leave out stop_accuracy"
            )
        is_changed = self.clip is not None or isinstance(self.sparsifier, L1Penalty)
        if self.optimizer.is_polyak and is_changed:
            raise TrainingError(
                "Polyak's steps need the gradient of the loss itself: leave out clip and the l1"
                " penalty, or choose another optimizer"
            )

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries; what is a choice among classes says which."""
        document = asdict(self)
        for key in ("model", "sparsifier"):
            value = getattr(self, key)
            if value is not None:
                document[key] = {"kind": type(value).__name__, **document[key]}
        return document

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> TrainingConfig:
        """Inverse of :meth:`as_dict`.

        Raises:
            TrainingError: If something is missing or unknown.
        """
        classes = {
            kind.__name__: kind
            for kind in (
                TextModel,
                ImageModel,
                EncoderModel,
                L1Penalty,
                Powerpropagation,
                GradualPruning,
            )
        }
        try:
            parts = dict(document)
            for key in ("model", "sparsifier"):
                if parts[key] is not None:
                    part = dict(parts[key])
                    parts[key] = classes[part.pop("kind")](**part)
            optimizer = dict(parts["optimizer"])
            optimizer["groups"] = tuple((pattern, dict(o)) for pattern, o in optimizer["groups"])
            parts["optimizer"] = OptimizerConfig(**optimizer)
            parts["data"] = DataConfig(**parts["data"])
            parts["seeds"] = Seeds(**parts["seeds"])
            return cls(**parts)
        except TrainingError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"this is no training configuration: {error!r}") from error

    def digest(self) -> str:
        """Sixteen hexadecimal digits, the same for the same training.

        Settings that have their default value do not count, so that a new one changes nothing.
        """
        text = json.dumps([RECIPE, _list_changed(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _list_changed(config: Any) -> dict[str, Any]:
    """Type and settings other than the default ones, nested."""
    changed: dict[str, Any] = {"": type(config).__name__}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            changed[item.name] = _list_changed(value)
        elif value != item.default:
            changed[item.name] = value
    return changed


def describe_changes(config: TrainingConfig, other: TrainingConfig) -> list[str]:
    """Names of the settings in which two configurations differ, such as ``optimizer.lr``."""
    changes: list[str] = []
    for item in fields(config):
        one, two = getattr(config, item.name), getattr(other, item.name)
        if one == two:
            continue
        if type(one) is type(two) and is_dataclass(one):
            inner = [f for f in fields(one) if getattr(one, f.name) != getattr(two, f.name)]
            changes += [f"{item.name}.{f.name}" for f in inner]
        else:
            changes.append(item.name)
    return changes
