r"""The training loop: one that any optimizer goes through, and that can be killed at any moment.

A training lives in a folder (:class:`mirrormargin.training.folder.TrainingFolder`). Calling
:func:`train_model` again on it resumes from its checkpoint and ends at the same result, bit for bit
on the same CPU with the same number of threads. (GPUs add in no fixed order.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from mirrormargin.data import DataSet
from mirrormargin.errors import DivergedError, TrainingError
from mirrormargin.training.batches import augment_images, order_epoch
from mirrormargin.training.building import build_model
from mirrormargin.training.checkpoint import (
    capture_random_state,
    flatten_optimizer,
    restore_optimizer,
    restore_random_state,
)
from mirrormargin.training.config import TrainingConfig
from mirrormargin.training.evaluation import compute_loss, count_right, evaluate
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.metrics import MetricsFile
from mirrormargin.training.optimizers import build_optimizer
from mirrormargin.training.schedule import find_factor
from mirrormargin.training.sparsifiers import build_sparsifier, collect_weights
from mirrormargin.training.sparsity import count_underflowed

__all__ = ["Training", "train_model"]

ROWS = 200  # rows of "steps" in a whole training, about


@dataclass
class Position:
    """How far a training is; all of it is in a checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    # Of the epoch that is under way, and of the stretch of steps since the last row.
    epoch_loss: float = 0.0
    epoch_right: int = 0
    stretch_loss: float = 0.0
    stretch_start: int = 0
    selected_epoch: int = 0
    selected_accuracy: float = -1.0
    is_over: bool = False
    epochs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """A training that has ended.

    Attributes:
        config: What was trained.
        epochs: One row an epoch, as in ``metrics.jsonl``.
        selected_epoch: The one with the best validation accuracy, the first of equals.
        final: Weights after the last epoch, by their plain names.
        selected: Weights of the selected epoch.
        seconds: Spent in training and in evaluations.
        underflowed: Weights that are zero in the number format while their dual variables are not.
    """

    config: TrainingConfig
    epochs: list[dict[str, Any]]
    selected_epoch: int
    final: dict[str, Tensor]
    selected: dict[str, Tensor]
    seconds: float
    underflowed: int


def train_model(
    config: TrainingConfig,
    data: DataSet,
    folder: str | os.PathLike[str],
    *,
    device: str = "cpu",
    checkpoint_every: float = 30.0,
    tensorboard: bool = False,
    on_step: Callable[[int, int, dict[str, Any]], None] | None = None,
) -> Training:
    """Train, or go on training, in a folder.

    Args:
        config: What to train.
        data: The configuration's data (:func:`load_training_data`).
        folder: Where everything is kept; made if it does not exist.
        device: Where to compute.
        checkpoint_every: Seconds between two checkpoints. One is written after every epoch too.
        tensorboard: Write the metrics as TensorBoard events as well.
        on_step: Called after every step with its number, the number of all steps and what is
            known: ``epoch``, ``train_loss`` and ``train_accuracy`` of it so far, and the best
            ``validation_accuracy`` so far, None in the first epoch. If it raises
            KeyboardInterrupt the training ends with a checkpoint of that step.

    Raises:
        TrainingError: If the folder holds another training, or one that is damaged.
        DivergedError: If the loss is no number any more.
        RunError: If another process is training there.
    """
    home = TrainingFolder(folder)
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices):
        # First of all: settings that do not fit together leave no folder behind.
        run = _Run(config, data, home, device)
        with home.hold():
            home.claim(config, data)
            return run.train(checkpoint_every, tensorboard, on_step)


