"""The state of a training: everything that a checkpoint keeps, saved and restored to the bit.

A checkpoint has tensors in the parts ``model``, ``selected``, ``optimizer``, ``sparsifier`` and
``random``; the position and the optimizer's options are kept beside them as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mirrormargin.data import DataSet
from mirrormargin.errors import TrainingError
from mirrormargin.training.building import build_model, build_optimizer
from mirrormargin.training.config import TrainingConfig
from mirrormargin.training.distributed import Ranks, get_local
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.sparsifiers import build_sparsifier
from mirrormargin.training.sparsity import count_underflowed

# Options that change with the step, or say how to compute and not what.
FREE = ("lr", "initial_lr", "foreach", "fused", "capturable")

__all__ = ["Position", "TrainingState", "flatten_optimizer", "restore_optimizer"]


@dataclass
class Position:
    """How far a training is.

    The losses and right answers are sums over the current epoch, and over the stretch of steps
    since the last row of metrics. ``recent`` has the losses of the latest batches, at most as many
    as an epoch has, and ``num_levels`` counts the levels that their mean has reached.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    epoch_loss: float = 0.0
    epoch_right: int = 0
    stretch_loss: float = 0.0
    stretch_start: int = 0
    recent: list[float] = field(default_factory=list)
    num_levels: int = 0
    selected_epoch: int = 0
    selected_accuracy: float = -1.0
    is_over: bool = False
    epochs: list[dict[str, Any]] = field(default_factory=list)

    def check(self, num_batches: int) -> None:
        """Raise a ValueError unless this is a position of a training with so many batches."""
        counts = (self.epoch, self.batch, self.step, self.epoch_right, self.stretch_start)
        sums = (self.seconds, self.epoch_loss, self.stretch_loss, *self.recent)
        if not all(type(one) is int and one >= 0 for one in counts):
            raise ValueError("a count of its position is no count")
        if not all(isinstance(one, (int, float)) and math.isfinite(one) for one in sums):
            raise ValueError("a sum of its position is not finite")
        if self.step != self.epoch * num_batches + self.batch or len(self.epochs) != self.epoch:
            raise ValueError(
                f"its step {self.step} is not batch {self.batch} of epoch {self.epoch + 1}"
            )


