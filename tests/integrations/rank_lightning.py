"""Trainings by Lightning, and the plain loop beside them; see test_lightning.py."""

from __future__ import annotations

import logging
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from rank_processes import set_environment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mirrormargin as mm
from mirrormargin.integrations.lightning import PolyakCallback, SparsityCallback

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

NUM_ROWS, SIZE, EPOCHS = 48, 8, 3
NUM_STEPS = EPOCHS * NUM_ROWS // SIZE
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam": (mm.MirrorAdam, {"lr": 0.02}),
    "normalized": (mm.MirrorDescent, {"lr": 0.05, "step_rule": "normalized", "momentum": 0.9}),
    "polyak": (mm.MirrorDescent, {"lr": 0.05, "step_rule": "polyak", "max_lr": 20.0}),
}
PLAN = {"every": 3}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Net(LightningModule):
    """A classifier in float64, so that rounding is small; ``by_hand`` says how it is optimized."""

    def __init__(self, name: str, by_hand: str | None = None, **more: Any) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        self.name, self.by_hand, self.more = name, by_hand, more
        self.automatic_optimization = by_hand is None
        self.lengths: list[float] = []

    def configure_optimizers(self):
        kind, options = KINDS[self.name]
        return kind(mm.mirror_groups(self, p=1.3), **options | self.more)

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        if self.by_hand is not None:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step(**({"loss": loss} if self.by_hand == "with loss" else {}))
        return loss

    def on_train_batch_end(self, *_):
        self.lengths += getattr(self.trainer.optimizers[0], "effective_lr", [])[:1]


def draw_rows():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(NUM_ROWS, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (NUM_ROWS,), generator=generator)


def fit(net, callbacks=(), parts=1, resume=None, **options):
    """Each step takes the next rows, in so many parts."""
    saves = any(isinstance(one, ModelCheckpoint) for one in callbacks)
    settings: dict[str, Any] = {"max_epochs": EPOCHS, "accumulate_grad_batches": parts, **QUIET}
    settings |= {"enable_checkpointing": saves, **options}
    trainer = Trainer(callbacks=list(callbacks), **settings)
    loader = DataLoader(TensorDataset(*draw_rows()), batch_size=SIZE // parts)
    trainer.fit(net, loader, ckpt_path=resume)
    return net


def train_alone(name, schedule=None, clip=None, **more):
    """The plain loop."""
    net = Net(name, **more)
    optimizer: Any = net.configure_optimizers()
    plan = None if schedule is None else mm.SparsitySchedule(optimizer, **schedule)
    for _ in range(EPOCHS):
        for inputs, labels in zip(*(one.split(SIZE) for one in draw_rows()), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net.net(inputs), labels)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step(lambda loss=loss: loss)
            net.lengths += getattr(optimizer, "effective_lr", [])[:1]
            if plan is not None:
                plan.step()
    return net


def check_weights(net, expected):
    for own, its in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(own, its, rtol=1e-9, atol=1e-11)
        assert torch.equal(own == 0, its == 0)


class Halves(DataLoader):
    """The rows of one rank of two: a half of each batch."""

    def __init__(self, rank: int) -> None:
        halves = (
            torch.cat([batch.chunk(2)[rank] for batch in one.split(SIZE)]) for one in draw_rows()
        )
        super().__init__(TensorDataset(*halves), batch_size=SIZE // 2)


def check_training(launch: dict[str, int]) -> None:
    """Two ranks take the steps of one process, with Polyak's rule and a schedule."""
    expected = train_alone("polyak", {"share": 0.6, "num_steps": NUM_STEPS, **PLAN})
    set_environment(launch)
    net = Net("polyak", loss_over="world")
    trainer = Trainer(
        callbacks=[SparsityCallback(0.6, **PLAN), PolyakCallback()],
        max_epochs=EPOCHS,
        devices=2,
        strategy="ddp",
        use_distributed_sampler=False,
        enable_checkpointing=False,
        **QUIET,
    )
    trainer.fit(net, Halves(launch["rank"]))
    check_weights(net, expected)
    torch.testing.assert_close(net.lengths, expected.lengths, rtol=1e-9, atol=0.0)
