r"""Where training starts.

    NormalInit(std, seeds):   W_ij ~ N(0, std^2),  one start for each seed

drawn anew for each problem and each exponent, from a generator made of the seed, the place of the
problem in its batch and the exponent: a batch with more problems or exponents keeps its starts.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_number, read_array
from mirrormargin.errors import ProblemError

__all__ = ["NormalInit", "read_init"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NormalInit:
    """Independent normal entries.

    Args:
        std: Their standard deviation, at least 0.
        seeds: One start for each of these non-negative integers; a single integer is one start.
        same_for_all_p: Whether a seed gives the same start at every exponent.
    """

    std: float = 1.0
    seeds: int | Sequence[int] = 0
    same_for_all_p: bool = False

    def __post_init__(self) -> None:
        check_number("std", self.std, least=0.0)
        try:
            given = self.seeds if isinstance(self.seeds, Iterable) else (self.seeds,)
            seeds = tuple(operator.index(seed) for seed in given)
        except TypeError:
            raise ProblemError(f"seeds is {self.seeds!r}: give integers >= 0") from None
        if not seeds or min(seeds) < 0:
            raise ProblemError(f"seeds is {self.seeds!r}: give at least one integer, all >= 0")
        object.__setattr__(self, "seeds", seeds)

    def draw(
        self,
        num_problems: int,
        exponents: Array,
        shape: tuple[int, ...],
        stream: tuple[int, ...] = (),
    ) -> Array:
        """Starts of shape (problem, p, init, ...); other streams are independent."""
        seeds: Any = self.seeds
        out = np.empty((num_problems, len(exponents), len(seeds), *shape))
        for i, j, k in np.ndindex(out.shape[:3]):
            # The exponent's own bits: its place among the others must not matter.
            p = 0 if self.same_for_all_p else int(exponents[j].view(np.uint64))
            rng = np.random.default_rng([seeds[k], i, p, *stream])
            out[i, j, k] = self.std * rng.normal(size=shape)
        return out


def read_init(
    init: Any, num_problems: int, exponents: Array, shape: tuple[int, ...], name: str = "init"
) -> Array:
    """Starts of shape (problem, p, init, ...) from a number, an array or a :class:`NormalInit`."""
    if isinstance(init, NormalInit):
        # A head must not have the entries of its W.
        return init.draw(num_problems, exponents, shape, () if name == "init" else (1,))
    array = read_array(name, init, finite=True)
    if array.size == 0:
        raise ProblemError(f"{name} has shape {array.shape} and is empty: give at least one start")
    count = array.shape[-len(shape) - 1] if array.ndim > len(shape) else 1
    target = (num_problems, len(exponents), count, *shape)
    try:
        return np.broadcast_to(array, target).copy()
    except ValueError:
        axes = ", ".join(map(str, shape))
        raise ProblemError(
            f"{name} has shape {array.shape}, which does not broadcast to {target}, (problem, p,"
            f" init, {axes}): give 0, one start ({axes}), several (init, {axes}), all of them, or"
            " a NormalInit"
        ) from None
