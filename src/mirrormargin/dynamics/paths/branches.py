r"""Following local minimisers from one radius to the next, and keeping the lowest at each.

A local minimiser x(R) of a ball of radius R, in units of R, moves smoothly as the ball grows, and
for large R as ``x = x_inf + c / R``. So the two last points of a branch predict its next one, by a
line in 1/R. Branches may cross: several are followed, fresh starts at each radius look for others,
and one that has come from a fresh start is followed back to smaller radii as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_finite, read_array
from mirrormargin.errors import ProblemError

__all__ = [
    "MOST_POINTS",
    "Found",
    "Landscape",
    "Minimizer",
    "Progress",
    "follow_branches",
    "read_pairs",
    "read_radii",
]

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]

MOST_POINTS = 100_000  # radii, or random starts at each of them
MAX_BRANCHES = 4
LAGS = 30.0  # log loss above the lowest from which a branch is given up
ROUGH = 1e-3  # residual at which a fresh start is compared with what is known
NEAR = 1e-2  # distance at which it then counts as known
SAME = 1e-5  # distance of two minimisers that are one
POLISH = 1e-5  # share of tol that is aimed at in the end, a Newton step or two away
LOWER = 1e-11  # difference of log losses that is rounding, as a share of their size


class Minimizer(Protocol):
    """A local minimiser."""

    @property
    def x(self) -> Array:
        """In units of the radius."""
        ...

    @property
    def log_value(self) -> float: ...

    @property
    def residual(self) -> float: ...


M = TypeVar("M", bound=Minimizer)
M_co = TypeVar("M_co", bound=Minimizer, covariant=True)


class Landscape(Protocol[M_co]):
    """What is minimised on each of several balls; radii are counted by j."""

    @property
    def radii(self) -> Array: ...

    def list_starts(self, j: int, lowest: float) -> Sequence[tuple[str, Array]]:
        """Fresh starts and their names; ``lowest`` is the log loss at the radius before."""
        ...

    def search(self, j: int, x: Array, tol: float, stay_inside: bool = False) -> M_co:
        """Go downhill from x to a residual of tol.

        The search starts where the ray through x leaves the ball, unless it is to stay inside.
        """
        ...

    def rescale(self, j: int, x: Array) -> Array:
        """A point in units of the radius before j, in units of this one."""
        ...


class Found(NamedTuple, Generic[M]):
    """A local minimiser and from where it was found."""

    point: M
    start: str


def follow_branches(
    landscape: Landscape[M], tol: float, progress: Progress | None = None
) -> list[Found[M]]:
    """The lowest minimiser found at each radius.

    Args:
        landscape: What is minimised.
        tol: Residual from which on a minimiser counts as found.
        progress: Called with the numbers of radii done and of all.
    """
    t = 1 / landscape.radii
    lowest: list[Found[M]] = []
    branches: list[list[M]] = []
    for j in range(len(t)):
        tries = [
            (Found(landscape.search(j, _predict(branch, t[: j + 1]), tol), "previous"), branch)
            for branch in branches
        ]
        known = lowest[-1].point.log_value if lowest else np.inf
        for name, x in landscape.list_starts(j, known):
            point = landscape.search(j, x, ROUGH)
            if all(_distance(point, found.point) > NEAR for found, _ in tries):
                tries.append((Found(landscape.search(j, point.x, tol, True), name), []))
        best = _pick([found for found, _ in tries], tol)
        if lowest and best.point.log_value > known + _noise(known):
            # The smaller ball is inside this one, so its minimiser is a start that is lower.
            inside = landscape.search(j, landscape.rescale(j, lowest[-1].point.x), tol, True)
            tries.append((Found(inside, "previous"), []))
            best = _pick([found for found, _ in tries], tol)
        lowest.append(best)
        branches = _keep_distinct(tries, best.point.log_value + LAGS)
        if progress is not None:
            progress(j + 1, len(t))
    _follow_back(landscape, lowest, tol)
    return [
        Found(landscape.search(j, each.point.x, POLISH * tol, True), each.start)
        for j, each in enumerate(lowest)
    ]


def _predict(branch: list[M], t: Array) -> Array:
    last = branch[-1].x
    if len(branch) < 2:
        return last
    return last + (t[-1] - t[-2]) / (t[-2] - t[-3]) * (last - branch[-2].x)


def _distance(one: Minimizer, other: Minimizer) -> float:
    return float(np.abs(one.x - other.x).max())


def _noise(log_value: float) -> float:
    return LOWER * (1 + abs(log_value))


def _pick(found: list[Found[M]], tol: float) -> Found[M]:
    """The lowest; of those that rounding cannot tell apart the first that is certain."""
    least = min(each.point.log_value for each in found)
    level = [each for each in found if each.point.log_value <= least + _noise(least)]
    certain = [each for each in level if each.point.residual <= tol]
    return certain[0] if certain else min(level, key=lambda each: each.point.residual)


def _keep_distinct(tries: list[tuple[Found[M], list[M]]], highest: float) -> list[list[M]]:
    """The last two points of the lowest branches."""
    branches: list[list[M]] = []
    for found, branch in sorted(tries, key=lambda each: each[0].point.log_value):
        point = found.point
        is_new = all(_distance(point, other[-1]) > SAME for other in branches)
        if is_new and point.log_value <= highest and len(branches) < MAX_BRANCHES:
            branches.append([*branch[-1:], point])
    return branches


def _follow_back(landscape: Landscape[M], lowest: list[Found[M]], tol: float) -> None:
    for j in range(len(lowest) - 2, -1, -1):
        if lowest[j + 1].start == "previous":
            continue
        point = landscape.search(j, lowest[j + 1].point.x, tol)
        best = _pick([lowest[j], Found(point, "next")], tol)
        if best.point.log_value < lowest[j].point.log_value - _noise(best.point.log_value):
            lowest[j] = best


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
