"""Grids of trainings on real data: configurations by name, and settings that are varied.

A run is one call of :func:`mirrormargin.training.train_model`. What names it is the digest of its
configuration, so the same training is the same run however a grid came to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mirrormargin.arguments import check_flag, read_items
from mirrormargin.errors import SweepError, TrainingError
from mirrormargin.sweep.axes import Axis, Product
from mirrormargin.training.config import TrainingConfig
from mirrormargin.training.configurations import find_configuration

__all__ = ["SEED", "TrainingGrid", "find_config", "find_training_default", "look_up"]

NAME, TEST = "configuration", "test"
SEED = "seed"  # stands for all seeds of a training
SEEDS = ("seeds.init", "seeds.order", "seeds.dropout")


class TrainingGrid:
    """Every combination of some configurations and settings.

    Args:
        configuration: Names such as "digits/tiny".
        settings: One value or several of each, by dotted name: ``{"optimizer.p": [1.1, 2]}``;
            ``seed`` is a short name for all seeds at once. Integers may be a range or a text such
            as "0-9". A setting that is a list itself is given as a list of lists.
        test: Whether runs are evaluated on test data too: not while something is being chosen.

    Raises:
        SweepError: (a ValueError) If there is no such configuration or setting, or it takes no such
            value.

    Example:
        >>> TrainingGrid("digits/tiny", {"optimizer.p": [1.1, 2], "seed": "0-4"}).size
        10
    """

    kind = "training"

    def __init__(
        self,
        configuration: str | Iterable[str],
        settings: Mapping[str, Any] | None = None,
        *,
        test: bool = False,
    ) -> None:
        given = configuration
        names = [given] if isinstance(given, str) else read_items(NAME, given, "names")
        with_test = check_flag(TEST, test, error=SweepError)
        self.products = [_make_product(name, dict(settings or {}), with_test) for name in names]
        self.size = sum(product.size for product in self.products)

    def __repr__(self) -> str:
        return f"TrainingGrid({self.size:,} runs)"


def _make_product(name: Any, settings: dict[str, Any], with_test: bool) -> Product:
    axes = {NAME: Axis([name]), TEST: Axis([with_test])}
    if SEED in settings and any(one in settings for one in SEEDS):
        raise SweepError(f"{SEED} stands for {', '.join(SEEDS)}: give it, or those")
    try:
        base = find_configuration(name)
        for setting, given in settings.items():
            axes[setting] = _read_axis(base, setting, given)
    except (TrainingError, TypeError) as error:
        raise SweepError(str(error)) from error
    return Product(axes)


def _read_axis(base: TrainingConfig, name: str, given: Any) -> Axis:
    """The values of a setting, each as the configuration has it."""
    if name.startswith(SEED) and (values := _read_range(given)) is not None:
        given = values
    elif isinstance(given, (str, int, float, Mapping)) or given is None:
        given = [given]
    values = read_items(name, given, "a value, or a list of values", error=SweepError)
    try:
        return Axis(_normalize(base, name, value) for value in values)
    except SweepError as error:
        raise SweepError(f"{name}: {error}") from error


def _read_range(given: Any) -> range | None:
    first, dash, last = given.partition("-") if isinstance(given, str) else ("", "", "")
    if dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last):
        return range(int(first), int(last) + 1)
    return None


def _normalize(base: TrainingConfig, name: str, value: Any) -> Any:
    """A value as JSON has it, once the configuration has taken it."""
    names = SEEDS if name == SEED else (name,)
    changed = find_configuration(base.name, dict.fromkeys(names, value))
    return look_up(changed, names[0])


def look_up(config: TrainingConfig, name: str) -> Any:
    """The value of a setting of a dotted name, as JSON has it."""
    value: Any = config.as_dict()
    for key in name.split("."):
        value = value[key]
    return json.loads(json.dumps(value))


def find_training_default(product: Product, name: str) -> Any:
    """The value of a setting that a product does not vary."""
    if any(one.startswith(SEED) for one in product.axes) and name.startswith(SEED):
        raise SweepError(
            f"{SEED} is given to some runs, and seeds of one kind to others: give all of them"
            f" {SEED}, or all of them {', '.join(SEEDS)}"
        )
    base = find_configuration(product.axes[NAME][0])
    return look_up(base, SEEDS[0] if name == SEED else name)


def find_config(settings: Mapping[str, Any]) -> tuple[TrainingConfig, bool]:
    """The configuration of a run, and whether it is evaluated on test data.

    Raises:
        TrainingError: If the settings do not fit together.
    """
    changes = {name: value for name, value in settings.items() if name not in (NAME, TEST, SEED)}
    if SEED in settings:
        changes |= dict.fromkeys(SEEDS, settings[SEED])
    return find_configuration(str(settings[NAME]), changes), bool(settings[TEST])
