"""Evidence of the quick profile: run once for all test processes, then read.

It stands in the folder where ``mirrormargin reproduce --out FOLDER`` looks for it.
"""

import fcntl
from pathlib import Path

from mirrormargin.claims.evidence import Evidence, read_evidence, write_evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.errors import RunError


class QuickEvidence:
    """Calls with the name of a story give its evidence."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: dict[Path, Evidence] = {}

    def __call__(self, name: str) -> Evidence:
        story = STORIES[name]
        settings = story.choose_settings("quick", seed=0)
        folder = story.name_folder(self.folder, "quick", seed=0)
        if folder not in self._found:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / ".lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    self._found[folder] = read_evidence(folder)
                except RunError:
                    parts = [story.run(settings, part) for part in story.split(settings)]
                    write_evidence(folder, Evidence(name, settings, story.join(parts)))
                    self._found[folder] = read_evidence(folder)
        return self._found[folder]

    def run_all(self) -> Path:
        """The folder, with the evidence of every story that can be run."""
        for name, story in STORIES.items():
            if story.run is not None:
                self(name)
        return self.folder
