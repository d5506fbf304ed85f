r"""All methods of the campaign, by what they are compared in.

A grid names what was tried: learning rates by factors of two or three around the optimizer's usual
one, and for each way to sparse weights its own strength.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.training.config import (
    GradualPruning,
    L1Penalty,
    OptimizerConfig,
    Powerpropagation,
    TrainingConfig,
)
from mirrormargin.training.configurations import PAPER_RATES, find_configuration

__all__ = [
    "ENCODERS",
    "FRONTIERS",
    "LONG",
    "METHODS",
    "PAPER",
    "PAPER_6",
    "PAPER_VIT",
    "PLAIN",
    "SMALL",
    "VISION",
]

SEEDS = (0, 1, 2)
RATES = (3e-4, 1e-3, 3e-3)
HIGH_RATES = (1e-3, 3e-3)  # weights to be removed come from long steps
ADAMW = OptimizerConfig("AdamW", 0.0, weight_decay=0.01)


def tune(
    config: str,
    name: str,
    optimizers: OptimizerConfig | Mapping[str, OptimizerConfig],
    rates: Sequence[float],
    *,
    seeds: Sequence[int] = SEEDS,
    removed: Sequence[float] = (),
    sparsifiers: Mapping[str, Any] | None = None,
    records_of: str = "",
    model: dict[str, Any] | None = None,
    **changes: Any,
) -> Method:
    """A method whose grid is optimizers times sparsifiers times learning rates."""
    base = replace(find_configuration(config), **changes)
    if model:
        base = replace(base, model=replace(base.model, **model))
    if isinstance(optimizers, OptimizerConfig):
        optimizers = {"": optimizers}
    grid: dict[str, TrainingConfig] = {}
    for label, optimizer in optimizers.items():
        for other, sparsifier in (sparsifiers or {"": None}).items():
            for rate in rates:
                setting = "-".join(part for part in (label, other, f"lr{rate:g}") if part)
                changed = replace(optimizer, lr=rate)
                grid[setting] = replace(base, optimizer=changed, sparsifier=sparsifier)
    return Method(config, name, grid, tuple(seeds), tuple(removed), records_of or name)


def mirror_adam(p: float, **options: Any) -> OptimizerConfig:
    return OptimizerConfig("MirrorAdam", 0.0, p=p, **options)


def mirror_descent(p: float, **options: Any) -> OptimizerConfig:
    return OptimizerConfig("MirrorDescent", 0.0, p=p, **options)


NEAR_ONE = {f"p{p:g}": mirror_adam(p) for p in (1.1, 1.05)}
# The counterpart of Powerpropagation's best on CIFAR-10, alpha = 4.
FOR_IMAGES = NEAR_ONE | {"p1.25": mirror_adam(1.25)}


def _compare_pruning(
    config: str,
    seeds: Sequence[int],
    mirror: Mapping[str, OptimizerConfig] = NEAR_ONE,
    rates: Sequence[float] = RATES,
    penalties: Sequence[float] = (3e-5, 6e-5),
    high_rates: Sequence[float] = HIGH_RATES,
) -> tuple[Method, ...]:
    """Ways to weights that can be removed, on one configuration.

    Args:
        config: Its name.
        seeds: Of the chosen settings.
        mirror: Mirror optimizers to choose from.
        rates: Learning rates of AdamW.
        penalties: Strengths of the L1 penalty.
        high_rates: Learning rates of everything that makes sparse weights.
    """
    sparse: dict[str, Any] = {"seeds": seeds, "removed": (0.9, 0.95, 0.98)}
    sparsest: dict[str, Any] = {"seeds": seeds, "removed": (0.9, 0.95, 0.98, 0.998)}
    strengths = {f"l1-{x:g}": L1Penalty(x) for x in penalties}
    # MirrorAdam's grid is the smaller one: without the longest steps and the weakest penalties.
    strong = {name: penalty for name, penalty in strengths.items() if penalty.strength >= 3e-5}
    return (
        tune(config, "MirrorAdam for pruning", mirror, high_rates, **sparse),
        tune(config, "AdamW", ADAMW, rates, seeds=seeds),
        tune(config, "AdamW for pruning", ADAMW, rates, records_of="AdamW", **sparse),
        tune(config, "AdamW + L1", ADAMW, high_rates, sparsifiers=strengths, **sparsest),
        tune(
            config,
            "AdamW + L1 for pruning",
            ADAMW,
            high_rates,
            records_of="AdamW + L1",
            sparsifiers=strengths,
            **sparse,
        ),
        tune(config, "MirrorAdam + L1", NEAR_ONE, high_rates[:-1], sparsifiers=strong, **sparsest),
        # With Adam on theta this is close to MirrorAdam at p = 1 + 1 / alpha: the factor
        # alpha |theta|^(alpha - 1) of the gradient cancels in Adam's direction.
        tune(
            config,
            "Powerpropagation",
            OptimizerConfig("Adam", 0.0),
            high_rates,
            sparsifiers={f"alpha-{x:g}": Powerpropagation(x) for x in (2.0, 4.0, 10.0)},
            **sparse,
        ),
        *(
            tune(
                config,
                f"gradual pruning to {share:.0%}",
                ADAMW,
                high_rates,
                seeds=seeds,
                removed=(share,),
                sparsifiers={"": GradualPruning(share)},
            )
            for share in (0.95, 0.98)
        ),
    )


_TRIED = NEAR_ONE | {
    "p1.03": mirror_adam(1.03),
    "p1.02": mirror_adam(1.02),
    "decay1": mirror_adam(1.1, weight_decay=1.0),
    "blocks-only": OptimizerConfig("MirrorAdam", 0.0, groups=(("blocks.*", {"p": 1.1}),)),
    "p1.05-rms": mirror_adam(1.05, scale="rms"),
}


def _try_constant_steps(methods: tuple[Method, ...], setting: str) -> tuple[Method, ...]:
    """The first method's grid with one setting more: an earlier one without a schedule."""
    first = methods[0]
    config = replace(first.grid[setting], schedule="constant")
    return (replace(first, grid={**first.grid, f"constant-{setting}": config}), *methods[1:])


