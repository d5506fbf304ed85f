"""Reading the radii of a path: positive, finite and increasing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_finite, read_array
from mirrormargin.errors import ProblemError

__all__ = ["read_pairs", "read_radii"]

Array = NDArray[np.float64]


def read_radii(name: str, radii: Any) -> Array:
    """The radii as an array, or an error that names the wrong one."""
    R = read_array(name, radii)
    if R.ndim != 1 or R.size == 0:
        raise ProblemError(f"{name} has shape {R.shape}: give a list of at least one radius")
    check_finite(name, R)
    if R[0] <= 0:
        raise ProblemError(f"{name}[0] is {R[0]:g}: give positive radii")
    wrong = np.flatnonzero(np.diff(R) <= 0)
    if wrong.size:
        j = wrong[0]
        raise ProblemError(
            f"{name} must increase, but {name}[{j + 1}] is {R[j + 1]:g} after {R[j]:g}: sort them"
            " and leave out what is double"
        )
    return R


def read_pairs(radii: Any, head_radii: Any) -> tuple[Array, Array] | None:
    """(r, R), or None if neither is given."""
    if radii is None and head_radii is None:
        return None
    if radii is None or head_radii is None:
        raise ProblemError(
            "radii and head_radii belong together, but only one of them is given: give both or none"
        )
    R, r = read_radii("radii", radii), read_radii("head_radii", head_radii)
    if R.shape != r.shape:
        raise ProblemError(
            f"radii has {R.size} entries and head_radii {r.size}: give one of each for each point"
        )
    return r, R
