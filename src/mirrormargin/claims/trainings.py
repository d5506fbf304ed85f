r"""Evidence from trainings on real data: their stored record, or trainings made now.

OUT/records/       records of trainings, those that were given and those made now
OUT/trainings/     checkpoints and weights of the latter
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mirrormargin.claims.authors_evidence import (
    STORIES_ON_MODELS,
    describe_models,
    make_authors_evidence,
)
from mirrormargin.claims.campaign.grid_search import Method, Run, describes
from mirrormargin.claims.campaign.records import (
    do_campaign,
    find_missing,
    read_record,
    read_records,
    write_record,
)
from mirrormargin.claims.evidence import RUN_NOW, STORED, Evidence, find_record, store_record
from mirrormargin.claims.registry import STORIES
from mirrormargin.claims.story import Story
from mirrormargin.errors import ClaimError, DataError, ModelError

__all__ = ["Trainings", "store_tables"]


@dataclass(frozen=True)
class Trainings:
    """Where the evidence of experiments on real data comes from.

    Attributes:
        out: The folder of the claims.
        profile: "quick" trains nothing, "full" what two cores can, "paper" the published sizes.
        records: Folder with records that need not be made; None if there is none.
        is_fresh: Whether to make them again nevertheless.
        may_train: Whether to train at all; if not, only records that exist are examined.
        published: Files of paper A's own models, for p = 1.1 and 2: the stories that can be told
            of them are.
    """

    out: Path
    profile: str
    records: Path | None = None
    is_fresh: bool = False
    may_train: bool = True
    published: tuple[Path, ...] = ()
    _described: list[list[list[dict[str, Any]]]] = field(default_factory=list)
    _cleared: set[str] = field(default_factory=set)

    def find_evidence(
        self, one: Story, progress: Callable[[int, int, str], object] | None = None
    ) -> Evidence | None:
        """The evidence of an experiment; None if there is none.

        If data or pretrained weights are not on this machine, the stored record is taken.
        """
        if self.published and one.name in STORIES_ON_MODELS:
            if not self._described:
                self._described.append(describe_models(self.published, progress=progress))
            return make_authors_evidence(one, self._described[0])
        if one.table is None or not one.table.list_methods(self.profile):
            return _find_stored(one)
        methods = one.table.list_methods(self.profile)
        folder = self.out / "records"
        for method in methods:
            self._prepare(method, folder)
        is_made = self.may_train and bool(find_missing(methods, folder))
        if is_made:
            try:
                self._train(methods, folder, progress)
            except (DataError, ModelError):
                return _find_stored(one)
        evidence = one.table.make_evidence(one.name, read_records(folder), self.profile)
        if evidence is None:
            return None if is_made else _find_stored(one)
        kind = RUN_NOW if is_made else STORED
        return replace(evidence, origin={**evidence.origin, "kind": kind})

    def without_training(self) -> Trainings:
        """The same, but nothing is trained."""
        return replace(self, is_fresh=False, may_train=False)

    def _prepare(self, method: Method, folder: Path) -> None:
        """Remove a method's records, once, or take those that were given."""
        if not self.is_fresh:
            if self.records is not None:
                _copy(method, self.records, folder)
        elif method.folder not in self._cleared:
            self._cleared.add(method.folder)
            for parent in (folder, self.out / "trainings"):
                shutil.rmtree(parent / method.folder, ignore_errors=True)

    def _train(
        self,
        methods: tuple[Method, ...],
        folder: Path,
        progress: Callable[[int, int, str], object] | None,
    ) -> None:
        def report(run: Run, step: int, num_steps: int, row: dict[str, Any]) -> None:
            if progress is not None:
                progress(step, num_steps, run.key)

        do_campaign(methods, folder, self.out / "trainings", on_step=report)


def _find_stored(one: Story) -> Evidence | None:
    """The stored record, unless it was made with other settings than the current ones."""
    record = find_record(one.name)
    if record is None or one.table is None:
        return record
    return record if record.settings.get("digest") == one.table.digest() else None


def _copy(method: Method, source: Path, target: Path) -> None:
    """Copy those of a method's records that fit its settings and say more than those in place."""
    given, there = (_read(folder / method.folder) for folder in (source, target))
    for setting in method.grid:
        for run in (method.make_trial(setting), *method.list_seeds(setting)):
            new, old = given.get(run.key), there.get(run.key)
            if new is None or not describes(new, run.config):
                continue
            if old is None or old["digest"] != new["digest"] or ("test" in new) > ("test" in old):
                write_record(target, new)


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    """Records by key; files that cannot be read are skipped."""
    found = {}
    for file in folder.glob("*.json"):
        with suppress(ClaimError):
            record = read_record(file)
            found[record["key"]] = record
    return found


def store_tables(records: Path, destination: Path) -> list[str]:
    """Store the evidence of every story whose records are there; returns their names."""
    found = read_records(records)
    destination.mkdir(parents=True, exist_ok=True)
    stored = []
    for name, story in STORIES.items():
        evidence = None if story.table is None else story.table.make_evidence(name, found)
        if evidence is not None:
            store_record(destination, evidence)
            stored.append(name)
    return stored
