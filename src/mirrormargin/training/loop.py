"""The training loop: one for every optimizer, which can be killed at any moment.

A training lives in a folder (:class:`mirrormargin.training.TrainingFolder`). Calling
:func:`train_model` again on it resumes from its checkpoint and ends at the same result, bit for bit
on the same CPU with the same number of threads. (GPUs add in no fixed order.)
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mirrormargin.arguments import check_number
from mirrormargin.data import DataSet, augment_images, order_epoch
from mirrormargin.data.language_sets import IGNORED
from mirrormargin.errors import DivergedError, TrainingError
from mirrormargin.training.attention_spread import measure_attention
from mirrormargin.training.building import find_factor, load_training_data
from mirrormargin.training.checkpoint import TrainingState
from mirrormargin.training.config import WITH_EXPONENT, TrainingConfig
from mirrormargin.training.distributed import Ranks, check_shared, join_ranks
from mirrormargin.training.evaluation import compute_loss, count_right, evaluate
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.launch import Parallel
from mirrormargin.training.metrics import MetricsFile, NoMetrics
from mirrormargin.training.sparsifiers import collect_weights, soften
from mirrormargin.training.trackers import Tracker, Tracking

__all__ = ["Training", "train_model"]

FAR_FROM_2 = 0.5  # of p, from where its powers may be what overflows
NUM_ROWS = 200  # rows of "steps" in a whole training, about
# Training losses whose first step is noted, by the mean over the last epoch's number of batches.
LEVELS = (0.5, 0.1, 0.01, 0.001)

OnStep = Callable[[int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class Training:
    """A training that has ended.

    Attributes:
        config: What was trained.
        folder: Where.
        epochs: One row for each epoch, as in the folder's metrics.
        selected_epoch: The one that is best on validation data by what the task is judged by, such
            as the accuracy, or the loss of a language model; the first of equals.
        final: Weights after the last epoch, by their plain names. Of processes that train together,
            the first has the weights, and the others have none.
        selected: Weights of the selected epoch.
        seconds: Spent in training and in evaluations.
        underflowed: Weights that are zero in the number format while their dual variables are not.
    """

    config: TrainingConfig
    folder: TrainingFolder
    epochs: list[dict[str, Any]]
    selected_epoch: int
    final: dict[str, Tensor]
    selected: dict[str, Tensor]
    seconds: float
    underflowed: int


def train_model(
    config: TrainingConfig,
    data: DataSet | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    device: str = "cpu",
    checkpoint_every: float = 30.0,
    trackers: Sequence[Tracker] = (),
    parallel: Parallel | None = None,
    on_step: OnStep | None = None,
) -> Training:
    """Train in a folder, or resume what was begun there.

    Args:
        config: What to train.
        data: The configuration's data; None to load it (:func:`load_training_data`).
        folder: Where everything is kept, made if it does not exist; None for
            ``runs/<name>-<digest>``.
        device: Where to compute.
        checkpoint_every: Seconds between two checkpoints. One is written after every epoch too.
        trackers: Who is told the metrics as well, such as ``TensorBoardTracker()``
            (:mod:`mirrormargin.training.trackers`); of several processes, by the first.
        parallel: ``"ddp"`` or ``"fsdp"`` in each of several processes that torchrun has started:
            they share every batch, and the first writes the folder. None for one process.
        on_step: Called after every step with its number, the number of all steps and what is
            known: ``epoch``, its ``train_loss`` and ``train_accuracy`` so far, and
            ``validation_accuracy``, ``validation_loss`` and whatever else the task is judged by of
            the best epoch so far, None in the first epoch. If it raises KeyboardInterrupt, in any
            process, the training ends with a checkpoint of that step.

    Raises:
        TrainingError: If the folder holds another training, or one that is damaged, or an option
            makes no sense.
        DivergedError: If the loss is not finite any more.
        RankError: If another one of the processes that train together is gone.
        RunError: If another process is training there.
    """
    check_number(
        "checkpoint_every", checkpoint_every, least=0.0, most=math.inf, error=TrainingError
    )
    home = TrainingFolder.choose(config) if folder is None else TrainingFolder(folder)
    data = load_training_data(config) if data is None else data
    with join_ranks(parallel, device) as ranks:
        devices = [torch.device(ranks.device)] if ranks.device.startswith("cuda") else []
        with torch.random.fork_rng(devices):
            # First of all: settings that do not fit together leave no folder behind.
            loop = _Loop(config, data, home, ranks)
            with home.hold() if ranks.is_first else nullcontext():
                if ranks.is_first:
                    home.claim(config, data)
                return loop.train(checkpoint_every, trackers, on_step)


class _Loop:
    def __init__(
        self, config: TrainingConfig, data: DataSet, folder: TrainingFolder, ranks: Ranks
    ) -> None:
        self.config, self.data, self.folder, self.ranks = config, data, folder, ranks
        self.device = ranks.device
        check_shared(config, data, ranks)
        self.state = TrainingState(config, data, ranks)
        self.model, self.optimizer = self.state.model, self.state.optimizer
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.batch_size = min(config.batch_size, len(data.train))
        self.num_batches = config.count_epoch_steps(len(data.train))
        # Answers of an epoch: a language model gives one for each token of an example.
        self.num_answers = self.num_batches * self.batch_size * data.train.labels[0].numel()
        self.num_steps = self.num_batches * config.epochs
        self.forward: Callable[[Tensor], Tensor] = ranks.wrap(self.model)
        if config.compile:
            self.forward = torch.compile(self.forward)
        self.lengths: Tensor | None = None
        if config.by_length:
            padding = getattr(self.model, "padding", 0)
            self.lengths = (data.train.inputs != padding).sum(dim=1)

    def train(
        self, checkpoint_every: float, trackers: Sequence[Tracker], on_step: OnStep | None
    ) -> Training:
        size = self.state.load(self.folder)
        position = self.state.position
        with self.open_metrics(size, trackers) as metrics:
            saved = time.monotonic()
            began = saved - position.seconds
            if position.step == 0 and self.config.attention_size is not None:
                metrics.write("attention", 0, self.measure_attention())
            while not position.is_over:
                self.model.train()
                for batch in self.order_epoch(position.epoch)[position.batch :]:
                    self.step(batch, metrics)
                    position.seconds = time.monotonic() - began
                    interrupt = None
                    try:
                        if on_step is not None:
                            on_step(position.step, self.num_steps, self.describe_progress())
                    except KeyboardInterrupt as error:
                        interrupt = error
                    is_due = time.monotonic() - saved >= checkpoint_every
                    is_over, is_due = self.ranks.agree(interrupt is not None, is_due)
                    if is_over or (is_due and position.batch < self.num_batches):
                        self.state.save(self.folder, metrics.flush())
                        saved = time.monotonic()
                    if is_over:
                        raise interrupt or KeyboardInterrupt
                self.end_epoch(metrics)
                position.seconds = time.monotonic() - began
                self.state.save(self.folder, metrics.flush())
                saved = time.monotonic()
        return self.finish()

    def open_metrics(self, size: int, trackers: Sequence[Tracker]) -> MetricsFile:
        if not self.ranks.is_first:
            return NoMetrics()
        settings = {"configuration": self.config.name, **self.config.list_values()}
        step = self.state.position.step
        tracking = Tracking(trackers, self.folder.path, settings, step) if trackers else None
        return self.folder.open_metrics(size, tracking)

    def order_epoch(self, epoch: int) -> Tensor:
        seed = self.config.seeds.order
        size, batch_size = len(self.data.train), self.config.batch_size
        order = order_epoch(seed, epoch, size, batch_size, self.lengths)
        return order[: self.num_batches]

    def step(self, batch: Tensor, metrics: MetricsFile) -> None:
        config, position = self.config, self.state.position
        inputs = self.data.train.inputs[batch].to(self.device)
        labels = self.data.train.labels[batch].to(self.device)
        if config.augment:
            inputs = augment_images(inputs)
        factor = find_factor(
            config.schedule, config.warmup, position.step, self.num_steps, config.final_rate
        )
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.zero_grad()
        is_mixed = config.precision == "mixed"
        kind = torch.device(self.device).type
        narrow = torch.autocast(kind, torch.bfloat16, enabled=is_mixed)
        with self.ranks.take_rows(inputs) as own, narrow:
            logits = self.forward(own)
        loss = self.compute_loss(logits.float() if is_mixed else logits, labels)
        loss.backward()
        self.state.sparsifier.after_backward()
        if config.clip is not None:
            self.ranks.clip(self.model, config.clip)
        own_labels = labels[self.ranks.find_rows(len(labels))]
        value, right = self.ranks.add(
            float(loss.detach()) / self.ranks.count, count_right(logits.detach(), own_labels)
        )
        if config.optimizer.is_polyak:
            self.optimizer.step(loss=value)  # pyright: ignore[reportCallIssue]
        else:
            self.optimizer.step()
        if config.proximal_l1:
            soften(self.optimizer, self.model, config.proximal_l1)
        position.step += 1
        position.batch += 1
        self.state.sparsifier.after_step(position.step, self.num_steps)
        self.check_loss(value)
        mean = value / (labels.numel() if config.reduction == "sum" else 1)
        self.count(mean, int(right), metrics)

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch, or of this rank's rows: the mean over ranks is that of the batch."""
        rows, reduction = self.ranks.find_rows(len(labels)), self.config.reduction
        if self.ranks.count == 1:
            return compute_loss(logits, labels, reduction)
        answers = int((labels != IGNORED).sum()) if reduction == "mean" else 1
        return compute_loss(logits, labels[rows], "sum") * (self.ranks.count / answers)

    def count(self, loss: float, right: int, metrics: MetricsFile) -> None:
        """Add a step to the sums, and write a row where a stretch of steps ends."""
        position = self.state.position
        position.epoch_loss += loss
        position.epoch_right += right
        position.stretch_loss += loss
        if position.step % max(1, self.num_steps // NUM_ROWS) == 0:
            steps = position.step - position.stretch_start
            row = {"train_loss": round(position.stretch_loss / steps, 6)}
            metrics.write("steps", position.step, row)
            position.stretch_loss, position.stretch_start = 0.0, position.step
        self.note_levels(loss, metrics)

    def note_levels(self, loss: float, metrics: MetricsFile) -> None:
        position = self.state.position
        position.recent = [*position.recent, loss][-self.num_batches :]
        if len(position.recent) < self.num_batches:
            return
        mean = sum(position.recent) / self.num_batches
        while position.num_levels < len(LEVELS) and mean <= LEVELS[position.num_levels]:
            metrics.write("level", position.step, {"train_loss": LEVELS[position.num_levels]})
            position.num_levels += 1

    def measure_attention(self) -> dict[str, Any]:
        assert self.config.attention_size is not None
        return measure_attention(self.model, self.data.train, self.config.attention_size)

    def end_epoch(self, metrics: MetricsFile) -> None:
        """Evaluate, keep the weights if they are the best so far, and see whether it is over."""
        config, position = self.config, self.state.position
        found = evaluate(self.model, self.data.validation, config.validation_size, self.ranks)
        self.check_loss(found.loss)
        row: dict[str, Any] = {
            "epoch": position.epoch + 1,
            "train_loss": round(position.epoch_loss / self.num_batches, 6),
            "train_accuracy": round(100 * position.epoch_right / self.num_answers, 4),
            "validation_loss": round(found.loss, 6),
            "validation_accuracy": round(found.accuracy, 4),
        }
        for name in config.task.measures:
            row.setdefault(f"validation_{name}", round(getattr(found, name), 4))
        if config.paper_protocol:
            test = evaluate(self.model, self.data.test, config.protocol_size, self.ranks)
            row["test_accuracy"] = round(test.accuracy, 4)
        position.epochs.append(row)
        metrics.write("epoch", position.step, row)
        if config.attention_size is not None:
            metrics.write("attention", position.step, self.measure_attention())
        position.epoch, position.batch = position.epoch + 1, 0
        position.epoch_loss, position.epoch_right = 0.0, 0
        column = f"validation_{config.task.measure}"
        best = position.epochs[position.selected_epoch - 1] if position.selected_epoch else None
        # Until a schedule has removed its share, the newest weights are the sparsest.
        is_sparse = config.is_sparse_after(
            position.selected_epoch * self.num_batches, self.num_steps
        )
        if best is None or not is_sparse or config.task.is_better(row[column], best[column]):
            position.selected_accuracy = row["validation_accuracy"]
            position.selected_epoch = position.epoch
            self.state.selected = self.ranks.collect(collect_weights(self.model))
        enough = config.stop_accuracy
        is_learnt = enough is not None and row["train_accuracy"] >= 100 * enough
        is_fitted = config.stop_loss is not None and row["train_loss"] <= config.stop_loss
        position.is_over = is_learnt or is_fitted or position.epoch >= config.epochs

    def finish(self) -> Training:
        state, position = self.state, self.state.position
        final = self.ranks.collect(collect_weights(self.model))
        if self.ranks.is_first:
            # Of a pretrained encoder, what is needed to use its weights without the checkpoint.
            architecture = getattr(state.model, "architecture", None)
            self.folder.write_result(self.config, self.data, final, state.selected, architecture)
        return Training(
            config=self.config,
            folder=self.folder,
            epochs=position.epochs,
            selected_epoch=position.selected_epoch,
            final=final,
            selected=state.selected,
            seconds=position.seconds,
            underflowed=state.count_underflowed(),
        )

    def check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            optimizer = self.config.optimizer
            is_far = optimizer.name in WITH_EXPONENT and abs(optimizer.p - 2) >= FAR_FROM_2
            other = f", or p nearer to 2 than {optimizer.p:g}" if is_far else ""
            raise DivergedError(
                f"the loss is {loss} in step {self.state.position.step}: try a smaller learning"
                f" rate than {optimizer.lr:g}{other}"
            )

    def describe_progress(self) -> dict[str, Any]:
        """What is known in the middle of an epoch."""
        position = self.state.position
        steps, selected = max(position.batch, 1), position.selected_epoch
        answers = self.num_answers * steps / self.num_batches
        best = position.epochs[selected - 1] if selected else {}
        column = f"validation_{self.config.task.measure}"
        return {
            column: best.get(column),
            "epoch": position.epoch + 1,
            "train_loss": position.epoch_loss / steps,
            "train_accuracy": 100 * position.epoch_right / answers,
            "validation_accuracy": position.selected_accuracy if position.epochs else None,
            "validation_loss": best.get("validation_loss"),
        }
