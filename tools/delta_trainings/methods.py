"""How a method trains, and what it stores: full fine-tuning, masks, penalties, centred geometries.

A method gets the model before its first step and names what is trained; after every step it may
change the weights; in the end it stores what was changed, and reads it back into a new base.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import mirrormargin as mm
from mirrormargin.training.freezing import freeze_others

__all__ = ["METHODS", "Method", "Stored"]

COUNTS = (500, 2_000, 10_000, 50_000)
HEAD = ["head.*"]
HEAD_LR = 1e-3
Loss = Callable[[nn.Module], Iterator[Tensor]]  # of some batches, for masks


class Stored(NamedTuple):
    """A model made of what was stored, how many numbers that were (without the head), and bytes."""

    label: str
    model: nn.Module
    numbers: int
    bytes: int


@dataclass
class Method:
    """Settings of one training; unused ones stay as they are."""

    lr: float = 1e-3
    p: float = 2.0
    weight_decay: float = 0.0
    strength: float = 0.0
    count: int = 0
    r: int = 0
    then_lr: float = 0.0
    end: float = 0.6
    dropout: float | None = None  # None for that of the configuration

    trainable = ("blocks", "head.*")
    rates: list[float] = field(default_factory=list, init=False)  # of groups, at their highest
    num_steps = 0  # of the training

    def start(self, model: nn.Module, losses: Loss) -> torch.optim.Optimizer:
        """Make the optimizer; ``losses`` are those of some training batches."""
        freeze_others(model, list(self.trainable))
        head = [param for name, param in model.named_parameters() if name.startswith("head.")]
        chosen = {id(param) for param in head}
        rest = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
        groups: list[dict[str, Any]] = [{"params": head, "lr": HEAD_LR, "weight_decay": 0.0}]
        if rest:
            groups.append({"params": rest, "lr": self.lr, "weight_decay": self.weight_decay})
        return self.make_optimizer(groups, bool(rest))

    def make_optimizer(self, groups: list[dict[str, Any]], has_rest: bool) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, lr=self.lr, fused=True)

    def after_backward(self, model: nn.Module) -> None:
        """Change gradients."""

    def after_step(self, model: nn.Module, rate: float) -> None:
        """Change weights; ``rate`` is the present share of the learning rate."""

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        """Everything that is scored: by default the largest differences, at several numbers."""
        for count in (*COUNTS, None):
            yield _store_largest(model, base, folder, count)


def _store_largest(
    model: nn.Module | dict[str, Tensor], base: nn.Module, folder: Path, count: int | None
) -> Stored:
    limit = {"share": 1.0} if count is None else {"keep": count}
    delta = mm.SparseDelta.extract(model, base, whole=HEAD, **limit)
    file = folder / f"delta-{count}.safetensors"
    size = delta.save(file)
    found = copy.deepcopy(base)
    mm.SparseDelta.load(file).apply(found)
    file.unlink()
    return Stored("all" if count is None else str(count), found, delta.num_values, size)


class HeadAlone(Method):
    trainable = ("head.*",)

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        yield _store_largest(model, base, folder, None)


class BitFit(HeadAlone):
    trainable = ("*bias", "head.*")


class Full(Method):
    """AdamW on everything; its delta is pruned, or dropped at random and enlarged (DARE)."""

    trainable = ("*",)

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        yield from super().store(model, base, folder)
        new, old = model.state_dict(), base.state_dict()
        own = [name for name in old if not name.startswith("head.")]
        names = [name for name in own if old[name].is_floating_point()]
        size = sum(old[name].numel() for name in names)
        generator = torch.Generator().manual_seed(0)
        for count in COUNTS:
            share, dropped = count / size, dict(new)
            for name in names:
                kept = torch.rand(old[name].shape, generator=generator) < share
                dropped[name] = old[name] + torch.where(kept, (new[name] - old[name]) / share, 0.0)
            yield _store_largest(dropped, base, folder, None)._replace(label=f"dare {count}")


class L1(Method):
    """AdamW; after each step the changes of the matrices are shrunk by lr * strength."""

    def start(self, model: nn.Module, losses: Loss) -> torch.optim.Optimizer:
        optimizer = super().start(model, losses)
        self.before = {n: p.detach().clone() for n, p in _list_blocks(model)}
        return optimizer

    @torch.no_grad()
    def after_step(self, model: nn.Module, rate: float) -> None:
        for name, param in _list_blocks(model):
            change = param - self.before[name]
            change = change.sign() * (change.abs() - rate * self.lr * self.strength).clamp_min(0)
            param.copy_(self.before[name] + change)


class Center(Method):
    """MirrorAdam centred at the pretrained weights; a schedule leaves ``count`` changes.

    It removes changes from a third of ``end``, a share of the steps, to ``end``. With ``then_lr``
    those that are left are trained on by AdamW, at this learning rate.
    """

    def make_optimizer(self, groups: list[dict[str, Any]], has_rest: bool) -> torch.optim.Optimizer:
        groups[1] |= {"p": self.p, "center": True}
        optimizer = self.optimizer = mm.MirrorAdam(groups, lr=self.lr)
        self.schedule = None
        if self.count:
            matrices = [param for param in groups[1]["params"] if param.ndim == 2]
            share = 1 - self.count / sum(param.numel() for param in matrices)
            self.schedule = mm.SparsitySchedule(
                optimizer,
                share,
                self.num_steps,
                self.end / 3,
                self.end,
                params=matrices,
                every=10,
            )
        return optimizer

    def after_step(self, model: nn.Module, rate: float) -> None:
        if self.schedule is None:
            return
        self.schedule.step()
        group = self.optimizer.param_groups[1]
        if self.then_lr and self.schedule.is_over and group["p"] != 2:
            group["p"], self.rates[1] = 2.0, self.then_lr
            self.optimizer.resync()

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        if not self.count:
            yield from super().store(model, base, folder)
        else:
            found = _store_largest(model, base, folder, None)
            yield found._replace(label=str(self.count))


class AdaBreg(Method):
    """The elastic net, centred: changes are exactly 0 until u has passed the threshold."""

    def make_optimizer(self, groups: list[dict[str, Any]], has_rest: bool) -> torch.optim.Optimizer:
        groups[1] |= {"potential": mm.ElasticNetPotential(self.strength), "center": True}
        return mm.MirrorAdam(groups, lr=self.lr)


class Masked(Method):
    """AdamW on so many entries of the matrices, chosen before training, and on no others."""

    def choose(self, model: nn.Module, losses: Loss) -> dict[str, Tensor]:
        """A number for each entry: the largest are trained."""
        raise NotImplementedError

    def start(self, model: nn.Module, losses: Loss) -> torch.optim.Optimizer:
        optimizer = super().start(model, losses)
        sizes = self.choose(model, losses)
        names = [name for name, _ in _list_blocks(model)]
        chosen = torch.zeros(sum(sizes[name].numel() for name in names))
        chosen[torch.cat([sizes[name].flatten() for name in names]).topk(self.count).indices] = 1.0
        parts = chosen.split([sizes[name].numel() for name in names])
        self.masks = {
            name: part.view_as(sizes[name]) for name, part in zip(names, parts, strict=True)
        }
        return optimizer

    def after_backward(self, model: nn.Module) -> None:
        for name, param in _list_blocks(model):
            if param.grad is not None:
                param.grad.mul_(self.masks[name])

    def store(self, model: nn.Module, base: nn.Module, folder: Path) -> Iterator[Stored]:
        yield _store_largest(model, base, folder, None)._replace(label=str(self.count))


class FisherMask(Masked):
    """Entries whose squared gradients are largest over some batches."""

    def choose(self, model: nn.Module, losses: Loss) -> dict[str, Tensor]:
        squares = {name: torch.zeros_like(param) for name, param in _list_blocks(model)}
        for loss in losses(model):
            model.zero_grad()
            loss.backward()
            for name, param in _list_blocks(model):
                if param.grad is not None:
                    squares[name] += param.grad.square()
        model.zero_grad()
        return squares


class LotteryMask(Masked):
    """LT-SFT: entries that full fine-tuning has changed most, trained again from the base."""

    full: Path  # of the state that the full fine-tuning of this task and seed ended with

    def choose(self, model: nn.Module, losses: Loss) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        changed = load_file(self.full)
        return {name: (changed[name] - param.detach()).abs() for name, param in _list_blocks(model)}


def _list_blocks(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    from mirrormargin.training.sparsity import select_matrices

    chosen = set(select_matrices(model, "blocks"))
    return [(name, param) for name, param in model.named_parameters() if name in chosen]


METHODS: dict[str, type[Method]] = {
    "head": HeadAlone,
    "full": Full,
    "bitfit": BitFit,
    "l1": L1,
    "adabreg": AdaBreg,
    "center": Center,
    "fisher": FisherMask,
    "lottery": LotteryMask,
}
