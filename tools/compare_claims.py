"""Compare two runs of the claims: did a change of the code change what is found?

    python tools/compare_claims.py OLD NEW --figures OLD_FIGURES NEW_FIGURES

OLD and NEW are folders that ``mirrormargin reproduce`` wrote, the figures' folders are those of
``mirrormargin report DIR --figures FOLDER``. Compared are

    exactly        the ids of all claims and their order, verdicts, and of each test its name, kind,
                   what is expected (with the bound) and whether it holds; of each figure its
                   panels, axes, series, colours' groups and tables
    within --rtol  the numbers: a test's value and interval, all points of all figures

Prose (statements, notes, captions), commands, versions, times and hashes may differ. Every
difference is one line; the last line counts them. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

PROSE = {"title", "caption"}  # of a figure as a whole; the titles of its panels are compared
CLAIM_KEYS = ("verdict", "provenance", "experiment", "figures", "should_hold")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences and a summary; the exit code says whether there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="folder with the claims.json of before")
    parser.add_argument("new", type=Path, help="folder with the claims.json of now")
    parser.add_argument(
        "--figures", nargs=2, type=Path, metavar=("OLD", "NEW"), help="folders of figures as JSON"
    )
    parser.add_argument(
        "--rtol", type=float, default=1e-6, help="relative tolerance (default: 1e-6)"
    )
    parser.add_argument(
        "--atol", type=float, default=0.0, help="smaller differences are rounding (default: 0)"
    )
    chosen = parser.parse_args(arguments)
    near = Near(chosen.rtol, chosen.atol)
    try:
        old, new = (_read(folder / "claims.json")["claims"] for folder in (chosen.old, chosen.new))
        differences = list(compare_claims(old, new, near))
        num_tests = sum(len(claim["tests"]) for claim in old)
        summary = f"{len(old)} claims, {num_tests} tests"
        if chosen.figures is not None:
            before, after = (_read_figures(folder) for folder in chosen.figures)
            differences += compare_figures(before, after, near)
            summary += f", {len(before)} figures"
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"the folders cannot be compared: {error}")
    for line in differences:
        print(line)
    print(f"compared {summary}, {near.num_compared} numbers: {len(differences)} differences")
    return 1 if differences else 0


class Near:
    """Equality of JSON values: numbers within a tolerance, everything else exactly."""

    def __init__(self, rtol: float, atol: float) -> None:
        self.rtol, self.atol = rtol, atol
        self.num_compared = 0

    def compare(self, where: str, old: Any, new: Any) -> Iterator[str]:
        """The differences of two values, those of a list of numbers in one line."""
        if _is_numbers(old) and _is_numbers(new) and len(old) == len(new):
            yield from self._compare_numbers(where, old, new)
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in dict.fromkeys([*old, *new]):
                yield from self.compare(f"{where}, {key}", old.get(key), new.get(key))
        elif isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                yield f"{where}: {len(old)} entries, now {len(new)}"
            for index, (one, other) in enumerate(zip(old, new, strict=False)):
                yield from self.compare(f"{where}[{index}]", one, other)
        elif _is_number(old) and _is_number(new):
            self.num_compared += 1
            if not self.is_near(old, new):
                yield f"{where}: {old!r}, now {new!r}"
        elif old != new:
            yield f"{where}: {_shorten(old)}, now {_shorten(new)}"

    def is_near(self, old: float, new: float) -> bool:
        return math.isclose(old, new, rel_tol=self.rtol, abs_tol=self.atol)

    def _compare_numbers(self, where: str, old: list[Any], new: list[Any]) -> Iterator[str]:
        self.num_compared += len(old)
        wrong = [
            (one, other)
            for one, other in zip(old, new, strict=True)
            if ((one is None) != (other is None))
            or (one is not None and not self.is_near(one, other))
        ]
        if wrong:
            one, other = max(wrong, key=_find_distance)
            yield f"{where}: {len(wrong)} of {len(old)} numbers differ, most {one!r}, now {other!r}"


def compare_claims(
    old: list[dict[str, Any]], new: list[dict[str, Any]], near: Near
) -> Iterator[str]:
    """Differences between the claims of two claims.json."""
    yield from near.compare("ids", [one["id"] for one in old], [one["id"] for one in new])
    found = {claim["id"]: claim for claim in new}
    for claim in old:
        if claim["id"] not in found:
            yield f"{claim['id']}: is gone"
            continue
        other = found.pop(claim["id"])
        for key in CLAIM_KEYS:
            yield from near.compare(f"{claim['id']}, {key}", claim[key], other[key])
        for index, (test, now) in enumerate(zip_longest(claim["tests"], other["tests"])):
            where = f"{claim['id']}, test {index}" + (f" ({test['name']})" if test else "")
            yield from near.compare(where, test, now)
    yield from (f"{name}: is new" for name in found)


def compare_figures(old: dict[str, Any], new: dict[str, Any], near: Near) -> Iterator[str]:
    """Differences between the figures of two folders, by name."""
    yield from (f"figure {name}: is new" for name in new if name not in old)
    for name, figure in old.items():
        if name not in new:
            yield f"figure {name}: is gone"
            continue
        kept, now = (
            {key: value for key, value in one.items() if key not in PROSE}
            for one in (figure, new[name])
        )
        yield from near.compare(f"figure {name}", kept, now)


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _read_figures(folder: Path) -> dict[str, Any]:
    figures = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    if not figures:
        raise ValueError(f"{folder} holds no figure as JSON")
    return figures


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_numbers(value: Any) -> bool:
    """Whether a value is a list of numbers and gaps."""
    return (
        isinstance(value, list)
        and any(map(_is_number, value))
        and all(one is None or _is_number(one) for one in value)
    )


def _find_distance(pair: tuple[float | None, float | None]) -> float:
    one, other = pair
    if one is None or other is None:
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "..."


if __name__ == "__main__":
    sys.exit(main())