FRONTIERS: dict[str, tuple[Method, ...]] = {
    "imdb/small": (
        *_try_constant_steps(
            _compare_pruning(
                "imdb/small", SEEDS, _TRIED, (1e-4, *RATES, 1e-2), (1e-5, 3e-5, 6e-5, 1e-4)
            ),
            "p1.05-lr0.001",
        ),
        tune("imdb/small", "MirrorAdam p=1.1", mirror_adam(1.1), RATES),
    ),
    # Strengths that did badly on IMDB are not tried again.
    "sst2/small": _compare_pruning("sst2/small", (0,)),
    # On MNIST the longest steps and the strongest penalty of IMDB's grid were everyone's best.
    "mnist/small": _compare_pruning(
        "mnist/small",
        (0,),
        FOR_IMAGES,
        rates=(*RATES, 1e-2),
        penalties=(3e-5, 6e-5, 2e-4, 6e-4),
        high_rates=(*HIGH_RATES, 1e-2),
    ),
    "cifar10/small": _compare_pruning(
        "cifar10/small",
        (0,),
        FOR_IMAGES,
        rates=(*HIGH_RATES, 1e-2),
        penalties=(6e-5, 2e-4),
        high_rates=(3e-3, 1e-2),
    ),
}

# The plain rule, as paper A uses it.
AS_PUBLISHED: dict[str, Any] = {
    "schedule": "constant",
    "warmup": 0.0,
    "paper_protocol": True,
    "protocol_size": 5_000,
}

SMALL = (
    *(
        tune("imdb/small", f"MirrorAdam p={p:g}", mirror_adam(p), rates)
        for p, rates in ((1.5, RATES), (3.0, (1e-4, 3e-4, 1e-3)))
    ),
    tune(
        "imdb/small",
        "SGD + momentum",
        OptimizerConfig("SGD", 0.0, momentum=0.9),
        (*RATES, 1e-2),
        model={"init_std": None},
    ),
)

PLAIN_RATES = {
    1.1: (1e-3, 2e-3, 4e-3),
    2.0: (1e-3, 2e-3, 4e-3, 8e-3),
    3.0: (1e-5, 3e-5, 6e-5, 1.2e-4),
}
PLAIN = tuple(
    tune("imdb/tiny", f"MirrorDescent p={p:g}", mirror_descent(p), rates, **AS_PUBLISHED)
    for p, rates in PLAIN_RATES.items()
)

