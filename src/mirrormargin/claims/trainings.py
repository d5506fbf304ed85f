r"""Evidence from trainings on real data: their stored record, or trainings made now.

OUT/records/       records of trainings, those that were given and those made now
OUT/trainings/     checkpoints and weights of the latter
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mirrormargin.claims.campaign.method import Method, Run
from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.campaign.work import do_campaign, find_missing
from mirrormargin.claims.evidence import RUN_NOW, STORED, Evidence, find_record
from mirrormargin.claims.experiment import Experiment
from mirrormargin.errors import ClaimError, DataError, ModelError

__all__ = ["Trainings"]


@dataclass(frozen=True)
class Trainings:
    """Where the evidence of experiments on real data comes from.

    Attributes:
        out: The folder of the claims.
        profile: "quick" trains nothing, "full" what two cores can, "paper" the published sizes.
        records: Folder with records that need not be made; None if there is none.
        is_fresh: Whether to make them all the same.
        may_train: Whether to train at all; otherwise records that are there are examined.

    Raises:
        ClaimError: If nothing may be trained although everything is to be made anew.
    """

    out: Path
    profile: str
    records: Path | None = None
    is_fresh: bool = False
    may_train: bool = True
    _cleared: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.is_fresh and not self.may_train:
            raise ClaimError("trainings cannot be made anew without training: leave out one")

    def find_evidence(
        self, one: Experiment, progress: Callable[[int, int, str], object] | None = None
    ) -> Evidence | None:
        """The evidence of an experiment; None if there is none.

        Where data or pretrained weights are not on this machine, that is the stored record.
        """
        if one.table is None or not one.table.list_methods(self.profile):
            return find_record(one.name)
        methods = one.table.list_methods(self.profile)
        place = self.out / "records"
        for method in methods:
            self._prepare(method, place)
        is_made = self.may_train and bool(find_missing(methods, place))
        if is_made:
            try:
                self._train(methods, place, progress)
            except (DataError, ModelError):
                return find_record(one.name)
        evidence = one.table.make_evidence(one.name, read_records(place), self.profile)
        if evidence is None:
            return None if is_made else find_record(one.name)
        kind = RUN_NOW if is_made else STORED
        return replace(evidence, origin={**evidence.origin, "kind": kind})

    def look(self) -> Trainings:
        """The same without training anything."""
        return replace(self, is_fresh=False, may_train=False)

    def _prepare(self, method: Method, place: Path) -> None:
        """Remove a method's records, once, or take those that were given."""
        if not self.is_fresh:
            if self.records is not None:
                _copy(self.records / method.folder, place / method.folder)
        elif method.folder not in self._cleared:
            self._cleared.add(method.folder)
            for folder in (place, self.out / "trainings"):
                shutil.rmtree(folder / method.folder, ignore_errors=True)

    def _train(
        self,
        methods: tuple[Method, ...],
        place: Path,
        progress: Callable[[int, int, str], object] | None,
    ) -> None:
        def report(run: Run, step: int, num_steps: int, row: dict[str, Any]) -> None:
            if progress is not None:
                progress(step, num_steps, run.key)

        do_campaign(methods, place, self.out / "trainings", on_step=report)


def _copy(source: Path, target: Path) -> None:
    """Bring what is given, unless what is there knows as much of the same training."""
    for file in source.glob("*.json"):
        there = target / file.name
        if not there.exists() or _is_better(file, there):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)


def _is_better(file: Path, there: Path) -> bool:
    try:
        new, old = (json.loads(path.read_bytes()) for path in (file, there))
        return new["digest"] != old["digest"] or ("test" in new and "test" not in old)
    except (OSError, ValueError, KeyError, TypeError):
        return True
