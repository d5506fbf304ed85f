"""What a trial is: many cases, each made from its own seed, each with an outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

__all__ = ["Outcome", "SkippedTrial", "Trial", "one_session"]

Kind = Literal["held", "refused", "wrong"]


class SkippedTrial(Exception):  # noqa: N818 - nothing went wrong
    """The trial cannot be made on this machine; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """How one case ended.

    Attributes:
        kind: ``"held"``: all went as if nothing had happened. ``"refused"``: a clear error of
            ours, in one line, and nothing lost. ``"wrong"``: anything else.
        what: What was done, and for ``"wrong"`` what came of it, in a line.
    """

    kind: Kind
    what: str


@contextmanager
def one_session(folder: Path) -> Iterator[None]:
    """What a trial needs around all its cases when it needs nothing."""
    yield


@dataclass(frozen=True)
class Trial:
    """Many cases of one sort.

    Attributes:
        name: As the command line spells it.
        title: What the table calls it.
        number: How many cases ``--full`` makes.
        try_case: Makes one case in an empty folder and says how it ended. All that is random in
            it comes from the generator, so that a case can be made again alone.
        session: A context around all cases, with a folder that they share: a server, a training
            made once that every case damages. It raises `SkippedTrial` where the trial cannot be
            made.
    """

    name: str
    title: str
    number: int
    try_case: Callable[[np.random.Generator, Path], Outcome]
    session: Callable[[Path], object] = one_session
