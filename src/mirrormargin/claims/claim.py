r"""One published statement, what it takes to check it, and what came out.

    reproduced               every check of the statement holds, and every published number is met
    reproduced differently   the statement holds, but a published number is not met
    undecided                a check of the statement fails, but more seeds could still make it hold
    not reproduced           a check of the statement fails, and its interval excludes the statement
    not run                  there is nothing to check it on

A verdict is only ever computed from checks, see :func:`decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from math import isfinite
from typing import Any

from mirrormargin.claims.evidence import Evidence

__all__ = ["Check", "Claim", "Finding", "Provenance", "Verdict", "decide"]


class Verdict(str, Enum):
    """What the checks say about a claim; compares equal to its text."""

    REPRODUCED = "reproduced"
    DIFFERENTLY = "reproduced differently"
    UNDECIDED = "undecided"
    FAILED = "not reproduced"
    NOT_RUN = "not run"

    __str__ = str.__str__


class Provenance(str, Enum):
    """How we know what was published; compares equal to its text."""

    SEEN = "seen"  # read in the authors' text, code, notebooks or figures
    DERIVED = "derived"  # follows from what was seen
    RECALLED = "recalled"  # a rate class or a qualitative statement, without published numbers
    OWN = "own"  # not published elsewhere

    __str__ = str.__str__


@dataclass(frozen=True)
class Check:
    """A measured value against what is expected.

    Attributes:
        name: What was measured.
        kind: "statement" if the claim falls with it, "number" if only a published number does.
        expected: In words, such as "at most 0.02".
        value: What was measured, a number or a text.
        low: Lower end of the 95% interval over seeds; None if there is none.
        high: Upper end.
        holds: Whether the value is as expected.
        is_open: It is not, but the interval reaches values that are, or there is a single seed and
            no interval: more seeds could tell.
    """

    name: str
    kind: str
    expected: str
    value: float | str
    low: float | None
    high: float | None
    holds: bool
    is_open: bool = False

    def to_document(self) -> dict[str, Any]:
        """As JSON: what is not finite, as text."""
        return {
            name: value if not isinstance(value, float) or isfinite(value) else str(value)
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Finding:
    """What examining the evidence gave.

    Attributes:
        checks: At least one.
        measured: The numbers to set against the published ones, as short text.
        remark: What else the evidence shows.
    """

    checks: Sequence[Check]
    measured: str
    remark: str = ""


@dataclass(frozen=True)
class Claim:
    """A published statement with a check that can fail.

    Attributes:
        id: Paper, kind and name, such as "A.thm.rate".
        title: A line that says what is claimed.
        statement: The claim in our words.
        source: Where it was published.
        provenance: How we know it.
        published: The published numbers, or the rate class, as short text; "" if there are none.
        examine: From evidence to a finding.
        figures: Names of the figures that show it, if not the one of the story's name.
        should_hold: Whether a failure means that something broke; False if its outcome is open.
        experiment: The name of the story that it rests on; the story sets it.
        needs: What a run of that story takes that is not on this machine; the story sets it.
    """

    id: str
    title: str
    statement: str
    source: str
    provenance: Provenance
    published: str
    examine: Callable[[Evidence], Finding]
    figures: tuple[str, ...] = ()
    should_hold: bool = True
    experiment: str = ""
    needs: str = ""

    @property
    def paper(self) -> str:
        return self.id.partition(".")[0]


def decide(checks: Sequence[Check]) -> tuple[Verdict, str]:
    """The verdict, and a note: which checks fail, or which published numbers are not met."""
    if not checks:
        raise ValueError("a verdict needs at least one check")
    broken = [check for check in checks if not check.holds]
    failed = [check for check in broken if check.kind == "statement"]
    if not broken:
        return Verdict.REPRODUCED, ""
    verdict = Verdict.DIFFERENTLY
    if failed:
        is_open = all(check.is_open for check in failed)
        verdict = Verdict.UNDECIDED if is_open else Verdict.FAILED
    return verdict, "; ".join(
        f"{check.name}: {_describe(check)}, expected {check.expected}" for check in failed or broken
    )


def _describe(check: Check) -> str:
    """The value with its interval, which may be what decides."""
    if isinstance(check.value, str):
        return check.value
    if check.low is None or check.high is None:
        return f"{check.value:.3g}"
    return f"{check.value:.3g} [{check.low:.3g}, {check.high:.3g}]"
