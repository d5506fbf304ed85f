r"""A league of ways to sparse weights: who keeps most of a model at 95, 98 and 99% zeros?

Every way has eight settings. They are tried at 98% with one seed, the best on validation data is
then trained at each share and with every seed. Weights count if they belong to a matrix of a block;
all ways see the same batches, in as many steps, on the same cosine of the learning rate. At p = 2
MirrorAdam is AdamW, and its schedule is gradual pruning.

AdamW                    removed by size in the end, without further training
AdamW + L1               the proximal step of an l1 penalty, and a late schedule
gradual pruning          AdamW; the smallest weights go on a cubic course, for good
memoryless top-k         AdamW; on the same course, but weights may come back until it ends
MirrorAdam               p = 1.5, 1.35 or 1.25 on the block matrices, with a schedule
MirrorAdam + L1          the same with the proximal step of an l1 penalty
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.training.config import (
    GradualPruning,
    OptimizerConfig,
    Schedule,
    TrainingConfig,
)
from mirrormargin.training.configurations import find_configuration

__all__ = ["LEAGUE", "METHODS", "SHARES", "TUNED_AT", "compete", "name_way"]

SHARES = (0.95, 0.98, 0.99)
TUNED_AT = 0.98
PREFIX = "league "
SEEDS = (0, 1, 2)
BLOCKS = "blocks.*.[qkvoec]*.weight"  # the matrices: query to contract, and no norms

Make = Callable[[float], TrainingConfig]  # what is trained for a share


def compete(
    name: str, grid: Mapping[str, Make], *, seeds: Iterable[int] = SEEDS, one_shot: bool = False
) -> tuple[Method, ...]:
    """A method for each share, the setting of all of them chosen at one.

    Args:
        name: Of the way.
        grid: Settings.
        seeds: Of the chosen one.
        one_shot: Whether a training does for all shares, since weights are removed afterwards.
    """
    seeds = tuple(seeds)
    config = next(iter(grid.values()))(TUNED_AT).name

    def make(share: float, tuned: Method | None = None) -> Method:
        own = {setting: train(share) for setting, train in grid.items()}
        title = f"{PREFIX}{name}" + ("" if one_shot else f" {share:.0%}")
        return Method(config, title, own, seeds, removed=(share,), tuned=tuned)

    first = make(TUNED_AT)
    if one_shot:
        return (first,)
    return (first, *(make(share, first) for share in SHARES if share != TUNED_AT))


def name_way(method: Method) -> str:
    """The way that a method belongs to.

    Example:
        >>> name_way(LEAGUE["mnist/small"][1])
        'AdamW + L1'
    """
    return re.sub(r" \d+%$", "", method.name.removeprefix(PREFIX))


def _set_optimizer(base: TrainingConfig, p: float, rate: float, decay: float) -> TrainingConfig:
    optimizer = OptimizerConfig(
        "MirrorAdam",
        rate,
        weight_decay=decay,
        beta2=base.optimizer.beta2,
        groups=() if p == 2 else ((BLOCKS, {"p": p}),),
    )
    return replace(base, optimizer=optimizer)


def _list_ways(base: TrainingConfig, rates: tuple[float, float]) -> dict[str, dict[str, Make]]:
    """Eight settings of each way, around two learning rates."""
    courses = ((0.0, 0.7), (0.2, 0.8))
    low, high = rates

    def train(rate: float, decay: float = 0.0, p: float = 2.0, l1: float = 0.0) -> TrainingConfig:
        return replace(_set_optimizer(base, p, rate, decay), proximal_l1=l1)

    def keep(config: TrainingConfig) -> Make:
        return lambda share: config

    def schedule(config: TrainingConfig, start: float, end: float) -> Make:
        return lambda share: replace(config, sparsifier=Schedule(share, start, end))

    def prune(config: TrainingConfig, start: float, end: float, memoryless: bool) -> Make:
        return lambda share: replace(
            config, sparsifier=GradualPruning(share, start, end, memoryless)
        )

    return {
        "AdamW": {
            f"decay{decay:g}-lr{rate:g}": keep(train(rate, decay))
            for rate in (low / 4, low / 2, low, high)
            for decay in (0.0, 0.1)
        },
        "AdamW + L1": {
            f"l1-{l1:g}-lr{rate:g}": schedule(train(rate, l1=l1), 0.6, 0.9)
            for rate in rates
            for l1 in (0.003, 0.01, 0.03, 0.1)
        },
        **{
            name: {
                f"from{start:g}-to{end:g}-decay{decay:g}-lr{rate:g}": prune(
                    train(rate, decay), start, end, memoryless
                )
                for rate in rates
                for start, end in courses
                for decay in (0.0, 0.01)
            }
            for name, memoryless in (("gradual pruning", False), ("memoryless top-k", True))
        },
        "MirrorAdam": {
            f"p{p:g}-to{end:g}-lr{rate:g}": schedule(train(rate, p=p), 0.0, end)
            for rate in rates
            for p, end in ((1.5, 0.7), (1.5, 0.85), (1.35, 0.7), (1.25, 0.7))
        },
        "MirrorAdam + L1": {
            f"p1.5-l1-{l1:g}-lr{rate:g}": schedule(train(rate, p=1.5, l1=l1), 0.0, 0.7)
            for rate in rates
            for l1 in (0.003, 0.01, 0.03, 0.1)
        },
    }


def _make_league(
    config: str, rates: tuple[float, float], frontier_size: int | None
) -> tuple[Method, ...]:
    base = replace(find_configuration(config), frontier_size=frontier_size)
    if base.data.name == "shakespeare":  # it has no test part
        base = replace(base, data=replace(base.data, name="shakespeare-tested"))
    return tuple(
        method
        for name, grid in _list_ways(base, rates).items()
        for method in compete(name, grid, one_shot=name == "AdamW")
    )


LEAGUE: dict[str, tuple[Method, ...]] = {
    "mnist/small": _make_league("mnist/small", (7e-3, 1.5e-2), None),
    "shakespeare/char": _make_league("shakespeare/char", (6e-3, 1e-2), 1_000),
    "cifar10/small": _make_league("cifar10/small", (3e-3, 1e-2), 5_000),
}

METHODS: tuple[Method, ...] = tuple(one for methods in LEAGUE.values() for one in methods)
