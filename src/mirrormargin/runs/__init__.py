"""What is kept: runs as folders of plain files."""

from mirrormargin.runs.files import write_atomically
from mirrormargin.runs.folder import read_run, write_run

__all__ = ["read_run", "write_atomically", "write_run"]
