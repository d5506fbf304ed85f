"""What is kept: runs as folders of plain files."""

from mirrormargin.runs.files import check_writable, hold_lock, write_atomically
from mirrormargin.runs.folder import read_run, write_run

__all__ = ["check_writable", "hold_lock", "read_run", "write_atomically", "write_run"]
