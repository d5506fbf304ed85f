r"""Methods that decide claims which short trainings left open.

PAIRED      a dozen seeds of two optimizers on the same data, compared seed by seed: where does
            attention fall?
FITTED      subsets small enough to be fitted: normalised steps promise to be faster where the
            loss vanishes, so steps are counted until it has fallen to 0.5, 0.1, 0.01 and 0.001
LEARNT      IMDB reviews few enough that p = 1.1, 2 and 3 all reach paper A's training accuracy
CONVERGED   images few enough that mirror descent at p = 1.1 converges, as Adam does

A method with the ``records_of`` an earlier one shares its records: only new seeds are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrormargin.claims.campaign.compared_methods import (
    ADAMW,
    AS_PUBLISHED,
    PER_TENSOR,
    mirror_adam,
    mirror_descent,
)
from mirrormargin.claims.campaign.grid_search import Method
from mirrormargin.training.config import OptimizerConfig, TrainingConfig
from mirrormargin.training.configurations import find_configuration

__all__ = ["CONVERGED", "FITTED", "LEARNT", "METHODS", "MORE_SEEDS", "PAIRED"]

TWELVE = tuple(range(12))
THREE = (0, 1, 2)


def _continue(
    config: TrainingConfig, name: str, records_of: str, setting: str, optimizer: OptimizerConfig
) -> Method:
    """A dozen seeds of the setting that validation accuracy chose with three."""
    grid = {setting: replace(config, optimizer=optimizer)}
    return Method(config.name, f"{name}, 12 seeds", grid, TWELVE, records_of=records_of)


_TINY = replace(find_configuration("imdb/tiny"), **AS_PUBLISHED)
PAIRED: dict[str, tuple[Method, ...]] = {
    "imdb/small": (
        _continue(
            find_configuration("imdb/small"),
            "MirrorAdam p=1.05",
            "MirrorAdam for pruning",
            "p1.05-lr0.001",
            replace(mirror_adam(1.05), lr=1e-3),
        ),
        _continue(
            find_configuration("imdb/small"), "AdamW", "AdamW", "lr0.0003", replace(ADAMW, lr=3e-4)
        ),
    ),
    "imdb/tiny": tuple(
        _continue(
            _TINY,
            f"MirrorDescent p={p:g}",
            f"MirrorDescent p={p:g}",
            f"lr{rate:g}",
            replace(mirror_descent(p), lr=rate),
        )
        # the rate that validation chose for p = 2, 8e-3, fails to learn with some seeds
        for p, rate in ((1.1, 2e-3), (2.0, 4e-3))
    ),
}

SGD, SNGD, ADAM = (OptimizerConfig(name, 0.0) for name in ("SGD", "SNGD", "Adam"))
POLYAK = OptimizerConfig("Polyak", 0.5)  # half of the classical step, as in paper B


def _vary_rate(optimizer: OptimizerConfig, *rates: float) -> dict[str, OptimizerConfig]:
    return {f"lr{rate:g}": replace(optimizer, lr=rate) for rate in rates}


def _vary_cap(*caps: float) -> dict[str, OptimizerConfig]:
    return {f"max{cap:g}": replace(POLYAK, max_lr=cap) for cap in caps}


def _fit(
    config: TrainingConfig,
    optimizers: Mapping[str, Mapping[str, OptimizerConfig]],
    *,
    seeds: Sequence[int] = THREE,
    trial_epochs: int | None = None,
) -> tuple[Method, ...]:
    """One method for each optimizer, by how fast the training loss falls."""
    return tuple(
        Method(
            config.name,
            name,
            {setting: replace(config, optimizer=optimizer) for setting, optimizer in grid.items()},
            tuple(seeds),
            by_training_loss=True,
            trial_epochs=trial_epochs,
        )
        for name, grid in optimizers.items()
    )


FITTED: dict[str, tuple[Method, ...]] = {
    "mnist/fitted": _fit(
        find_configuration("mnist/fitted"),
        {
            "SGD": _vary_rate(SGD, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
            "SNGD": _vary_rate(SNGD, 0.05, 0.1, 0.2, 0.4, 0.8),
            "SNGD per tensor": _vary_rate(PER_TENSOR, 0.01, 0.02, 0.05, 0.1, 0.2),
            "Polyak": _vary_cap(0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
            "Adam": _vary_rate(ADAM, 3e-4, 1e-3, 3e-3, 1e-2),
        },
    ),
    "civil-subset/fitted": _fit(
        find_configuration("civil-subset/fitted"),
        {
            "SGD": _vary_rate(SGD, 0.01, 0.03, 0.1, 0.3),
            "SNGD": _vary_rate(SNGD, 0.01, 0.03, 0.1, 0.3),
            "SNGD per tensor": _vary_rate(PER_TENSOR, 1e-3, 3e-3, 1e-2, 3e-2),
            "Polyak": _vary_cap(0.03, 0.1, 0.3, 1.0),
            "Adam": _vary_rate(ADAM, 1e-5, 3e-5, 1e-4, 3e-4),
        },
        trial_epochs=5,
    ),
    "cifar10/fitted": _fit(
        find_configuration("cifar10/fitted"),
        {
            "SGD": _vary_rate(SGD, 0.05, 0.1, 0.2, 0.4, 0.8),
            "SNGD": _vary_rate(SNGD, 0.05, 0.1, 0.2, 0.4, 0.8),
            "SNGD per tensor": _vary_rate(PER_TENSOR, 0.01, 0.02, 0.05, 0.1, 0.2),
            "Polyak": _vary_cap(0.1, 0.3, 1.0, 3.0),
            "Adam": _vary_rate(ADAM, 3e-4, 1e-3, 3e-3, 1e-2),
        },
        seeds=(0,),
        trial_epochs=20,
    ),
    "mnli-subset/fitted": _fit(
        find_configuration("mnli-subset/fitted"),
        {
            "SGD": _vary_rate(SGD, 0.01, 0.03, 0.1, 0.3),
            "SNGD": _vary_rate(SNGD, 0.01, 0.03, 0.1, 0.3),
            "Adam": _vary_rate(ADAM, 1e-5, 3e-5, 1e-4, 3e-4),
        },
        trial_epochs=5,
    ),
}

# Three seeds leave open which of the two is faster.
MORE_SEEDS: dict[str, tuple[Method, ...]] = {
    config: tuple(
        replace(method, name=f"{method.name}, 12 seeds", seeds=TWELVE, records_of=method.name)
        for method in FITTED[config]
        if method.name in ("SGD", "SNGD")
    )
    for config in ("civil-subset/fitted",)
}

LEARNT = tuple(
    Method(
        "imdb/fitted",
        f"MirrorDescent p={p:g}",
        {
            setting: replace(
                find_configuration("imdb/fitted"), optimizer=optimizer, paper_protocol=True
            )
            for setting, optimizer in _vary_rate(mirror_descent(p), *rates).items()
        },
        THREE,
    )
    for p, rates in (
        (1.1, (1e-3, 2e-3, 4e-3, 8e-3)),
        (2.0, (2e-3, 4e-3, 8e-3, 1.6e-2)),
        (3.0, (6e-5, 1.2e-4, 2.5e-4, 5e-4)),
    )
)

CONVERGED = tuple(
    Method(
        "cifar10/converged",
        name,
        {
            setting: replace(find_configuration("cifar10/converged"), optimizer=optimizer)
            for setting, optimizer in _vary_rate(base, *rates).items()
        },
        THREE,
        trial_epochs=100,
    )
    for name, base, rates in (
        ("Adam", ADAM, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
        ("MD p=1.1", mirror_descent(1.1), (0.1, 0.3, 1.0, 3.0)),
        ("MD p=1.1 + momentum", mirror_descent(1.1, momentum=0.9), (0.01, 0.03, 0.1, 0.3)),
        ("MirrorAdam p=1.1", mirror_adam(1.1), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    )
)

METHODS: tuple[Method, ...] = (
    *PAIRED["imdb/small"],
    *FITTED["mnist/fitted"],
    *PAIRED["imdb/tiny"],
    *FITTED["civil-subset/fitted"],
    *MORE_SEEDS["civil-subset/fitted"],
    *LEARNT,
    *CONVERGED,
    *FITTED["cifar10/fitted"],
    *FITTED["mnli-subset/fitted"],
)
