"""Results as text: aligned tables, and one JSON object; what is not a number is - or null."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

__all__ = ["format_number", "print_json", "print_table"]


def format_number(value: float | None, form: str) -> str:
    """The number in the form of :func:`format`, ``-`` for None and nan."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns flushed right, but the last one, which is text, left."""
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        print("  ".join([*cells, line[-1]]))


def print_json(report: dict[str, Any]) -> None:
    """JSON has neither nan nor inf: they become null."""
    print(json.dumps(_clean(report), indent=2, allow_nan=False))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
