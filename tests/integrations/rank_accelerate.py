"""Trainings by Accelerate, and the plain loop beside them; see test_accelerate.py."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from rank_processes import set_environment
from rank_tensors import get_whole
from torch import nn

import mirrormargin as mm

NUM_STEPS, STOP = 10, 6
KINDS = {
    "adam": (mm.MirrorAdam, {"lr": 0.05}),
    "centred": (mm.MirrorAdam, {"lr": 0.1, "center": True}),
    "normalized": (mm.MirrorDescent, {"lr": 0.05, "step_rule": "normalized", "momentum": 0.9}),
    "polyak": (mm.MirrorDescent, {"lr": 0.05, "step_rule": "polyak", "max_lr": 20.0}),
}


def make_net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def make_optimizer(net, name, loss_over="world"):
    kind, options = KINDS[name]
    more = {"loss_over": loss_over} if name == "polyak" else {}
    return kind(mm.mirror_groups(net, p=1.3), **options, **more)


def make_schedule(optimizer):
    return mm.SparsitySchedule(optimizer, 0.5, NUM_STEPS, every=2)


def draw_batches():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(NUM_STEPS, 12, 6, generator=generator, dtype=torch.float64)
    return list(zip(inputs, torch.randint(0, 3, (NUM_STEPS, 12), generator=generator), strict=True))


def train_alone(name):
    """The plain loop with whole batches."""
    net = make_net()
    optimizer = make_optimizer(net, name, loss_over="rank")
    schedule = make_schedule(optimizer)
    for inputs, labels in draw_batches():
        loss = nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step(lambda loss=loss: float(loss.detach()))
        schedule.step()
        optimizer.zero_grad()
    return net


def make_accelerator(mode: str, **options: Any) -> Accelerator:
    """Of CPUs: Accelerate uses FSDP on GPUs alone, but shards on CPUs as well if it is told."""
    AcceleratorState._reset_state(reset_partial_state=False)
    if mode != "fsdp":
        return Accelerator(cpu=True, **options)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="size_based_wrap",
        min_num_params=10,
        cpu_ram_efficient_loading=False,
    )
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin, **options)
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    return accelerator


class Training:
    """Model, optimizer and schedule of one process, as somebody who uses Accelerate has them."""

    def __init__(self, mode: str, name: str, parts: int = 1) -> None:
        self.accelerator = make_accelerator(mode, gradient_accumulation_steps=parts)
        net = make_net()
        self.optimizer: Any
        self.net, self.optimizer = self.accelerator.prepare(net, make_optimizer(net, name))
        self.schedule = make_schedule(self.optimizer)
        self.accelerator.register_for_checkpointing(self.schedule)
        self.parts = parts

    def train(self, steps: range) -> None:
        rank, count = self.accelerator.process_index, self.accelerator.num_processes
        for inputs, labels in [draw_batches()[k] for k in steps]:
            total = 0.0
            own = inputs.chunk(count)[rank], labels.chunk(count)[rank]
            for x, y in zip(*(one.chunk(self.parts) for one in own), strict=True):
                with self.accelerator.accumulate(self.net) if self.parts > 1 else nullcontext():
                    loss = nn.functional.cross_entropy(self.net(x), y)
                    total += float(loss.detach()) / self.parts
                    self.accelerator.backward(loss)
                    self.optimizer.step(lambda total=total: total)
                    if self.accelerator.sync_gradients:
                        self.schedule.step()
                    self.optimizer.zero_grad()

    def read(self) -> list[torch.Tensor]:
        return [get_whole(param.detach()).clone() for param in self.net.parameters()]


def check_training(launch: dict[str, int] | None, mode: str, name: str, folder: str, parts: int):
    """The plain loop's weights to rounding, and the same bits after a restart from a checkpoint."""
    if launch is not None:
        set_environment(launch)
    first = Training(mode, name, parts)
    first.train(range(STOP))
    first.accelerator.save_state(folder)
    first.train(range(STOP, NUM_STEPS))
    alone = list(train_alone(name).parameters())
    for own, expected in zip(first.read(), alone, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-12)
        assert torch.equal(own == 0, expected == 0)
    assert first.schedule.removed_share == 22 / 45  # of the entries of two matrices
    assert Path(folder, "custom_checkpoint_0.pkl").exists()  # the schedule

    second = Training(mode, name, parts)
    second.accelerator.load_state(folder)
    assert second.schedule.num_calls == STOP
    second.train(range(STOP, NUM_STEPS))
    for own, expected in zip(second.read(), first.read(), strict=True):
        assert torch.equal(own, expected), (own - expected).abs().max()
    second.schedule.finalize()
    assert not any("removed" in group for group in second.optimizer.param_groups)
    first.accelerator.end_training()
