"""Reading the arrays of a problem: float64 copies, and errors that name what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import ProblemError

__all__ = ["check_finite", "check_shape", "read_array", "read_numbers", "read_tokens"]

Array = NDArray[np.float64]


def read_array(name: str, value: Any) -> Array:
    """A float64 copy of an array, a tensor or nested sequences of numbers."""
    array = read_numbers(name, value)
    return np.array(array, dtype=np.float64, order="C")


def read_numbers(name: str, value: Any) -> NDArray[Any]:
    """The array as it is: booleans, integers or floats."""
    try:
        if hasattr(value, "detach"):
            # NumPy knows no bfloat16, and reads no tensor that requires a gradient.
            value = value.detach().cpu()
            value = (value.double() if value.is_floating_point() else value).numpy()
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"{name} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"{name} has dtype {array.dtype}, but must hold real numbers")
    return array


def read_tokens(tokens: Any) -> Array:
    """Tokens of shape (num_sequences, num_tokens, dim) with at least two tokens, finite."""
    X = read_array("tokens", tokens)
    if X.ndim != 3:
        raise ProblemError(
            f"tokens has shape {X.shape}, but must have shape (num_sequences, num_tokens, dim):"
            " stack one matrix of tokens for each sequence"
        )
    if X.size == 0:
        raise ProblemError(f"tokens has shape {X.shape} and is empty: give at least one entry")
    if X.shape[1] == 1:
        raise ProblemError(
            f"tokens has shape {X.shape}, one token in a sequence: attention chooses among"
            " tokens, so give at least 2"
        )
    check_finite("tokens", X)
    return X


def check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...], meaning: str) -> None:
    if array.shape != shape:
        raise ProblemError(
            f"{name} has shape {array.shape}, but must have shape {shape}: give {meaning}"
        )


def check_finite(name: str, array: Array) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = ", ".join(map(str, first))
        raise ProblemError(
            f"{name} must be finite, but {name}[{where}] is {array[first]}: remove or repair it"
        )
