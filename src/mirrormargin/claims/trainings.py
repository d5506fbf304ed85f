r"""Evidence from trainings on real data: their stored record, or trainings made now.

OUT/records/       records of trainings, those that were given and those made now
OUT/trainings/     checkpoints and weights of the latter
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mirrormargin.claims.campaign.method import Method, Run
from mirrormargin.claims.campaign.records import read_records
from mirrormargin.claims.campaign.work import do_campaign, find_missing
from mirrormargin.claims.evidence import RUN_NOW, STORED, Evidence, find_record
from mirrormargin.claims.experiment import Experiment
from mirrormargin.errors import DataError

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
    """

    out: Path
    profile: str
    records: Path | None = None
    is_fresh: bool = False
    may_train: bool = True

    def find_evidence(
        self, one: Experiment, progress: Callable[[int, int, str], object] | None = None
    ) -> Evidence | None:
        """The evidence of an experiment; None if there is none.

        Where the data is not on this machine, that is the stored record.
        """
        methods = () if one.table is None else one.table.list_methods(self.profile)
        if not methods:
            return find_record(one.name)
        place = self.out / "records"
        if self.is_fresh:
            for method in methods:
                shutil.rmtree(place / method.folder, ignore_errors=True)
                shutil.rmtree(self.out / "trainings" / method.folder, ignore_errors=True)
        elif self.records is not None:
            for method in methods:
                _copy(self.records / method.folder, place / method.folder)
        missing = self.may_train and bool(find_missing(methods, place))
        if missing:
            try:
                self._train(methods, place, progress)
            except DataError:
                return find_record(one.name)
        evidence = one.table.make_evidence(one.name, read_records(place), self.profile)
        if evidence is None:
            return None if missing else find_record(one.name)
        kind = RUN_NOW if missing else STORED
        return replace(evidence, origin={**evidence.origin, "kind": kind})

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
    """Records that the target has already stay as they are."""
    for file in source.glob("*.json"):
        if not (target / file.name).exists():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / file.name)
