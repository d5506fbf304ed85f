"""Tables of sweeps, compared to the last bit."""

from __future__ import annotations

from typing import Any


def same_bits(one: Any, two: Any) -> bool:
    """Whether two tables have the same columns and the same rows, nan equal to nan."""
    return one.schema.names == two.schema.names and _list_rows(one) == _list_rows(two)


def _list_rows(table: Any) -> list[list[Any]]:
    return [[_show(value) for value in column.to_pylist()] for column in table.columns]


def _show(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    return [_show(one) for one in value] if isinstance(value, list) else value
