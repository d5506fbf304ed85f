"""Checking the arguments of the generators; each error says what was given and what is allowed."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import SupportsIndex

from mirrormargin.errors import ProblemError

__all__ = ["check_integer", "check_number", "check_seed"]


def check_seed(seed: SupportsIndex) -> int:
    return check_integer("seed", seed, least=0, most=2**64 - 1)


def check_integer(name: str, value: SupportsIndex, least: int, most: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ProblemError(
            f"{name} is {value!r}, a {type(value).__name__}: give an integer"
        ) from None
    if number < least or (most is not None and number > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ProblemError(f"{name} is {number}: give an integer {allowed}")
    return number


def check_number(
    name: str, value: float, *, above: float = -math.inf, below: float = math.inf
) -> float:
    limits = [f"above {above:g}"] if above > -math.inf else []
    limits += [f"below {below:g}"] if below < math.inf else []
    allowed = " ".join(["give a finite number", *limits])
    if not isinstance(value, Real):
        raise ProblemError(f"{name} is {value!r}, a {type(value).__name__}: {allowed}")
    try:
        number = float(value)
    except OverflowError:  # an integer or a fraction beyond the largest float
        number = math.inf
    if not (math.isfinite(number) and above < number < below):
        raise ProblemError(f"{name} is {value}: {allowed}")
    return number
