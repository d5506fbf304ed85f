"""How ways to train look in a figure: what has an exponent has its colour, and no two look alike.

"MirrorAdam p=1.1" is coloured as "p = 1.1" and "AdamW + L1" as "AdamW"; a second method of that
colour is dashed, a third one dotted, a fourth one both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from mirrormargin.report.figures.spread import name_exponent
from mirrormargin.report.palette import Color, find_color

__all__ = ["Look", "choose_looks", "find_group"]

STYLES = ("line", "dashed", "dotted", "dashdot")
_VARIANT = re.compile(r"(?: for pruning| \+ L1| to \d+%| per tensor)+$")
_EXPONENT = re.compile(r"\bp ?= ?(\d+(?:\.\d+)?)")


class Look(NamedTuple):
    """The name of a method, what it is coloured by, and the style of its line."""

    name: str
    group: str
    style: str


def choose_looks(names: Iterable[str]) -> list[Look]:
    """A look for each method; those of one colour differ in style.

    Example:
        >>> [look.style for look in choose_looks(["MirrorAdam p=3", "MirrorDescent p=3", "SGD"])]
        ['line', 'dashed', 'line']
    """
    seen: dict[Color, int] = {}
    looks = []
    for name in map(str, names):
        group = find_group(name)
        color = find_color(group)
        count = seen.get(color, 0)
        seen[color] = count + 1
        looks.append(Look(name, group, STYLES[count % len(STYLES)]))
    return looks


def find_group(name: str) -> str:
    """What a method is coloured by: its exponent if it has one, else its name without variants."""
    name = _VARIANT.sub("", name)
    found = _EXPONENT.search(name)
    return name_exponent(float(found.group(1))) if found else name
