"""The errors this library raises on purpose: what was given, what is allowed, what to do."""

from typing import Any

__all__ = [
    "ClaimError",
    "DataError",
    "DivergedError",
    "GeometryError",
    "MirrorMarginError",
    "MirrorMarginWarning",
    "MissingNumbaError",
    "ModelError",
    "NonFiniteGradientError",
    "NotSeparableError",
    "OptimizerError",
    "ProblemError",
    "ReportError",
    "RunError",
    "SolverError",
    "TrainingError",
    "TrainingInterrupted",
]


class MirrorMarginError(Exception):
    """Base class: ``except MirrorMarginError`` catches whatever the library raises on purpose."""


class MirrorMarginWarning(UserWarning):
    """Something works, but not as well as it could."""


class MissingNumbaError(MirrorMarginError, ImportError):
    """Compiled code was asked for where Numba is absent, broken or switched off."""


class GeometryError(MirrorMarginError, ValueError):
    """A potential, norm or divergence was asked for something it does not have."""


class OptimizerError(MirrorMarginError, ValueError):
    """An optimizer got a hyper-parameter, gradient or state that it cannot use."""


class NonFiniteGradientError(MirrorMarginError, ArithmeticError):
    """A gradient holds nan or inf and the optimizer was told to raise."""


class ProblemError(MirrorMarginError, ValueError):
    """An argument of the lab is not allowed: an array of a wrong shape, a number out of range."""


class DataError(MirrorMarginError, ValueError):
    """A data set is absent, damaged, or not of the form that was asked for."""


class ModelError(MirrorMarginError, ValueError):
    """A model cannot be built or loaded as asked, or was given inputs it has no place for."""


class TrainingError(MirrorMarginError, ValueError):
    """A training cannot run as configured, or its folder cannot be gone on with."""


class DivergedError(TrainingError):
    """The loss of a training is not finite any more."""


class ClaimError(MirrorMarginError, ValueError):
    """No claim has such a name, or its run was asked for in a way that there is not."""


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


class RunError(MirrorMarginError, RuntimeError):
    """A run on disk cannot be written or read."""


class ReportError(MirrorMarginError, ValueError):
    """A report cannot be made of what was given, or lacks what it draws with."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted from the keyboard; ``record`` holds what is done and goes on.

    Not a MirrorMarginError: ``except Exception`` must let an interrupt pass.
    """

    def __init__(self, message: str, record: Any) -> None:
        super().__init__(message)
        self.record = record
