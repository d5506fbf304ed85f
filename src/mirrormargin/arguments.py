"""Checking what a caller gives: numbers, counts, seeds, choices, exponents, arrays and paths.

Each function returns the value in the type that the code works with, or raises an error that says
what was given and what is allowed::

    lr is -1: give a number above 0
    step_rule is 'fast': give one of constant, normalized, polyak
    queries has shape (3, 6): give shape (3, 5), one query for each sequence

The caller names the class of the error, that of its room.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mirrormargin.errors import GeometryError, ProblemError

# NumPy is imported where arrays are read: the command line checks its numbers without it.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "MOST_SEED",
    "Parameterization",
    "StepRule",
    "check_choice",
    "check_count",
    "check_exponent",
    "check_finite",
    "check_flag",
    "check_function",
    "check_kind",
    "check_number",
    "check_path",
    "check_seed",
    "check_shape",
    "check_size",
    "check_threads",
    "read_array",
    "read_exponents",
    "read_items",
    "read_numbers",
    "refuse_overflow",
    "show",
]

Error = type[Exception]
StepRule = Literal["constant", "normalized", "polyak"]
Parameterization = Literal["W", "KQ"]
Kind = TypeVar("Kind")
Choice = TypeVar("Choice", bound=str)

MOST_SEED = 2**64 - 1
LARGE_EXPONENT = 100.0
MOST_EXPONENT = 1000.0  # beyond, |w|^(p - 1) is 0 or infinite for all but a few weights
MOST_ENTRIES = 2**31  # of an array: 16 GiB of floats
MOST_PATH = 4096  # characters
MOST_SHOWN = 60  # characters of a value in a message
MOST_DIGITS = 4000  # of an integer, which says more in whole
MOST_COUNT = 2**53  # beyond, floats and compiled integers no longer hold every count


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    hint: str = "",
    error: Error = ProblemError,
) -> float:
    """A real number within limits, as a float. Infinite only with ``most=math.inf``.

    Args:
        name: What it is called, for the message.
        value: What was given. Strings and booleans are not numbers.
        above: Limit that it must exceed.
        least: Smallest allowed number.
        below: Limit that it must stay below.
        most: Largest allowed number.
        hint: What else to say in the message.
        error: Class of the error.

    Example:
        >>> check_number("lr", 1, above=0.0)
        1.0
    """
    number = _to_float(value)
    is_inside = (
        (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    # Without functions of math, which torch cannot compile for a p that is a symbol. Pinned by
    # ``test_optimizers_of_several_exponents_compile_in_one_process``.
    if not is_inside or number != number or (abs(number) == math.inf and most != math.inf):
        limits = [f" above {above:g}"] if above is not None else []
        limits += [f" of at least {least:g}"] if least is not None else []
        limits += [f" below {below:g}"] if below is not None else []
        if most is not None and most < math.inf:
            limits.append(f" at most {most:g}" if limits else f" of at most {most:g}")
        allowed = f"a number{' and'.join(limits)}{', or inf' if most == math.inf else ''}"
        raise error(f"{name} is {show(value)}: give {allowed}{'; ' if hint else ''}{hint}")
    return number


def show(value: Any) -> str:
    """What was given, for a message: its repr, shortened to one line.

    Example:
        >>> show("fast"), show([1.0] * 1000)
        ("'fast'", '[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,... (a list)')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # such as an integer of too many digits
        text = ""
    name = type(value).__name__
    kind = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    if len(text) > (MOST_DIGITS if isinstance(value, int) else MOST_SHOWN):
        return f"{text[: MOST_SHOWN - 15]}... ({kind})"
    return text or kind


