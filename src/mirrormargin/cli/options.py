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
    "Wholes",
    "number",
    "show_examples",
    "whole",
]

MOST_SEEDS = 100_000  # in one range: more is a slip of the finger
EXIT_CODES = "exit code: 0 done, {failed}2 wrong input, 130 interrupted, 143 terminated"
OUTPUT = Group("Output", sort_key=90)


def show_examples(
    examples: Sequence[tuple[str, str]], failed: str = "", more: str = ""
) -> dict[str, Any]:
    """What stands below a command's options: examples, more text, exit codes.

    Args:
        examples: Pairs of a command line and what it does.
        failed: What exit code 1 says, if the command has it.
        more: Stands between the examples and the exit codes.
    """
    lines = ["examples:"]
    for command, meaning in examples:
        lines += [f"  mirrormargin {command}", f"      {meaning}"]
    codes = EXIT_CODES.format(failed=f"1 {failed}, " if failed else "")
    parts = ["\n".join(lines), more.rstrip("\n"), codes]
    return {"help_epilogue": "\n\n".join(part for part in parts if part)}


def whole(least: int = 0) -> Callable[[Any, Sequence[Token]], int]:
    """A converter for one whole number that is not smaller than ``least``."""

    def read(type_: Any, tokens: Sequence[Token]) -> int:
        return _read_whole(tokens[0].value, least)

    return read


def number(type_: Any, tokens: Sequence[Token]) -> float:
    """A converter for one number, not nan; its range is the library's to check."""
    return _read_number(tokens[0].value)


def _read_exponent(type_: Any, tokens: Sequence[Token]) -> float:
    from mirrormargin.arguments import check_exponent

    try:
        p: Any = float(tokens[0].value)
    except ValueError:
        p = tokens[0].value
    return check_exponent(p, error=ValueError)


def _read_exponents(type_: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    return _refuse_repetitions([_read_exponent(type_, [token]) for token in tokens])


def _read_seeds(type_: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    return _refuse_repetitions([seed for token in tokens for seed in _read_range(token.value)])


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


def _refuse_repetitions(values: list[Any]) -> tuple[Any, ...]:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{value} is given with repetitions: give each value once")
        seen.add(value)
    return tuple(values)


def _read_numbers(type_: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    return tuple(_read_number(token.value) for token in tokens)


def _read_wholes(type_: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    return tuple(_read_whole(token.value, 0) for token in tokens)


def _read_number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise ValueError(f"the value is {text!r}: give a number")
    return found


def _read_whole(text: str, least: int) -> int:
    try:
        found = int(text)
    except ValueError:
        raise ValueError(f"the value is {text!r}: give an integer >= {least}") from None
    if found < least:
        raise ValueError(f"the value is {found}: give an integer >= {least}")
    return found


def _several(converter: Callable[..., Any], **options: Any) -> Parameter:
    return Parameter(converter=converter, consume_multiple=1, **options)


# What an option takes.
Number = Annotated[float, Parameter(converter=number, metavar="X")]
Numbers = Annotated[tuple[float, ...], _several(_read_numbers, metavar="X...")]
Share = Annotated[float, Parameter(converter=number, metavar="SHARE")]
Count = Annotated[int, Parameter(converter=whole(), metavar="N")]
Positive = Annotated[int, Parameter(converter=whole(1), metavar="N")]
Wholes = Annotated[tuple[int, ...], _several(_read_wholes, metavar="N...")]

# The options themselves.
Exponent = Annotated[
    float,
    Parameter(converter=_read_exponent, metavar="P", help="Exponent of the geometry, above 1."),
]
Exponents = Annotated[
    tuple[float, ...],
    _several(_read_exponents, metavar="P...", help="Exponents of the geometry, above 1."),
]
Seeds = Annotated[
    tuple[int, ...],
    _several(_read_seeds, metavar="SEED...", help="Seeds of the problems, such as 1 2 3 or 1-100."),
]
Starts = Annotated[tuple[int, ...], _several(_read_seeds, metavar="SEED...")]
Threads = Annotated[
    int, Parameter(converter=whole(1), metavar="N", help="Cores to use.", show_default="all")
]
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
    bool, Parameter(group=OUTPUT, help="Replace what --out names, if it is of the same kind.")
]
Json = Annotated[bool, Parameter(group=OUTPUT, help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, Parameter(group=OUTPUT, help="Print no progress and no explanations.")]
