"""What is kept: runs as folders of plain files."""

from mirrormargin.runs.documents import check_seal, read_json, seal
from mirrormargin.runs.files import check_writable, hold_lock, write_atomically
from mirrormargin.runs.folder import read_run, write_run

__all__ = [
    "check_seal",
    "check_writable",
    "hold_lock",
    "read_json",
    "read_run",
    "seal",
    "write_atomically",
    "write_run",
]