class _Run:
    """A training in memory: model, optimizer, and the position that goes with them."""

    def __init__(
        self, config: TrainingConfig, data: DataSet, folder: TrainingFolder, device: str
    ) -> None:
        self.config, self.data, self.folder, self.device = config, data, folder, device
        self.model = build_model(config, data).to(device)
        self.batch_size = min(config.batch_size, len(data.train))
        self.num_batches = len(data.train) // self.batch_size
        self.num_steps = self.num_batches * config.epochs
        self.every = max(1, self.num_steps // ROWS)
        # In a sum over the batch the mean loss counts batch_size times, so must the penalty.
        weight = self.batch_size if config.reduction == "sum" else 1
        self.sparsifier = build_sparsifier(config.sparsifier, self.model, weight)
        self.optimizer = build_optimizer(config.optimizer, self.model)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.forward: Callable[[Tensor], Tensor] = self.model
        if config.compile:
            self.forward = torch.compile(self.model)
        self.is_mixed = config.precision == "mixed" and device.startswith("cuda")
        self.position = Position()
        self.selected: dict[str, Tensor] = {}
        torch.manual_seed(config.seeds.dropout)

    def train(
        self,
        checkpoint_every: float,
        tensorboard: bool,
        on_step: Callable[[int, int, dict[str, Any]], None] | None,
    ) -> Training:
        written = self._load()
        position = self.position
        with self.folder.open_metrics(written, position.step, tensorboard) as metrics:
            began = saved = time.monotonic()
            before = position.seconds
            while not position.is_over:
                order = order_epoch(
                    self.config.seeds.order,
                    position.epoch,
                    len(self.data.train),
                    self.config.batch_size,
                )
                self.model.train()
                for batch in order[position.batch :]:
                    self._step(batch, metrics)
                    now = time.monotonic()
                    position.seconds = before + now - began
                    if on_step is not None:
                        try:
                            on_step(position.step, self.num_steps, self._describe())
                        except KeyboardInterrupt:
                            self._save(metrics)
                            raise
                    if now - saved >= checkpoint_every and position.batch < self.num_batches:
                        self._save(metrics)
                        saved = time.monotonic()
                self._end_epoch(metrics)
                position.seconds = before + time.monotonic() - began
                self._save(metrics)
                saved = time.monotonic()
        return self._finish()

    def _step(self, batch: Tensor, metrics: MetricsFile) -> None:
        config, position = self.config, self.position
        inputs = self.data.train.inputs[batch].to(self.device)
        labels = self.data.train.labels[batch].to(self.device)
        if config.augment:
            inputs = augment_images(inputs)
        factor = find_factor(config.schedule, config.warmup, position.step, self.num_steps)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.is_mixed):
            logits = self.forward(inputs)
        loss = compute_loss(logits.float(), labels, config.reduction)
        loss.backward()
        self.sparsifier.after_backward()
        if config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        value = float(loss.detach())
        if config.optimizer.is_polyak:
            self.optimizer.step(loss=value)  # pyright: ignore[reportCallIssue]
        else:
            self.optimizer.step()
        position.step += 1
        position.batch += 1
        self.sparsifier.after_step(position.step, self.num_steps)
        mean = value / (len(batch) if config.reduction == "sum" else 1)
        self._check_loss(value)
        position.epoch_loss += mean
        position.epoch_right += count_right(logits.detach(), labels)
        position.stretch_loss += mean
        if position.step % self.every == 0:
            steps = position.step - position.stretch_start
            metrics.write(
                "steps", position.step, {"train_loss": round(position.stretch_loss / steps, 6)}
            )
            position.stretch_loss, position.stretch_start = 0.0, position.step

    def _end_epoch(self, metrics: MetricsFile) -> None:
        config, position = self.config, self.position
        seen = self.num_batches * self.batch_size
        loss, accuracy = evaluate(self.model, self.data.validation)
        self._check_loss(loss)
        row = {
            "epoch": position.epoch + 1,
            "train_loss": round(position.epoch_loss / self.num_batches, 6),
            "train_accuracy": round(100 * position.epoch_right / seen, 4),
            "validation_loss": round(loss, 6),
            "validation_accuracy": round(accuracy, 4),
        }
        if config.paper_protocol:
            _, test = evaluate(self.model, self.data.test, config.protocol_size)
            row["test_accuracy"] = round(test, 4)
        position.epochs.append(row)
        metrics.write("epoch", position.step, row)
        position.epoch, position.batch = position.epoch + 1, 0
        position.epoch_loss, position.epoch_right = 0.0, 0
        if row["validation_accuracy"] > position.selected_accuracy:
            position.selected_accuracy = row["validation_accuracy"]
            position.selected_epoch = position.epoch
            self.selected = collect_weights(self.model)
        is_learnt = (
            config.stop_accuracy is not None and row["train_accuracy"] >= 100 * config.stop_accuracy
        )
        position.is_over = is_learnt or position.epoch >= config.epochs

    def _check_loss(self, loss: float) -> None:
        if not isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} in step {self.position.step}: try a smaller learning rate"
                f" than {self.config.optimizer.lr:g}"
            )

    def _describe(self) -> dict[str, Any]:
        position = self.position
        steps = max(position.batch, 1)
        return {
            "epoch": position.epoch + 1,
            "train_loss": position.epoch_loss / steps,
            "train_accuracy": 100 * position.epoch_right / (steps * self.batch_size),
            "validation_accuracy": position.selected_accuracy if position.epochs else None,
        }

    def _save(self, metrics: MetricsFile) -> None:
        optimizer, rest = flatten_optimizer(self.optimizer)
        parts = {
            "model": self.model.state_dict(),
            "selected": self.selected,
            "optimizer": optimizer,
            "sparsifier": self.sparsifier.tensors(),
            "random": capture_random_state(self.device),
        }
        document = {
            "digest": self.config.digest(),
            "position": vars(self.position),
            "optimizer": rest,
            "metrics_bytes": metrics.flush(),
        }
        self.folder.write_checkpoint(parts, document)

    def _load(self) -> int:
        """Load the checkpoint, if there is one; returns the bytes of metrics that belong to it."""
        found = self.folder.read_checkpoint()
        if found is None:
            return 0
        parts, document = found
        for part, tensors in parts.items():
            if part != "random":
                parts[part] = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        try:
            if document["digest"] != self.config.digest():
                raise TrainingError(
                    f"the checkpoint in {self.folder.path} belongs to another training: remove it"
                )
            self.model.load_state_dict(parts["model"])
            restore_optimizer(self.optimizer, parts.get("optimizer", {}), document["optimizer"])
            self.sparsifier.load(parts.get("sparsifier", {}))
            self.selected = parts.get("selected", {})
            restore_random_state(parts["random"], self.device)
            self.position = Position(**document["position"])
            return int(document["metrics_bytes"])
        except TrainingError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise TrainingError(
                f"the checkpoint in {self.folder.path} does not fit this training: {error}"
            ) from error

    def _finish(self) -> Training:
        position, final = self.position, collect_weights(self.model)
        self.folder.write_result(self.config, self.data, final, self.selected)
        return Training(
            self.config,
            position.epochs,
            position.selected_epoch,
            final,
            self.selected,
            position.seconds,
            self._count_underflowed(),
        )

    def _count_underflowed(self) -> int:
        """Weights that vanished in the number format, without those that were pruned."""
        weights = dict(self.model.named_parameters())
        counts = count_underflowed(self.optimizer, weights)
        for name, mask in self.sparsifier.tensors().items():
            if name in counts:
                dual = self.optimizer.state[weights[name]]["dual"]
                counts[name] -= int(((dual != 0) & ~mask.to(dual.device)).sum())
        return sum(counts.values())
