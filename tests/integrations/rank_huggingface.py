"""Trainings by the Trainer, and the plain loop beside them; see test_huggingface.py."""

from __future__ import annotations

from typing import Any

import torch
from rank_processes import set_environment
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import mirrormargin as mm
from mirrormargin.integrations.huggingface import (
    PolyakCallback,
    SparsityCallback,
    mirror_defaults,
    mirror_optimizer,
)

NUM_STEPS, NUM_ROWS = 12, 24
POLYAK = {"step_rule": "polyak", "lr": 0.05, "max_lr": 20.0}
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_strategy": "no"}


class Net(nn.Module):
    """A classifier that returns what the Trainer expects; in float64, so that rounding is small."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.double()

    def forward(self, inputs, labels=None):
        logits = self.second(torch.tanh(self.first(inputs)))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def draw_rows():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(NUM_ROWS, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (NUM_ROWS,), generator=generator)


ROWS = [{"inputs": x, "labels": y} for x, y in zip(*draw_rows(), strict=True)]


class Steps(TrainerCallback):
    """Keeps the length of each step."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def on_optimizer_step(self, args, state, control, optimizer: Any = None, **_: Any) -> None:
        self.lengths += optimizer.optimizer.effective_lr[:1]


def make_trainer(folder, given, callbacks=(), parts=1, count=1, net=None, **options):
    """Each step takes all rows, in so many parts."""
    settings = {"max_steps": NUM_STEPS, "save_strategy": "no", **QUIET, **mirror_defaults()}
    size = NUM_ROWS // parts // count
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=size,
        gradient_accumulation_steps=parts,
        **settings | options,
    )
    return Trainer(
        model=Net() if net is None else net,
        args=arguments,
        train_dataset=ROWS,
        eval_dataset=ROWS,
        optimizer_cls_and_kwargs=given,
        callbacks=list(callbacks),
    )


def train_alone(kind, schedule=None, **options):
    """The plain loop: the model, and the length of each step."""
    net, (inputs, labels) = Net(), draw_rows()
    optimizer: Any = kind(mm.mirror_groups(net, p=1.3), **options)
    plan = None if schedule is None else mm.SparsitySchedule(optimizer, **schedule)
    lengths = []
    for _ in range(NUM_STEPS):
        loss = net(inputs, labels)["loss"]
        loss.backward()
        optimizer.step(lambda loss=loss: loss)
        lengths += getattr(optimizer, "effective_lr", [])[:1]
        if plan is not None:
            plan.step()
        optimizer.zero_grad()
    return net, lengths


def check_weights(net, expected):
    for own, its in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(own, its, rtol=1e-9, atol=1e-11)
        assert torch.equal(own == 0, its == 0)


def check_training(launch: dict[str, int], folder: str) -> None:
    """Two ranks take the steps of one process, with Polyak's rule, a schedule and parts."""
    expected, lengths = train_alone(
        mm.MirrorDescent, {"share": 0.6, "num_steps": NUM_STEPS, "every": 3}, **POLYAK
    )
    set_environment(launch)
    given = mirror_optimizer(mm.MirrorDescent, 1.3, loss_over="world", **POLYAK)
    steps, sparsity = Steps(), SparsityCallback(0.6, every=3)
    trainer = make_trainer(folder, given, [steps, sparsity], parts=2, count=2, ddp_backend="gloo")
    trainer.add_callback(PolyakCallback(trainer))
    trainer.train()
    check_weights(trainer.model, expected)
    torch.testing.assert_close(steps.lengths, lengths, rtol=1e-9, atol=0.0)
    trainer.accelerator.end_training()
