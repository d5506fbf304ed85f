"""What is kept? Runs as folders of plain files, written whole or not at all."""

from mirrormargin.runs.files import check_writable, hold_lock, write_atomically
from mirrormargin.runs.folder import RUN_FILE, read_run, write_run

__all__ = ["RUN_FILE", "check_writable", "hold_lock", "read_run", "write_atomically", "write_run"]
