r"""A story is one experiment whole: what is run, the claims that rest on it, and how it is drawn.

    arrays = concatenate(run(settings, part) for part in split(settings)),    along one axis

Parts run in any order and on any core. They are pure: what a part gives depends on the settings and
on nothing else, to the last bit. Each story has a file in ``stories/``, which reads from top to
bottom: the arrays, ``run``, the checks of its claims, ``draw``, and the :class:`Story` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign.training_table import TrainingTable
from mirrormargin.claims.claim import Claim
from mirrormargin.claims.evidence import EVIDENCE, Evidence, find_digest
from mirrormargin.figures import Figure

__all__ = ["PROFILES", "Arrays", "Settings", "Story", "list_seeds", "split_seeds"]

PROFILES = ("quick", "full", "paper")
STRIDE = 1000  # more seeds than any story uses: two seeds of a command share no problem

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Story:
    """An experiment with its claims and figures.

    A story either has ``run``, or is made of trainings on real data (``table``), or cannot be run
    because something is missing (``needs``); in the last two cases a stored record can be examined.

    Attributes:
        name: Used in folder names.
        title: What is run, in a line.
        arrays: What each array is: from names, separated by commas, to "axes: meaning", such as
            ``{"p, seed": "S: of each flow", "divergence": "S R: D along it"}``. A letter stands for
            the same size throughout; arrays that may hold nan say so.
        claims: The claims that are examined on it. A claim that names no figures gets the figure
            that has the name of the story.
        draw: Each from evidence to a figure, or to None if it shows nothing. Figures of one name,
            of several stories, become one.
        profiles: Settings of each profile that differs from the one before: "quick" at least.
            Plain JSON values.
        split: From settings to parts; each part is a JSON value.
        run: From settings and a part to arrays.
        axis: The axis along which parts are joined. Arrays that do not begin with it are the same
            in every part.
        early: Whether it can run while another process compiles the training loop.
        table: The trainings that it is made of. The quick profile examines their stored record, the
            others train what has no record.
        needs: What is missing to run it, in words; "" if nothing is.
    """

    name: str
    title: str
    arrays: Mapping[str, str]
    claims: tuple[Claim, ...]
    draw: tuple[Callable[[Evidence], Figure | None], ...] = ()
    profiles: Mapping[str, Settings] = field(default_factory=dict)
    split: Callable[[Settings], Sequence[Any]] = lambda settings: [None]
    run: Callable[[Settings, Any], Arrays] | None = None
    axis: str = "S"
    early: bool = False
    table: TrainingTable | None = None
    needs: str = ""

    def __post_init__(self) -> None:
        own = (self.name,) if self.draw else ()
        claims = tuple(
            replace(claim, experiment=self.name, needs=self.needs, figures=claim.figures or own)
            for claim in self.claims
        )
        object.__setattr__(self, "claims", claims)

    def choose_settings(self, profile: str, seed: int) -> Settings:
        """The settings of a profile; one without its own takes those of the profile before."""
        upto = PROFILES[: PROFILES.index(profile) + 1]
        chosen = [self.profiles[name] for name in upto if name in self.profiles]
        return {**chosen[-1], "seed": seed}

    def list_axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of every array, by its name."""
        return {
            name: tuple(text.partition(":")[0].split())
            for names, text in self.arrays.items()
            for name in names.split(", ")
        }

    def join(self, parts: Sequence[Arrays]) -> Arrays:
        """The arrays of all parts as those of one."""
        axes = self.list_axes()
        return {
            name: np.concatenate([part[name] for part in parts])
            if axes[name][:1] == (self.axis,)
            else first
            for name, first in parts[0].items()
        }

    def name_folder(self, out: Path, profile: str, seed: int) -> Path:
        """Where the evidence is kept: a folder for each combination of settings and code."""
        settings = {} if self.run is None else self.choose_settings(profile, seed)
        digest = find_digest(self.name, settings, self._list_sources())
        return out / EVIDENCE / f"{self.name}-{digest}"

    def _list_sources(self) -> list[Path]:
        """The file of ``run``, and those beside it that it takes something from."""
        if self.run is None:
            return []
        found = sys.modules[self.run.__module__]
        modules = {found, *_find_neighbours(found)}
        return sorted(Path(str(module.__file__)) for module in modules)


def _find_neighbours(module: ModuleType) -> Iterator[ModuleType]:
    package = module.__name__.rpartition(".")[0] + "."
    for value in vars(module).values():
        name = getattr(value, "__module__", None) or ""
        if name.startswith(package) and name != module.__name__:
            yield sys.modules[name]


def list_seeds(settings: Settings, first: int = 1) -> list[int]:
    """As many as ``settings["num_seeds"]``, from ``first`` on if the command's seed is 0."""
    start = first + STRIDE * settings["seed"]
    return list(range(start, start + settings["num_seeds"]))


def split_seeds(settings: Settings, first: int = 1, size: int = 10) -> list[list[int]]:
    """The seeds in groups of ``size``, each a part."""
    seeds = list_seeds(settings, first)
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]
