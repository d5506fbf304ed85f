"""Grids from files: TOML, or Python where a grid is computed.

    [lab]                                   [training]
    problem = "unit_sphere"                 configuration = "digits/tiny"
    seed = "1-1000"                         seed = "0-4"
    p = [1.75, 2, 3]                        optimizer.p = [1.1, 2]
    lr = [0.03, 0.1]                        epochs = 10

A list is tried out value by value, in every combination with the others; ``[[lab]]``, given several
times, are several grids in one sweep. A Python file has them in a variable ``GRID``, one or a list.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomllib  # pyright: ignore[reportMissingImports]

from mirrormargin.errors import SweepError, suggest
from mirrormargin.sweep.lab_grid import LabGrid
from mirrormargin.sweep.training_grid import TrainingGrid

__all__ = ["read_grids"]

VARIABLE = "GRID"
KINDS = ("lab", "training")
MOST_BYTES = 1 << 24


def read_grids(path: str | Path) -> list[LabGrid | TrainingGrid]:
    """The grids of a file; one of Python is run.

    Raises:
        SweepError: (a ValueError) If there is no such file, or it has no grid that makes sense.
    """
    path = Path(path)
    if path.suffix not in (".toml", ".py"):
        raise SweepError(f"{path} is neither a .toml nor a .py file: give the file of a grid")
    if not path.is_file():
        raise SweepError(f"{path} does not exist: give the file of a grid")
    return _read_python(path) if path.suffix == ".py" else _read_toml(path)


def _read_python(path: Path) -> list[LabGrid | TrainingGrid]:
    found = runpy.run_path(str(path)).get(VARIABLE)
    given = found if isinstance(found, (list, tuple)) else [found]
    grids = [grid for grid in given if isinstance(grid, (LabGrid, TrainingGrid))]
    if not grids or len(grids) < len(given):
        raise SweepError(
            f"{path} has no grid: set {VARIABLE} to a LabGrid or a TrainingGrid, or a list of them"
        )
    return grids


def _read_toml(path: Path) -> list[LabGrid | TrainingGrid]:
    try:
        with open(path, "rb") as file:
            document = tomllib.loads(file.read(MOST_BYTES).decode())
    except OSError as error:
        raise SweepError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SweepError(f"{path} is no TOML: {' '.join(str(error).split())[:200]}") from error
    for name in document:
        if name not in KINDS:
            raise SweepError(f"{path} has a table {name!r}: {suggest(name, KINDS)}")
    grids: list[LabGrid | TrainingGrid] = []
    for kind, tables in document.items():
        for table in tables if isinstance(tables, list) else [tables]:
            if not isinstance(table, dict):
                raise SweepError(f"{path}: {kind} is {table!r}: write a table, [{kind}]")
            try:
                grids.append(_make_grid(kind, table))
            except SweepError as error:
                raise SweepError(f"{path}: {error}") from error
    if not grids:
        raise SweepError(f"{path} is empty: write a table [lab] or [training]")
    return grids


def _make_grid(kind: str, table: dict[str, Any]) -> LabGrid | TrainingGrid:
    if kind == "lab":
        return LabGrid(**table)
    settings = dict(_flatten(table))
    if "configuration" not in settings:
        raise SweepError("there is no configuration: name one, such as digits/tiny")
    name, test = settings.pop("configuration"), settings.pop("test", False)
    return TrainingGrid(name, settings, test=test)


def _flatten(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names; a table that names its kind is one value."""
    for name, value in table.items():
        if isinstance(value, dict) and "kind" not in value:
            yield from _flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
