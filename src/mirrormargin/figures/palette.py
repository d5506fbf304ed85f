r"""Colours with a meaning, for light and for dark paper.

An exponent p below 2 is cold, 2 itself is ink, above 2 it is warm. Within a family the colour
follows

    t = p - 1   below 2,      t = 1 - 2 / p   above,

so that each p has its colour whatever else is on the page. Cold against warm stays visible without
red-green vision; within a family lightness changes too.

Ways to train take the colour of their exponent: "MirrorAdam p=1.1" that of "p = 1.1"; "AdamW + L1"
that of "AdamW". A second method of a colour is dashed, a third one dotted, a fourth one both.

Runs of one's own keep the colour of their method as long as no other run on the page looks like it;
the others take one of ``DISTINCT``, because nothing but the colour is seen at first.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "DIVERGING",
    "HEAT",
    "INK",
    "SHADE",
    "SURROUNDINGS",
    "Color",
    "Look",
    "choose_distinct_looks",
    "choose_looks",
    "find_color",
    "find_group",
    "measure_distance",
    "name_exponent",
    "read_exponent",
]


class Color(NamedTuple):
    """A hex colour on white paper and one on black."""

    light: str
    dark: str


INK = Color("#22252b", "#eceef2")
GREY = Color("#767c87", "#9aa1ad")

# t from 0 to 1: from p near 1 to p near 2, and from p just above 2 to infinity.
# Real models are trained at 1.05 and at 1.1, so that the colour turns quickly between them.
COLD = (
    (0.0, Color("#2b8f2f", "#7be07f")),
    (0.05, Color("#1e8c28", "#58e05e")),
    (0.1, Color("#00695c", "#5fd6c0")),
    (0.5, Color("#0b8fb5", "#4cc4ea")),
    (0.75, Color("#0f62c4", "#6aa9ff")),
    (1.0, Color("#3f4fc9", "#95a0ff")),
)
WARM = (
    (0.0, Color("#c98a00", "#f6c445")),
    (0.34, Color("#d24a0a", "#ff8f4d")),
    (0.6, Color("#b0124f", "#ff6f9f")),
    (1.0, Color("#6d1a7a", "#d58be6")),
)

NAMED = {
    "gradient descent": GREY,
    "normalised": Color("#00795a", "#39c99b"),
    "Polyak": Color("#a33a84", "#ee92cf"),
    "published": GREY,
    "target": INK,
    "max-margin ray": Color("#9298a2", "#6d7480"),
    "optimal tokens": Color("#00795a", "#39c99b"),
    "locally optimal": Color("#b98300", "#f0c14b"),
    "not settled": GREY,
    "W": Color("#0f62c4", "#6aa9ff"),
    "head": Color("#d24a0a", "#ff8f4d"),
    "Frobenius solution": GREY,
    "nuclear-norm solution": Color("#0f62c4", "#6aa9ff"),
    "trained W": GREY,
    "trained K Qᵀ": Color("#0f62c4", "#6aa9ff"),
    "correlation loss": Color("#0f62c4", "#6aa9ff"),
    "logistic loss": Color("#d24a0a", "#ff8f4d"),
    "sequence 1": Color("#0f62c4", "#6aa9ff"),
    "sequence 2": Color("#d24a0a", "#ff8f4d"),
    "W_eq, both parts": Color("#00795a", "#39c99b"),
    "W_dir, the growing part": Color("#0f62c4", "#6aa9ff"),
    "W_one, one token only": GREY,
    # Other potentials have no p: green, brown and grey are no exponent's.
    "weighted 1.5": Color("#3f7d20", "#8fd06a"),
    "weighted 3": Color("#8a5a2b", "#d9a877"),
    "quadratic": GREY,
    "squared 3": Color("#c04fa0", "#f5a3da"),
    # Ways to train: what has a p has its colour. AdamW is ink, as MirrorAdam is at p = 2.
    "AdamW": INK,
    "Adam": INK,
    "MirrorAdam": Color("#0f62c4", "#6aa9ff"),
    "SGD": GREY,
    "SNGD": Color("#0f62c4", "#6aa9ff"),
    "Powerpropagation": Color("#a33a84", "#ee92cf"),
    "gradual pruning": Color("#b98300", "#f0c14b"),
    "untrained": GREY,
    "spread": Color("#0f62c4", "#6aa9ff"),
    "small": Color("#d24a0a", "#ff8f4d"),
}

# For whatever else: Okabe and Ito's colours, darkened until they can be read on white.
OTHERS = (
    Color("#0f62c4", "#6aa9ff"),
    Color("#d24a0a", "#ff8f4d"),
    Color("#00795a", "#39c99b"),
    Color("#a33a84", "#ee92cf"),
    Color("#8a6100", "#e5b53c"),
    Color("#0b8fb5", "#4cc4ea"),
)

# For runs that would otherwise look like another one; far from each other on both papers.
DISTINCT = (
    Color("#d24a0a", "#ff8f4d"),
    Color("#a33a84", "#ee92cf"),
    Color("#b98300", "#f0c14b"),
    Color("#0f62c4", "#6aa9ff"),
    Color("#8a5a2b", "#c79a6b"),
    Color("#6a3fc9", "#b39bff"),
    Color("#c2185b", "#ff5f8f"),
    Color("#0b8fb5", "#4cc4ea"),
    Color("#767c87", "#9aa1ad"),
    Color("#6f8200", "#c5d84a"),
    Color("#1e8c28", "#58e05e"),
    Color("#00695c", "#5fd6c0"),
)
FAR = 75  # the sum of the differences of three channels at which two lines are told apart

# Signed entries from -1 to 1: warm, paper, cold.
DIVERGING = (
    Color("#8f2d00", "#ffb184"),
    Color("#e08a4f", "#b0541c"),
    Color("#f7f8fa", "#16191f"),
    Color("#5b9dde", "#2a64ae"),
    Color("#0a3f8f", "#a5cffa"),
)

# Attention from 0 to 1, from paper to ink; evenly spaced.
HEAT = (
    Color("#f7f8fa", "#16191f"),
    Color("#c9dcf2", "#1d3557"),
    Color("#83b3e0", "#2a649e"),
    Color("#3b7fc4", "#4c9be0"),
    Color("#154a91", "#9ccbf7"),
    Color("#0a2350", "#eef6ff"),
)

# The paper, the text and the axes around the lines; verdicts, and the paper under their names. The
# style sheet of the page knows each by its name here.
SURROUNDINGS = {
    "paper": Color("#ffffff", "#14161a"),
    "raised": Color("#f6f7f9", "#1d2026"),
    "ink": Color("#1d2027", "#e9ebef"),
    "soft": Color("#5a616d", "#a4abb7"),
    "line": Color("#dfe2e7", "#333842"),
    "grid": Color("#e8eaee", "#2a2e36"),
    "link": Color("#1456b0", "#8fbcff"),
    "mark": Color("#d24a0a", "#ff8f4d"),  # of cells of a map
    "good": Color("#0b6b4c", "#6fdcb0"),
    "good-paper": Color("#e2f3ec", "#14362a"),
    "partly": Color("#7a5200", "#f0c766"),
    "partly-paper": Color("#fbf0d6", "#3a2f12"),
    "bad": Color("#a3222e", "#ff9aa2"),
    "bad-paper": Color("#fbe6e7", "#43191e"),
    "open": Color("#565d69", "#b3bac5"),
    "open-paper": Color("#eceef1", "#2a2e36"),
}
SHADE = Color("#5b9dde", "#2a649e")  # behind words, more or less transparent

LINES = ("line", "dashed", "dotted", "dashdot")  # of methods that have the same colour
_EXPONENT = re.compile(r"^p = (\d+(?:\.\d+)?)(?!\w)")
_METHOD_EXPONENT = re.compile(r"\bp ?= ?(\d+(?:\.\d+)?)")
_DISTINCT_GROUP = re.compile(r"^distinct (\d+)$")
_VARIANT = re.compile(r"(?: for pruning| \+ L1| to \d+%| per tensor)+$")


def find_color(group: str) -> Color:
    """The colour of a group of series: of "p = 3", of "Polyak", of any other text."""
    p = read_exponent(group)
    if p is not None:
        return _find_exponent_color(p)
    if group in NAMED:
        return NAMED[group]
    distinct = _DISTINCT_GROUP.match(group)
    if distinct:
        return DISTINCT[(int(distinct.group(1)) - 1) % len(DISTINCT)]
    return OTHERS[zlib.crc32(group.encode()) % len(OTHERS)]


def name_exponent(p: float) -> str:
    """How an exponent is written everywhere: it is also what it is coloured by."""
    return f"p = {p:g}"


def read_exponent(group: str) -> float | None:
    """p, if the group is called "p = 1.5" or begins so.

    Example:
        >>> read_exponent("p = 1.5, normalised"), read_exponent("Polyak")
        (1.5, None)
    """
    found = _EXPONENT.match(group)
    return float(found.group(1)) if found else None


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
        looks.append(Look(name, group, LINES[count % len(LINES)]))
    return looks


def choose_distinct_looks(names: Iterable[str], groups: Iterable[str] = ()) -> list[Look]:
    """A look for each run, no two of one colour as long as there are colours; then dashes differ.

    Args:
        names: What the runs are called.
        groups: What each would be coloured by; found from the names if none are given.

    Example:
        >>> [look.group for look in choose_distinct_looks(["AdamW", "AdamW + L1"])]
        ['AdamW', 'distinct 1']
    """
    names = list(names)
    wanted = list(groups) or [find_group(name) for name in names]
    chosen: list[str] = []
    spares = [f"distinct {number + 1}" for number in range(len(DISTINCT))]
    # Whoever has its own colour keeps it, whatever stands before it.
    for group in wanted:
        chosen.append(group if _is_far(group, [one for one in chosen if one]) else "")
    for k, group in enumerate(chosen):
        if not group:
            taken = [one for one in chosen if one]
            chosen[k] = next(
                (one for one in spares if _is_far(one, taken)), spares[k % len(spares)]
            )
    seen: dict[str, int] = {}
    looks = []
    for name, group in zip(names, chosen, strict=True):
        looks.append(Look(name, group, LINES[seen.get(group, 0) % len(LINES)]))
        seen[group] = seen.get(group, 0) + 1
    return looks


def _is_far(group: str, others: Iterable[str]) -> bool:
    """Whether a colour is told from all others on light and on dark paper."""
    color = find_color(group)
    return all(
        measure_distance(one, other) >= FAR
        for found in map(find_color, others)
        for one, other in zip(color, found, strict=True)
    )


def measure_distance(first: str, second: str) -> int:
    """The sum of the differences of red, green and blue.

    Example:
        >>> measure_distance("#000000", "#010203")
        6
    """
    return sum(abs(int(first[i : i + 2], 16) - int(second[i : i + 2], 16)) for i in (1, 3, 5))


def find_group(name: str) -> str:
    """What a method is coloured by: its exponent if it has one, else its name without variants."""
    name = _VARIANT.sub("", name)
    found = _METHOD_EXPONENT.search(name)
    return name_exponent(float(found.group(1))) if found else name


def _find_exponent_color(p: float) -> Color:
    if p == 2:
        return INK
    stops, t = (COLD, p - 1) if p < 2 else (WARM, 1 - 2 / p)
    t = min(max(t, 0.0), 1.0)
    for (start, first), (end, last) in pairwise(stops):
        if t <= end:
            share = (t - start) / (end - start)
            return Color(*(_mix(a, b, share) for a, b in zip(first, last, strict=True)))
    raise AssertionError("the last stop is at 1")


def _mix(first: str, last: str, share: float) -> str:
    pairs = ((int(first[i : i + 2], 16), int(last[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)
