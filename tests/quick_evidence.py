"""Evidence of the quick profile: run once for all test processes, then read.

It stands in the folder where ``mirrormargin reproduce --out FOLDER`` looks for it.

Half of the work of all stories is six trainings on digits. The tests have enough of one seed; the
slow test of the demo trains them all.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mirrormargin.claims.evidence import Evidence, read_evidence, write_evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.errors import RunError
from mirrormargin.runs import hold_folder

SHORTER: Mapping[str, dict[str, Any]] = {
    "digits": {"num_seeds": 1, "epochs": 40},
    "overhead": {"p": [1.1, 2.0], "num_rounds": 2},
}


@contextmanager
def shorten(shorter: Mapping[str, dict[str, Any]]) -> Iterator[None]:
    """For so long the quick profiles of these stories are shorter."""
    with pytest.MonkeyPatch.context() as patch:
        for name, settings in shorter.items():
            patch.setitem(STORIES[name].profiles, "quick", settings)
        yield


class QuickEvidence:
    """Calls with the name of a story give its evidence."""

    def __init__(self, folder: Path, shorter: Mapping[str, dict[str, Any]] = SHORTER) -> None:
        self.folder = folder
        self.shorter = shorter
        self._found: dict[str, Evidence] = {}

    def __call__(self, name: str) -> Evidence:
        if name not in self._found:
            with shorten(self.shorter):
                self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Evidence:
        story = STORIES[name]
        settings = story.choose_settings("quick", seed=0)
        folder = story.name_folder(self.folder, "quick", seed=0)
        with hold_folder(folder, wait=600):
            try:
                return read_evidence(folder)
            except RunError:
                assert story.run is not None
                parts = [story.run(settings, part) for part in story.split(settings)]
                write_evidence(folder, Evidence(name, settings, story.join(parts)))
                return read_evidence(folder)

    def run_all(self) -> Path:
        """The folder, with the evidence of every story that can be run."""
        for name, story in STORIES.items():
            if story.run is not None:
                self(name)
        return self.folder
