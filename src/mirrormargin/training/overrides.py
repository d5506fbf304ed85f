"""Settings by dotted name, such as ``optimizer.lr=0.001``: how a configuration is changed.

Values are JSON (``0.001``, ``true``, ``null``, ``[1, 2]``); what is no JSON is taken as text.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from mirrormargin.errors import TrainingError
from mirrormargin.training.config import (
    GradualPruning,
    L1Penalty,
    Powerpropagation,
    TrainingConfig,
)
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration

__all__ = ["apply_overrides", "format_command", "list_overrides", "parse_override"]


def parse_override(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``.

    Raises:
        TrainingError: If there is no ``=``.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise TrainingError(f"a setting is given as name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def apply_overrides(config: TrainingConfig, changes: Mapping[str, Any]) -> TrainingConfig:
    """A configuration with some settings changed.

    Raises:
        TrainingError: If there is no such setting (names those there are), or it takes no such
            value.
    """
    document = config.as_dict()
    for name, value in changes.items():
        _check_part(name, value)
        *path, last = name.split(".")
        place: Any = document
        for key in path:
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last not in place:
            names = ", ".join(_list_names(config.as_dict()))
            raise TrainingError(f"there is no setting {name!r}: there are {names}")
        place[last] = value
    changed = TrainingConfig.from_dict(document)
    for name in changes:
        _check_type(changed, name)
    return changed


def _check_part(name: str, value: Any) -> None:
    """Parts are changed setting by setting; only a sparsifier comes and goes as a whole."""
    if name == "name" or name.endswith(".kind"):
        raise TrainingError(f"{name} cannot be set: choose another configuration")
    if name in ("data", "model", "optimizer", "seeds") and not isinstance(value, dict):
        raise TrainingError(
            f"{name} has several settings: change them one by one, {name}.<setting>"
        )
    if name == "sparsifier" and value is not None:
        kinds = [kind.__name__ for kind in (L1Penalty, Powerpropagation, GradualPruning)]
        if not isinstance(value, dict) or value.get("kind") not in kinds:
            raise TrainingError(
                f"sparsifier is {value!r}: give null, or one of"
                ' {"kind": "L1Penalty", "strength": 3e-5}, {"kind": "Powerpropagation",'
                ' "alpha": 4}, {"kind": "GradualPruning", "share": 0.95}'
            )
    if name == "optimizer.groups" and not isinstance(value, list | tuple):
        raise TrainingError(
            f"""optimizer.groups is {value!r}: give a list such as [["blocks.*", {{"p": 1.1}}]]"""
        )


def _check_type(config: TrainingConfig, name: str) -> None:
    """JSON says of what type a value is, and nothing later would ask politely."""
    *path, last = name.split(".")
    place: Any = config
    for key in path:
        place = getattr(place, key)
    if not is_dataclass(place):  # inside of the options of a group
        return
    value, hint = getattr(place, last, None), get_type_hints(type(place)).get(last)
    allowed: list[Any] = [get_origin(kind) or kind for kind in get_args(hint) or (hint,)]
    if get_origin(hint) is tuple:
        allowed = [tuple]
    is_number = isinstance(value, int) and not isinstance(value, bool) and float in allowed
    if hint is not None and type(value) not in allowed and not is_number:
        kinds = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
        raise TrainingError(f"{name} is {value!r}: give {kinds}")


def list_overrides(config: TrainingConfig) -> dict[str, Any]:
    """In what a configuration differs from the one of its name."""
    base = find_configuration(config.name).as_dict()
    changes: dict[str, Any] = {}
    for key, value in config.as_dict().items():
        old = base[key]
        if value == old:
            continue
        if isinstance(value, dict) and isinstance(old, dict) and value.keys() == old.keys():
            changes |= {f"{key}.{k}": v for k, v in value.items() if v != old[k]}
        else:
            changes[key] = value
    return changes


def format_command(config: TrainingConfig) -> str:
    """The command that makes the same training."""
    if config.name not in CONFIGURATIONS:
        return "mirrormargin.training.loop.train_model with this configuration"
    changes = (f"{name}={json.dumps(value)}" for name, value in list_overrides(config).items())
    options = "".join(f" --set {shlex.quote(change)}" for change in changes)
    return f"mirrormargin train {config.name}{options}"


def _list_names(document: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for key, value in document.items():
        names += [f"{key}.{k}" for k in value] if isinstance(value, dict) else [key]
    return names