class TrainingState:
    """Model, optimizer, sparsifier, position, and the weights of the best epoch so far.

    Building it sets torch's global random numbers to the seed of dropout and augmentation.
    """

    def __init__(self, config: TrainingConfig, data: DataSet, ranks: Ranks) -> None:
        self.config, self.ranks, self.device = config, ranks, ranks.device
        self.model = ranks.place(build_model(config, data))
        # In a sum over the batch the mean loss counts once for each answer, so must the penalty.
        answers = min(config.batch_size, len(data.train)) * data.train.labels[0].numel()
        weight = answers if config.reduction == "sum" else 1
        self.sparsifier = build_sparsifier(config.sparsifier, self.model, weight)
        self.optimizer = build_optimizer(config.optimizer, self.model)
        self.position = Position()
        self.num_batches = config.count_epoch_steps(len(data.train))
        self.sparsifier.begin(self.optimizer, self.num_batches * config.epochs)
        self.selected: dict[str, Tensor] = {}
        torch.manual_seed(config.seeds.dropout)

    def save(self, folder: TrainingFolder, metrics_bytes: int) -> None:
        """Replace the checkpoint; ``metrics_bytes`` is how much of the metrics belongs to it.

        All ranks call this, and the first writes.
        """
        optimizer, rest = flatten_optimizer(self.optimizer)
        parts = {
            "model": self.ranks.collect(self.model.state_dict()),
            "selected": self.selected,
            "optimizer": self.ranks.collect(optimizer),
            "sparsifier": self.ranks.collect(self.sparsifier.tensors()),
            "random": capture_random_state(self.device),
        }
        if not self.ranks.is_first:
            return
        document = {
            "digest": self.config.digest(),
            "position": vars(self.position),
            "optimizer": rest,
            "metrics_bytes": metrics_bytes,
        }
        folder.write_checkpoint(parts, document)

    def load(self, folder: TrainingFolder) -> int:
        """Continue from the checkpoint if there is one.

        Returns:
            How many bytes of the metrics belong to it.

        Raises:
            TrainingError: If it is damaged, or belongs to another training.
        """
        found = folder.read_checkpoint() if self.ranks.is_first else None
        parts, document = ({}, None) if found is None else found
        document = self.ranks.broadcast(document)
        if document is None:
            return 0
        try:
            if not self._is_own(document["digest"]):
                raise ValueError("it belongs to another training")
            for name, tensor in parts.get("model", {}).items():
                if tensor.is_floating_point() and not tensor.isfinite().all():
                    raise ValueError(f"{name} is not finite")
            random = self.ranks.broadcast(parts.pop("random", {}))
            self.selected = parts.pop("selected", {})
            parts = self.ranks.spread(parts, self._make_finder())
            self.model.load_state_dict(parts["model"])
            restore_optimizer(self.optimizer, parts.get("optimizer", {}), document["optimizer"])
            _check_alike("sparsifier", parts.get("sparsifier", {}), self.sparsifier.tensors())
            self.sparsifier.load(parts.get("sparsifier", {}))
            restore_random_state(random, self.device)
            self.position = Position(**document["position"])
            self.position.check(self.num_batches)
            if document["digest"] != self.config.digest():
                self._extend()
            return int(document["metrics_bytes"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise TrainingError(
                f"the checkpoint in {folder.path} does not fit this training: {error}; remove it to"
                " begin again"
            ) from error

    def _make_finder(self) -> Callable[[str, str], Tensor | None]:
        """A function from a part and a name to the tensor that goes with one of a checkpoint."""
        params = [param for group in self.optimizer.param_groups for param in group["params"]]
        indexed = {str(index): param for index, param in enumerate(params)}
        own = {"model": self.model.state_dict(), "sparsifier": self.sparsifier.tensors()}

        def find(part: str, name: str) -> Tensor | None:
            if part == "optimizer":
                return indexed.get(name.partition("/")[0])
            return own[part].get(name)

        return find

    def _is_own(self, digest: str) -> bool:
        """Whether a checkpoint is of this training, or of one with fewer epochs."""
        return any(
            replace(self.config, epochs=epochs).digest() == digest
            for epochs in range(self.config.epochs, 0, -1)
        )

    def _extend(self) -> None:
        """There are more epochs now; what was learnt well enough stays so."""
        enough, epochs = self.config.stop_accuracy, self.position.epochs
        is_learnt = (
            enough is not None and epochs[-1:] and (epochs[-1]["train_accuracy"] >= 100 * enough)
        )
        self.position.is_over = bool(self.position.is_over and is_learnt)

    def count_underflowed(self) -> int:
        """Weights that vanished in the number format, without those that were pruned."""
        weights = dict(self.model.named_parameters())
        counts = count_underflowed(self.optimizer, weights)
        for name, mask in self.sparsifier.tensors().items():
            if name in counts:
                dual = get_local(self.optimizer.state[weights[name]]["dual"])
                counts[name] -= int(((dual != 0) & ~get_local(mask).to(dual.device)).sum())
        return int(self.ranks.add_shards(sum(counts.values())))


def _check_alike(part: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless names, types and shapes are the same."""
    shapes = [{k: (t.dtype, t.shape) for k, t in one.items()} for one in (found, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the tensors of its {part} are not those of this training")


def flatten_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], Any]:
    """An optimizer's state as tensors by ``<parameter>/<name>``, and the rest for JSON."""
    state = optimizer.state_dict()
    tensors, others = {}, {}
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}/{key}"] = value
            else:
                others[f"{index}/{key}"] = value
    return tensors, {"others": others, "groups": state["param_groups"]}


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor], document: Any) -> None:
    """Give an optimizer its state back: built as before, over weights that are loaded already.

    Raises:
        ValueError: If the state is that of another optimizer.
    """
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for path, tensor in tensors.items():
        shape = params[int(path.partition("/")[0])].shape
        if tensor.shape not in (shape, torch.Size()):
            raise ValueError(f"state {path} has shape {list(tensor.shape)}, not {list(shape)}")
    state: dict[int, dict[str, Any]] = {}
    for path, value in [*tensors.items(), *document["others"].items()]:
        index, _, key = path.partition("/")
        state.setdefault(int(index), {})[key] = value
    # JSON has no tuples, such as Adam's betas.
    groups = [
        {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
        for group in document["groups"]
    ]
    built = json.loads(json.dumps(optimizer.state_dict()["param_groups"]))
    for number, (saved, own) in enumerate(zip(document["groups"], built, strict=True)):
        # An option that is missing is newer than the checkpoint, or the optimizer refuses it.
        changed = [n for n in own if n not in FREE and saved.get(n, own[n]) != own[n]]
        if changed:
            raise ValueError(f"group {number} of its optimizer has another {', '.join(changed)}")
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def capture_random_state(device: str) -> dict[str, Tensor]:
    """The global random numbers that dropout and augmentation draw from."""
    state = {"cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Tensor], device: str) -> None:
    """Inverse of :func:`capture_random_state`."""
    torch.set_rng_state(state["cpu"])
    if device.startswith("cuda") and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