def _to_float(value: Any) -> float:
    """The number, or nan for what is none."""
    if type(value) is float:  # or a symbol for one, while torch compiles
        return value
    if isinstance(value, (str, bytes)) or _is_bool(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer or a fraction beyond the largest float
        return math.inf if value > 0 else -math.inf
    except Exception:  # objects may raise what they like
        return math.nan


def _is_bool(value: Any) -> bool:
    """Of Python or of NumPy."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def check_count(
    name: str,
    value: Any,
    *,
    least: int = 1,
    most: int | None = None,
    hint: str = "",
    error: Error = ProblemError,
) -> int:
    """An integer of at least ``least``, and at most ``most``, or 2^53 if that is not given.

    Example:
        >>> check_count("num_tokens", 3, least=2)
        3
    """
    try:
        number = least - 1 if _is_bool(value) else operator.index(value)
    except Exception:  # objects may raise what they like
        number = least - 1
    if number < least or number > (MOST_COUNT if most is None else most):
        allowed = f"an integer from {least} to {most}"
        if most is None:
            allowed = "a positive integer" if least == 1 else f"an integer of at least {least}"
            allowed += " and at most 2^53" if number > MOST_COUNT else ""
        raise error(f"{name} is {show(value)}: give {allowed}{', ' if hint else ''}{hint}")
    return number


def check_threads(threads: Any, *, error: Error = ProblemError) -> int | None:
    """A number of cores; None leaves the choice to the code."""
    return None if threads is None else check_count("threads", threads, hint="or None", error=error)


def check_seed(seed: Any, *, most: int = MOST_SEED, error: Error = ProblemError) -> int:
    """The seed of a random generator, an integer from 0 to ``most``."""
    return check_count("seed", seed, least=0, most=most, error=error)


def check_choice(
    name: str, value: Any, choices: Iterable[Choice], *, error: Error = ProblemError
) -> Choice:
    """One of several names.

    Example:
        >>> check_choice("step_rule", "polyak", ("constant", "polyak"))
        'polyak'
    """
    names = list(choices)
    # A plain copy: a class of texts may call itself equal to anything.
    text = str.__str__(value) if isinstance(value, str) else None
    if text not in names:
        raise error(f"{name} is {show(value)}: give one of {', '.join(names)}")
    return names[names.index(text)]  # pyright: ignore[reportArgumentType]


def check_flag(name: str, value: Any, *, hint: str = "", error: Error = ProblemError) -> bool:
    """True or False; 1 and 0 stand for them.

    Example:
        >>> check_flag("keep_path", 1)
        True
    """
    if not _is_bool(value) and not (isinstance(value, int) and value in (0, 1)):
        raise error(f"{name} is {show(value)}: give True or False{', ' if hint else ''}{hint}")
    if getattr(value, "size", 1) != 1:
        raise error(f"{name} holds several values: give True or False{', ' if hint else ''}{hint}")
    return bool(value)


def check_kind(
    name: str, value: Any, kind: type[Kind], advice: str = "", *, error: Error = ProblemError
) -> Kind:
    """An object of one class; ``advice`` says in the message what to do instead."""
    if not isinstance(value, kind):
        given = "None" if value is None else f"a {type(value).__name__}"
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise error(
            f"{name} is {given}: give {article} {kind.__name__}{', ' if advice else ''}{advice}"
        )
    return value


def check_function(
    name: str, value: Any, signature: str, *, error: Error = ProblemError
) -> Callable[..., Any]:
    """Something that can be called, as ``signature`` says."""
    if not callable(value):
        raise error(f"{name} is {show(value)}: give a function, called as {signature}")
    return value


def check_path(name: str, value: Any, *, error: Error = ProblemError) -> str:
    """The path of a file or folder, which need not exist."""
    try:
        path = os.fspath(value)
        os.fsencode(path)
    except Exception:  # no path, or halves of characters, which no file system has
        path = None
    if not isinstance(path, str) or not path or "\0" in path or len(path) > MOST_PATH:
        raise error(f"{name} is {show(value)}: give the path of a file or folder")
    return path


def read_items(
    name: str, value: Any, allowed: str, *, error: Error = ProblemError
) -> tuple[Any, ...]:
    """What a list, or anything else that can be gone through, holds; ``allowed`` says of what."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(value)
    except Exception:  # objects may raise what they like
        raise error(f"{name} is {show(value)}: give {allowed}") from None


def check_exponent(p: Any, *, error: Error = GeometryError) -> float:
    """The exponent of a geometry, ``1 < p <= 1000``: psi_p is strictly convex only above 1."""
    hint = "near 1, such as 1.1, weights become sparse, 2 is the Euclidean geometry"
    number = check_number("p", p, above=1.0, below=math.inf, hint=hint, error=error)
    if number > MOST_EXPONENT:
        raise error(
            f"p is {show(p)}: give at most {MOST_EXPONENT:g}, for powers with such an exponent"
            " leave floating point; up to 20 is tested"
        )
    return number


def read_exponents(p: Any, *, error: Error = ProblemError) -> Array:
    """One exponent or several, as an array of shape (E,)."""
    import numpy as np

    if p is None or isinstance(p, (str, bytes)) or np.isscalar(p):
        return np.array([check_exponent(p, error=error)])
    given = read_numbers("p", p, error=error)
    if given.ndim > 1 or given.size == 0:
        raise error(f"p has shape {given.shape}: give a number, or a list of numbers")
    return np.array([check_exponent(one, error=error) for one in np.atleast_1d(given).tolist()])


@contextmanager
def refuse_overflow(p: float, *, error: Error = ProblemError) -> Iterator[None]:
    """Say of a very large p that its powers leave floating point, where they do."""
    try:
        yield
    except ArithmeticError as cause:
        if p <= LARGE_EXPONENT:
            raise
        raise error(
            f"p is {p:g}, and powers with such an exponent leave floating point: give a smaller"
            " one; up to 20 is tested"
        ) from cause


def read_array(
    name: str,
    value: Any,
    shape: tuple[int, ...] | None = None,
    meaning: str = "",
    *,
    finite: bool = False,
    error: Error = ProblemError,
) -> Array:
    """A float64 copy of an array, a tensor or nested sequences of numbers.

    Args:
        name: What it is called, for the message.
        value: What was given.
        shape: The shape that it must have; None for any.
        meaning: What an array of this shape holds, for the message.
        finite: Whether all numbers must be finite.
        error: Class of the error.

    Example:
        >>> read_array("head", [1, 2], shape=(2,), meaning="one number for each coordinate")
        array([1., 2.])
    """
    import numpy as np

    array = np.array(read_numbers(name, value, error=error), dtype=np.float64, order="C")
    if shape is not None:
        check_shape(name, array, shape, meaning, error=error)
    if finite:
        check_finite(name, array, error=error)
    return array


def read_numbers(name: str, value: Any, *, error: Error = ProblemError) -> NDArray[Any]:
    """The array as it is, not copied: booleans, integers or floats."""
    import numpy as np

    try:
        if hasattr(value, "detach"):
            # NumPy knows no bfloat16, and reads no tensor that requires a gradient.
            value = value.detach().cpu()
            value = (value.double() if value.is_floating_point() else value).numpy()
        array = np.asarray(value)
    except Exception as cause:  # objects may raise what they like
        reason = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise error(f"{name} cannot be read as an array of numbers: {reason}") from cause
    if array.dtype.kind not in "biuf":
        raise error(f"{name} has dtype {str(array.dtype)[:MOST_SHOWN]}: give real numbers")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise error(f"{name} has masked entries, whose numbers mean nothing: fill or remove them")
    check_size(name, array.shape, error=error)
    return array


def check_size(name: str, shape: tuple[int, ...], *, error: Error = ProblemError) -> None:
    """Raise if an array of this shape is far larger than what fits into memory."""
    if math.prod(shape) > MOST_ENTRIES:
        raise error(
            f"{name} of shape {shape} has {math.prod(shape):,} entries: give at most"
            f" {MOST_ENTRIES:,}"
        )


def check_shape(
    name: str,
    array: NDArray[Any],
    shape: tuple[int, ...],
    meaning: str,
    *,
    error: Error = ProblemError,
) -> None:
    """Raise unless the array has this shape."""
    if array.shape != shape:
        raise error(f"{name} has shape {array.shape}: give shape {shape}, {meaning}")


def check_finite(name: str, array: Array, *, error: Error = ProblemError) -> None:
    """Raise where an entry is nan or infinite, and name the first."""
    import numpy as np

    finite = np.isfinite(array)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = ", ".join(map(str, first))
        raise error(f"{name}[{where}] is {array[first]}: give finite numbers")