# One long run for each p, at the learning rate that was chosen on imdb/tiny.
LONG = tuple(
    tune(
        "imdb/small",
        f"long MirrorDescent p={p:g}",
        mirror_descent(p),
        (rate,),
        seeds=(0,),
        epochs=25,
        stop_accuracy=0.995,
        model={"init_std": None},
        **AS_PUBLISHED,
    )
    for p, rate in ((1.1, 2e-3), (2.0, 8e-3), (3.0, 6e-5))
)

# Steps of one length for each tensor, as paper A's normaliser has it; SNGD is paper B's, of one
# length for all of them together.
PER_TENSOR = mirror_descent(2.0, step_rule="normalized")

# MirrorDescent at p = 2 is SGD.
VISION: dict[str, tuple[Method, ...]] = {
    config: (
        tune(config, "MD p=1.1", mirror_descent(1.1), (1e-1, 3e-1, 1.0), seeds=seeds),
        tune(config, "SGD", OptimizerConfig("SGD", 0.0), (1e-1, 3e-1, 1.0, 3.0), seeds=seeds),
        tune(config, "SNGD", OptimizerConfig("SNGD", 0.0), (3e-1, 1.0, 3.0), seeds=seeds),
        tune(config, "SNGD per tensor", PER_TENSOR, (3e-2, 1e-1, 3e-1), seeds=seeds),
        tune(config, "Adam", OptimizerConfig("Adam", 0.0), (*HIGH_RATES, 1e-2, 3e-2), seeds=seeds),
    )
    for config, seeds in (("mnist/small", SEEDS), ("cifar10/small", (0,)))
}

POLYAK = OptimizerConfig("Polyak", 0.0, max_lr=1.0)

# On MultiNLI, where a run takes long, with the learning rates that CivilComments chose, and without
# Polyak's steps, which were behind all others there.
_ENCODER_RATES = {
    "civil-subset/minilm": ((1e-2, 3e-2, 1e-1), (1e-2, 3e-2, 1e-1), (1.0,), (2e-5, 1e-4)),
    "mnli-subset/minilm": ((3e-2,), (3e-2,), (), (1e-4,)),
}
ENCODERS: dict[str, tuple[Method, ...]] = {
    config: (
        tune(config, "SGD", OptimizerConfig("SGD", 0.0), sgd, seeds=(0,)),
        tune(config, "SNGD", OptimizerConfig("SNGD", 0.0), sngd, seeds=(0,)),
        *(tune(config, "Polyak", POLYAK, (rate,), seeds=(0,)) for rate in polyak),
        tune(config, "Adam", OptimizerConfig("Adam", 0.0), adam, seeds=(0,)),
    )
    for config, (sgd, sngd, polyak, adam) in _ENCODER_RATES.items()
}
ENCODERS["civil-subset/minilm"] += (
    tune("civil-subset/minilm", "SNGD per tensor", PER_TENSOR, (1e-3, 3e-3, 1e-2), seeds=(0,)),
)

METHODS: tuple[Method, ...] = (
    *FRONTIERS["imdb/small"],
    *SMALL,
    *PLAIN,
    *FRONTIERS["mnist/small"],
    *VISION["mnist/small"],
    *ENCODERS["civil-subset/minilm"],
    *LONG,
    *FRONTIERS["sst2/small"],
    *FRONTIERS["cifar10/small"],
    *VISION["cifar10/small"],
    *ENCODERS["mnli-subset/minilm"],
)

# The published sizes, learning rates and repeats: for machines with a GPU.
PAPER = tuple(
    tune(
        f"imdb/paper-{layers}",
        f"MirrorDescent p={p:g}",
        mirror_descent(p),
        (rate,),
        seeds=tuple(range(10)),
        paper_protocol=True,
    )
    for p, rates in PAPER_RATES.items()
    for layers, rate in rates.items()
)
PAPER_6 = tuple(method for method in PAPER if method.config == "imdb/paper-6")
PAPER_VIT = (
    tune("cifar10/paper", "Adam", OptimizerConfig("Adam", 0.0), (1e-4,), seeds=(0,)),
    tune("cifar10/paper", "MD p=1.1", mirror_descent(1.1), (5e-2,), seeds=(0,)),
)
