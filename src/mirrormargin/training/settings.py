"""Settings: frozen dataclasses that check their values, come from JSON, and are changed by name.

A type says what a setting may be, msgspec checks it, and an error names the setting by its path:

    epochs: Annotated[int, Meta(ge=1, description="a whole number, at least 1")]

    override(config, ["epochs=0"])       epochs is a whole number, at least 1, got 0
    override(config, ["optimizer.lt=1"]) there is no setting 'optimizer.lt': ... did you mean
                                         optimizer.lr?

msgspec has no unions of dataclasses, so a setting that is one of several classes names its class in
JSON as ``"kind"``, and is read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from mirrormargin.errors import TrainingError, suggest

__all__ = [
    "Settings",
    "describe_unknown",
    "list_changes",
    "override",
    "parse_override",
    "read_settings",
]

# To be raised when code changes in a way that gives other results for the same settings.
RECIPE = 1

AnySettings = TypeVar("AnySettings", bound="Settings")


class Settings:
    """Base of the dataclasses: checks every value, and makes floats where floats are meant.

    So equal settings are equal, and have equal digests, whether they were given as 1 or 1.0.
    """

    def __post_init__(self) -> None:
        for name, hint in _list_hints(type(self)).items():
            object.__setattr__(self, name, _check(name, getattr(self, name), hint))

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries, for JSON; what is one of several classes says which."""
        document = asdict(self)  # pyright: ignore[reportArgumentType]
        for name, hint in _list_hints(type(self)).items():
            value = getattr(self, name)
            if value is not None and len(_list_classes(hint)) > 1:
                document[name] = {"kind": type(value).__name__, **document[name]}
        return document

    def list_values(self) -> dict[str, Any]:
        """Values by the dotted names that :func:`override` takes."""
        values: dict[str, Any] = {}
        for key, value in self.as_dict().items():
            if isinstance(value, dict):
                values |= {f"{key}.{name}": one for name, one in value.items() if name != "kind"}
            elif key != "name":
                values[key] = value
        return values

    def digest(self) -> str:
        """Sixteen hexadecimal digits, the same for the same settings.

        Settings that have their default value do not count, so that a new one changes nothing.
        """
        text = json.dumps([RECIPE, _list_chosen(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_settings(kind: type[AnySettings], document: Any, path: str = "") -> AnySettings:
    """Inverse of :meth:`Settings.as_dict`.

    Args:
        kind: The class.
        document: Nested dictionaries. Settings that have a default may be absent.
        path: Of the class in the whole document, for messages.

    Raises:
        TrainingError: If a setting is missing, unknown or has another type or value than allowed.
    """
    if not isinstance(document, dict):
        what = path.rstrip(".") or "a configuration"
        raise TrainingError(f"{what} is a dictionary of settings, got {document!r}")
    hints = _list_hints(kind)
    names = [f"{path}{name}" for name in hints]
    for name in document:
        if name not in hints:
            raise TrainingError(describe_unknown("setting", f"{path}{name}", names))
    for item in fields(kind):  # pyright: ignore[reportArgumentType]
        is_required = item.default is MISSING and item.default_factory is MISSING
        if is_required and item.name not in document:
            raise TrainingError(f"there is no {path}{item.name}")
    values = {name: _read(value, hints[name], f"{path}{name}") for name, value in document.items()}
    return kind(**values)


def parse_override(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``; the value is JSON, or else a text.

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


def override(config: AnySettings, changes: Mapping[str, Any] | Iterable[str]) -> AnySettings:
    """A configuration with some settings changed.

    Args:
        config: Stays as it is.
        changes: By dotted name: ``{"optimizer.lr": 1e-3}``, or ``["optimizer.lr=1e-3"]`` as on the
            command line.

    Raises:
        TrainingError: If there is no such setting (suggests the nearest, and lists all), one is
            given twice, or it takes no such value.
    """
    if isinstance(changes, str):
        raise TrainingError(f"changes are a list or a dictionary, got {changes!r}: give a list")
    pairs = changes.items() if isinstance(changes, Mapping) else map(parse_override, changes)
    document = config.as_dict()
    names = _list_names(document)
    seen = set()
    for name, value in pairs:
        if name in seen:
            raise TrainingError(f"{name} is given twice: leave out one of the two")
        seen.add(name)
        *parents, last = name.split(".")
        part: Any = document
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if not isinstance(part, dict) or last not in part:
            raise TrainingError(describe_unknown("setting", name, names))
        if name == "name" or last == "kind":
            raise TrainingError(f"{name} cannot be set: choose another configuration")
        if isinstance(part[last], dict) and not isinstance(value, dict | None):
            raise TrainingError(
                f"{name} has several settings: change them one by one, {name}.<setting>"
            )
        part[last] = value
    return read_settings(type(config), document)


def list_changes(config: Settings, other: Settings) -> list[str]:
    """Names of the settings in which two configurations differ, such as ``optimizer.lr``."""
    changes: list[str] = []
    for item in fields(config):  # pyright: ignore[reportArgumentType]
        one, two = getattr(config, item.name), getattr(other, item.name)
        if one == two:
            continue
        if isinstance(one, Settings) and type(one) is type(two):
            changes += [f"{item.name}.{name}" for name in list_changes(one, two)]
        else:
            changes.append(item.name)
    return changes


@cache
def _list_hints(kind: type[Settings]) -> dict[str, Any]:
    """The types of all settings, with what they are annotated by."""
    return get_type_hints(kind, include_extras=True)


def _list_classes(hint: Any) -> list[type[Settings]]:
    """The classes of settings that a type allows."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        return [kind for part in get_args(hint) for kind in _list_classes(part)]
    return [hint] if isinstance(hint, type) and issubclass(hint, Settings) else []


def _check(path: str, value: Any, hint: Any) -> Any:
    """The value as its type has it."""
    classes = _list_classes(hint)
    if classes:
        is_allowed = isinstance(value, tuple(classes)) or (value is None and _allows_none(hint))
        if not is_allowed:
            raise TrainingError(_describe_value(path, value, hint))
        return value
    # NumPy's float64 is a float, but not to msgspec.
    plain = float(value) if isinstance(value, float) else value
    try:
        return msgspec.convert(plain, hint)
    except (msgspec.ValidationError, UnicodeEncodeError):  # halves of characters
        raise TrainingError(_describe_value(path, value, hint)) from None


def _read(value: Any, hint: Any, path: str) -> Any:
    """As :func:`_check`, with dictionaries in place of classes of settings."""
    classes = _list_classes(hint)
    if not classes or value is None:
        return _check(path, value, hint)
    if len(classes) == 1:
        return read_settings(classes[0], value, f"{path}.")
    kinds = {kind.__name__: kind for kind in classes}
    if not isinstance(value, dict) or value.get("kind") not in kinds:
        raise TrainingError(_describe_value(path, value, hint))
    rest = {name: setting for name, setting in value.items() if name != "kind"}
    return read_settings(kinds[value["kind"]], rest, f"{path}.")


def _describe_value(path: str, value: Any, hint: Any) -> str:
    description = _find_description(hint)
    if description is not None:
        return f"{path} is {description}, got {value!r}"
    kinds = [_name_type(kind) for kind in get_args(hint) or (hint,)]
    return f"{path} is {value!r}: give {' or '.join(kinds)}"


def _find_description(hint: Any) -> str | None:
    """The description in the annotation of a type, or of a part of a union."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    for part in get_args(hint):
        if isinstance(part, msgspec.Meta) and part.description is not None:
            return part.description
        if (found := _find_description(part)) is not None:
            return found
    return None


def _name_type(kind: Any) -> str:
    return "null" if kind is type(None) else getattr(kind, "__name__", str(kind))


def _allows_none(hint: Any) -> bool:
    return hint is type(None) or any(_allows_none(part) for part in get_args(hint))


def describe_unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """A message that lists the known names, and suggests the nearest."""
    known = list(names)
    near = suggest(name, known, most=1, otherwise="")
    listed = f"there is no {kind} {name!r}: there are {', '.join(known)}"
    return f"{listed}; {near}" if near else listed


def _list_names(document: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for key, value in document.items():
        names += [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
    return names


def _list_chosen(config: Settings) -> dict[str, Any]:
    """Class and settings other than the default ones, nested."""
    chosen: dict[str, Any] = {"": type(config).__name__}
    for item in fields(config):  # pyright: ignore[reportArgumentType]
        value = getattr(config, item.name)
        if isinstance(value, Settings):
            chosen[item.name] = _list_chosen(value)
        elif value != item.default:
            chosen[item.name] = value
    return chosen
