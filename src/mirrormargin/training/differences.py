"""Where do trainings differ? Labels that say so in few words, and a list of all settings that do.

A label names the optimizer, its exponent and its penalty as far as they are not the same for all;
only trainings that would still share a label get more: learning rate, seed, whatever sets them
apart, and in the end the name of their folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["label_trainings", "list_differences"]

Config = Mapping[str, Any]
SEEDS = ("seeds.init", "seeds.order", "seeds.dropout")
IN_METHOD = ("optimizer.name", "optimizer.p", "sparsifier")
SHORT = {"optimizer.name": "", "seeds": "seed"}
SPARSIFIERS = {"L1Penalty": "L1", "GradualPruning": "gradual pruning", "Schedule": "schedule"}


def label_trainings(configs: Mapping[str, Config]) -> list[str]:
    """A label for each training, no two alike.

    Args:
        configs: The configurations, by the names of the trainings' folders.

    Example:
        >>> adamw = {"optimizer": {"name": "AdamW", "p": 2.0, "lr": 0.1}, "sparsifier": None}
        >>> l1 = {**adamw, "sparsifier": {"kind": "L1Penalty", "strength": 0.001}}
        >>> label_trainings({"first": adamw, "second": l1})
        ['AdamW', 'AdamW + L1']
    """
    flat = [_flatten(config) for config in configs.values()]
    labels = _name_methods(flat)
    for label in [one for one in dict.fromkeys(labels) if labels.count(one) > 1]:
        alike = [k for k, one in enumerate(labels) if one == label]
        keys = _find_keys([flat[k] for k in alike])
        for k in alike:
            parts = _describe_all(flat[k], keys)
            labels[k] = ", ".join([label, *parts] if label else parts)
    names = list(configs)
    return [
        f"{label}, {name}" if labels.count(label) > 1 else label
        for name, label in zip(names, labels, strict=True)
    ]


def list_differences(configs: Sequence[Config]) -> list[str]:
    """For each training its values of all settings that are not the same for all of them.

    Example:
        >>> list_differences([{"epochs": 2, "lr": 0.1}, {"epochs": 3, "lr": 0.1}])
        ['epochs 2', 'epochs 3']
    """
    flat = [_flatten(config) for config in configs]
    keys = _find_keys(flat)
    return [", ".join(_describe_all(one, keys)) for one in flat]


def _name_methods(flat: Sequence[Config]) -> list[str]:
    """Optimizer, exponent and kind of penalty, if they are not the same for all; "" if they are.

    One training has nothing to differ from: it is called by its method.
    """
    different = IN_METHOD if len(flat) == 1 else _find_keys(flat)
    labels = []
    for one in flat:
        name = str(one["optimizer.name"])
        has_p = _has_exponent(one) and "optimizer.p" in different
        kind = (one.get("sparsifier") or {}).get("kind", "")
        has_kind = kind and "sparsifier" in different
        if "optimizer.name" in different or has_kind or (has_p and "sparsifier" in different):
            label = name + (f" p={one['optimizer.p']:g}" if has_p else "")
        elif has_p:
            label = f"p = {one['optimizer.p']:g}"
        else:
            label = name
        labels.append(label + (f" + {SPARSIFIERS.get(kind, kind)}" if has_kind else ""))
    # A name that all share says nothing, as long as something else does.
    if len(flat) > 1 and len(set(labels)) == 1 and different:
        return [""] * len(labels)
    return labels


def _flatten(config: Config, before: str = "") -> dict[str, Any]:
    """``{"optimizer.lr": 0.1, ...}``; three equal seeds are one, a sparsifier stays whole."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "sparsifier":
            flat |= _flatten(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    seeds = {flat.get(key) for key in SEEDS}
    if not before and len(seeds) == 1 and None not in seeds:
        flat["seeds"] = seeds.pop()
        for key in SEEDS:
            del flat[key]
    return flat


def _find_keys(flat: Sequence[Config]) -> list[str]:
    """The settings that differ, in the order of the configurations."""
    keys = dict.fromkeys(key for one in flat for key in one)
    return [key for key in keys if any(one.get(key) != flat[0].get(key) for one in flat)]


def _describe_all(flat: Config, keys: Sequence[str]) -> list[str]:
    # Only mirror descent has an exponent; the p of others is a number that nobody reads.
    shown = [key for key in keys if key != "optimizer.p" or _has_exponent(flat)]
    return [
        _describe_sparsifier(flat.get(key))
        if key == "sparsifier"
        else _describe(key, flat.get(key))
        for key in shown
    ]


def _has_exponent(flat: Config) -> bool:
    return str(flat.get("optimizer.name")).startswith("Mirror")


def _describe(key: str, value: Any) -> str:
    name = SHORT.get(key, key.removeprefix("optimizer.")).replace("_", " ")
    text = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
    return f"{name} {text}".lstrip()


def _describe_sparsifier(value: Mapping[str, Any] | None) -> str:
    if not value:
        return "no penalty"
    kind = str(value.get("kind", ""))
    numbers = [f"{number:g}" for number in value.values() if isinstance(number, (int, float))]
    return " ".join([SPARSIFIERS.get(kind, kind), *numbers])
