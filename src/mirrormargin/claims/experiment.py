r"""What is run for claims: an experiment splits into parts, which run in any order and on any core.

    arrays = concatenate(run(part) for part in split(settings)),    along the first axis

Arrays named in ``shared`` are the same in every part and are taken from the first one. Parts are
pure: what a part gives depends on the settings and on nothing else, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PROFILES", "Experiment"]

PROFILES = ("quick", "full", "paper")

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A computation that one or several claims are examined on.

    Attributes:
        name: Used in folder names.
        title: What is run, in a line.
        profiles: Settings of each profile that differs from the one before: "quick" at least.
            Plain JSON values.
        split: From settings to parts; each part is a JSON value.
        run: From settings and a part to arrays.
        shared: Names of arrays that are the same in every part.
        needs: What a run takes that is not here, in words; then only a stored record can be
            examined.
        table: The trainings on real data that it is made of. The quick profile examines their
            stored record, the others train what has no record.
    """

    name: str
    title: str
    profiles: Mapping[str, Settings] = field(default_factory=dict)
    split: Callable[[Settings], Sequence[Any]] = lambda settings: [None]
    run: Callable[[Settings, Any], Arrays] | None = None
    shared: tuple[str, ...] = ()
    needs: str = ""
    table: Any = None

    def choose_settings(self, profile: str, seed: int) -> Settings:
        """The settings of a profile; one without its own takes those of the profile before."""
        upto = PROFILES[: PROFILES.index(profile) + 1]
        chosen = [self.profiles[name] for name in upto if name in self.profiles]
        return {**chosen[-1], "seed": seed}

    def join(self, parts: Sequence[Arrays]) -> Arrays:
        """The arrays of all parts as those of one."""
        return {
            name: first if name in self.shared else np.concatenate([part[name] for part in parts])
            for name, first in parts[0].items()
        }
