"""Options that several commands have, each with one spelling, one meaning and one check.

PROBLEM  --p  --seed  --threads  --out  --overwrite  --json  --quiet
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "Once",
    "add_exponents",
    "add_output",
    "add_problem",
    "add_report",
    "add_seed",
    "add_threads",
    "describe",
    "read_count",
    "read_exponent",
    "read_number",
    "read_positive",
    "read_seeds",
]

MOST_SEEDS = 100_000  # in one range: more is a slip of the finger

EXIT_CODES = "exit code: 0 done, {failed}2 wrong input, 130 interrupted"


class Once(argparse.Action):
    """Collects what was given, lists flattened, and refuses repetitions."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        flat = [x for value in values for x in (value if isinstance(value, range) else (value,))]
        twice = [value for place, value in enumerate(flat) if value in set(flat[:place])]
        if twice:
            raise argparse.ArgumentError(
                self, f"{twice[0]} is given with repetitions: give each value once"
            )
        setattr(namespace, self.dest, flat)


def describe(
    examples: Sequence[tuple[str, str]], failed: str = "", more: str = ""
) -> dict[str, Any]:
    """What a command's parser gets besides its own text: examples, more text, exit codes.

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
    return {
        "epilog": "\n\n".join(part for part in parts if part),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }


def add_problem(parser: argparse.ArgumentParser, is_optional: bool = False) -> None:
    parser.add_argument(
        "problem",
        metavar="PROBLEM",
        nargs="?" if is_optional else None,
        help="lab/GENERATOR, or a file .npz or .json, see below",
    )


def add_exponents(group: Any, default: Sequence[float] | None = (2.0,), also: str = "2") -> None:
    group.add_argument(
        "--p",
        type=read_exponent,
        nargs="+",
        action=Once,
        default=None if default is None else list(default),
        metavar="P",
        help=f"exponents of the geometry, above 1 (default: {also})",
    )


def add_seed(group: Any) -> None:
    group.add_argument(
        "--seed",
        type=read_seeds,
        nargs="+",
        action=Once,
        metavar="SEED",
        help="problems of lab/GENERATOR, as 1 2 3 or 1-100 (default: 1; of planar_multi 0)",
    )


def add_threads(group: Any) -> None:
    group.add_argument(
        "--threads", type=read_positive, metavar="N", help="cores to use (default: all)"
    )


def add_output(
    group: Any, help: str, metavar: str = "FOLDER", overwrite: str = "a run of the same kind"
) -> None:
    group.add_argument("--out", type=Path, metavar=metavar, help=help)
    group.add_argument(
        "--overwrite", action="store_true", help=f"replace {overwrite} that is there already"
    )


def add_report(group: Any) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON object instead")
    group.add_argument("--quiet", action="store_true", help="no progress and no explanations")


def read_exponent(text: str) -> float:
    number = _read(float, text, "p", "a number above 1")
    if not 1 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"p is {number}, but must be above 1 and finite: near 1 is sparse, 2 is l2"
        )
    return number


def read_seeds(text: str) -> range:
    """One seed, or all from the first to the last of ``first-last``."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"seed is {text!r}: give integers >= 0, as 1 2 3, or a range such as 1-100"
        )
    start, stop = int(first), int(last or first)
    if stop < start:
        raise argparse.ArgumentTypeError(f"the range {text!r} is empty: give {stop}-{start}")
    if stop - start >= MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"the range {text!r} has more than {MOST_SEEDS:,} seeds: give a shorter one"
        )
    return range(start, stop + 1)


def read_count(text: str) -> int:
    return _read_at_least(0, text)


def read_positive(text: str) -> int:
    return _read_at_least(1, text)


def read_number(text: str) -> float:
    """A number, not nan; its range is the library's to check."""
    number = _read(float, text, "the value", "a number")
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f"the value is {text!r}: give a number")
    return number


def _read_at_least(least: int, text: str) -> int:
    number = _read(int, text, "the value", f"an integer >= {least}")
    if number < least:
        raise argparse.ArgumentTypeError(f"the value is {number}: give an integer >= {least}")
    return number


def _read(read: Callable[[str], Any], text: str, name: str, allowed: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} is {text!r}: give {allowed}") from None
