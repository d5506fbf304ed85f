"""The errors this library raises on purpose: what was given, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

__all__ = [
    "ClaimError",
    "DataError",
    "DeltaError",
    "DivergedError",
    "GeometryError",
    "MarginBelowError",
    "MirrorMarginError",
    "MirrorMarginWarning",
    "MissingLibraryError",
    "MissingNumbaError",
    "ModelError",
    "NonFiniteGradientError",
    "NotNumbersError",
    "NotSeparableError",
    "OptimizerError",
    "ProblemError",
    "RankError",
    "ReportError",
    "RunError",
    "SolverError",
    "SweepError",
    "TrainingError",
    "TrainingInterrupted",
    "suggest",
]


class MirrorMarginError(Exception):
    """Base class: ``except MirrorMarginError`` catches all that the library raises on purpose."""


class MirrorMarginWarning(UserWarning):
    """Something works, but not as well as it could."""


class MissingNumbaError(MirrorMarginError, ImportError):
    """Compiled code was asked for where Numba is absent, broken or switched off."""


class MissingLibraryError(MirrorMarginError, ImportError):
    """An integration was imported without the library that it is for."""


class GeometryError(MirrorMarginError, ValueError):
    """A potential, norm or divergence was asked for something it does not have."""


class NotNumbersError(GeometryError, TypeError):
    """An array holds something other than real numbers."""


class OptimizerError(MirrorMarginError, ValueError):
    """An optimizer got a hyper-parameter, gradient or state that it cannot use."""


class NonFiniteGradientError(MirrorMarginError, ArithmeticError):
    """A gradient holds nan or inf and the optimizer was told to raise."""


class ProblemError(MirrorMarginError, ValueError):
    """An argument of the lab is not allowed: an array of a wrong shape, a number out of range."""


class DataError(MirrorMarginError, ValueError):
    """A data set is absent, damaged, or not of the form that was asked for."""


class ModelError(MirrorMarginError, ValueError):
    """A model cannot be built or loaded as asked, or was given inputs that it cannot take."""


class DeltaError(MirrorMarginError, ValueError):
    """A sparse delta cannot be made, read, or applied to this model."""


class TrainingError(MirrorMarginError, ValueError):
    """A training cannot run as configured, or cannot be resumed from its folder."""


class DivergedError(TrainingError):
    """The loss of a training is no longer finite."""


class RankError(TrainingError):
    """One of several processes that train together is gone, or failed by itself."""


class ClaimError(MirrorMarginError, ValueError):
    """There is no claim of that name, or it cannot be run as asked."""


class SolverError(MirrorMarginError, RuntimeError):
    """A solve ended without a certified solution; ``solution`` holds what it reached."""

    def __init__(self, message: str, solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution


class NotSeparableError(SolverError):
    """No W satisfies the constraints; ``certificate`` is the proof."""

    @property
    def certificate(self) -> Any:
        return self.solution.certificate


class MarginBelowError(SolverError):
    """No separating W was found, and no proof that there is none; ``bound`` bounds its margin.

    The bound is a share of the largest constraint, and is proved by ``certificate``.
    """

    @property
    def certificate(self) -> Any:
        return self.solution.certificate

    @property
    def bound(self) -> float:
        return self.certificate.bound


class RunError(MirrorMarginError, RuntimeError):
    """A run on disk cannot be written or read."""


class SweepError(MirrorMarginError, ValueError):
    """The grid of a sweep makes no sense, or nothing is there that could compute its runs."""


class ReportError(MirrorMarginError, ValueError):
    """A report cannot be made from what was given, or a library that draws it is missing."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted from the keyboard; ``record`` holds what is done, to be resumed.

    Not a MirrorMarginError: ``except Exception`` must let an interrupt pass.
    """

    def __init__(self, message: str, record: Any) -> None:
        super().__init__(message)
        self.record = record


def suggest(
    name: str,
    known: Sequence[str],
    *,
    most: int = 3,
    cutoff: float = 0.6,
    otherwise: str | None = None,
) -> str:
    """The end of a message about an unknown name: the nearest known ones.

    Args:
        name: What was given.
        known: What is allowed.
        most: How many to suggest.
        cutoff: How alike they must be, from 0 to 1.
        otherwise: What to say if none is near; None lists all of them.

    Example:
        >>> suggest("polyac", ["constant", "polyak"])
        'did you mean polyak?'
        >>> suggest("fast", ["constant", "polyak"])
        'there are constant, polyak'
    """
    near = [one for one in known if one.lower() == name.lower()]
    near = near or get_close_matches(name, known, n=most, cutoff=cutoff)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known)}" if otherwise is None else otherwise
