"""The errors this library raises on purpose: what was given, what is allowed, what to do."""

__all__ = [
    "GeometryError",
    "MirrorMarginError",
    "NonFiniteGradientError",
    "OptimizerError",
    "ProblemError",
]


class MirrorMarginError(Exception):
    """Base class: ``except MirrorMarginError`` catches whatever the library raises on purpose."""


class GeometryError(MirrorMarginError, ValueError):
    """A potential, norm or divergence was asked for something it does not have."""


class OptimizerError(MirrorMarginError, ValueError):
    """An optimizer got a hyper-parameter, gradient or state that it cannot use."""


class NonFiniteGradientError(MirrorMarginError, ArithmeticError):
    """A gradient holds nan or inf and the optimizer was told to raise."""


class ProblemError(MirrorMarginError, ValueError):
    """The arrays of an attention problem do not fit together."""
