"""Options that several commands have, each with one spelling, one meaning and one check."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

__all__ = [
    "OUTPUT",
    "Count",
    "Counts",
    "DataFolder",
    "Download",
    "Exponent",
    "Exponents",
    "FileOut",
    "FolderOut",
    "Json",
    "Number",
    "Numbers",
    "Overwrite",
    "Positive",
    "Quiet",
    "Seeds",
    "Share",
    "Starts",
    "Threads",
    "show_examples",
]

MOST_SEEDS = 100_000  # in one range: more is a slip of the finger
EXIT_CODES = "exit code: 0 done, {failed}2 wrong input, 130 interrupted, 143 terminated"
OUTPUT = Group("Output", sort_key=90)


def show_examples(
    examples: Sequence[tuple[str, str]], failed: str = "", more: str = ""
) -> dict[str, Any]:
    """The end of a command's help: examples, more text, exit codes.

    Args:
        examples: Pairs of a command line and what it does.
        failed: What exit code 1 means, if the command has it.
        more: Text between the examples and the exit codes.
    """
    lines = ["examples:"]
    for command, meaning in examples:
        lines += [f"  mirrormargin {command}", f"      {meaning}"]
    codes = EXIT_CODES.format(failed=f"1 {failed}, " if failed else "")
    parts = ["\n".join(lines), more.rstrip("\n"), codes]
    return {"help_epilogue": "\n\n".join(part for part in parts if part)}


def _one(read: Callable[[str], Any], **options: Any) -> Parameter:
    """One value, read from its text."""
    return Parameter(converter=lambda _, tokens: read(tokens[0].value), **options)


def _several(read: Callable[[str], Any], **options: Any) -> Parameter:
    """At least one value."""

    def convert(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        return tuple(read(token.value) for token in tokens)

    return Parameter(converter=convert, consume_multiple=1, **options)


def _distinct(read: Callable[[str], Sequence[Any]], **options: Any) -> Parameter:
    """Values of which none is given twice; one text may stand for several."""

    def convert(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        values: dict[Any, None] = {}  # in their order
        for value in (value for token in tokens for value in read(token.value)):
            if value in values:
                raise ValueError(f"{value} is given with repetitions: give each value once")
            values[value] = None
        return tuple(values)

    return Parameter(converter=convert, consume_multiple=1, **options)


def _read_number(text: str) -> float:
    """Not nan; the range is the library's to check."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise ValueError(f"the value is {text!r}: give a number")
    return found


def _read_count(text: str, least: int = 0) -> int:
    try:
        found = int(text)
    except ValueError:
        raise ValueError(f"the value is {text!r}: give an integer >= {least}") from None
    if found < least:
        raise ValueError(f"the value is {found}: give an integer >= {least}")
    return found


def _read_positive(text: str) -> int:
    return _read_count(text, least=1)


def _read_exponent(text: str) -> float:
    from mirrormargin.arguments import check_exponent

    try:
        p: Any = float(text)
    except ValueError:
        p = text
    return check_exponent(p, error=ValueError)


def _read_range(text: str) -> range:
    """One seed, or all from the first to the last of ``first-last``."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ValueError(
            f"seed is {text!r}: give integers >= 0, as 1 2 3, or a range such as 1-100"
        )
    start, stop = int(first), int(last or first)
    if stop < start:
        raise ValueError(f"the range {text!r} is empty: give {stop}-{start}")
    if stop - start >= MOST_SEEDS:
        raise ValueError(
            f"the range {text!r} has more than {MOST_SEEDS:,} seeds: give a shorter one"
        )
    return range(start, stop + 1)


# What an option takes.
Number = Annotated[float, _one(_read_number, metavar="X")]
Numbers = Annotated[tuple[float, ...], _several(_read_number, metavar="X...")]
Share = Annotated[float, _one(_read_number, metavar="SHARE")]
Count = Annotated[int, _one(_read_count, metavar="N")]
Counts = Annotated[tuple[int, ...], _several(_read_count, metavar="N...")]
Positive = Annotated[int, _one(_read_positive, metavar="N")]

# The options themselves.
Exponent = Annotated[
    float,
    _one(
        _read_exponent,
        metavar="P",
        help="Exponent p > 1 of the potential: 2 is the usual step, near 1 weights become sparse.",
    ),
]
Exponents = Annotated[
    tuple[float, ...],
    _distinct(
        lambda text: (_read_exponent(text),),
        metavar="P...",
        help="Exponents p > 1 of the potential.",
    ),
]
Seeds = Annotated[
    tuple[int, ...],
    _distinct(
        _read_range, metavar="SEED...", help="Seeds of the problems, such as 1 2 3 or 1-100."
    ),
]
Starts = Annotated[tuple[int, ...], _distinct(_read_range, metavar="SEED...")]
Threads = Annotated[Positive, Parameter(help="Cores to use.", show_default="all")]
DataFolder = Annotated[
    Path,
    Parameter(metavar="FOLDER", help="Where the data is.", show_default="$MIRRORMARGIN_DATA"),
]
Download = Annotated[bool, Parameter(help="Download data that is absent.")]
FolderOut = Annotated[
    Path, Parameter(metavar="FOLDER", group=OUTPUT, help="Keep the results in this folder.")
]
FileOut = Annotated[Path, Parameter(metavar="FILE", group=OUTPUT)]
Overwrite = Annotated[
    bool, Parameter(group=OUTPUT, help="Replace what --out names if it is of the same kind.")
]
Json = Annotated[bool, Parameter(group=OUTPUT, help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, Parameter(group=OUTPUT, help="Print no progress and no explanations.")]
