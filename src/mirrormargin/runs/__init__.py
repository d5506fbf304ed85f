"""What is kept? Runs as folders of plain files, written whole or not at all."""

from mirrormargin.runs.arrays import check_unpacked, read_arrays
from mirrormargin.runs.documents import (
    check_document,
    check_seal,
    parse_json,
    read_json,
    read_limited,
    seal,
)
from mirrormargin.runs.files import check_writable, hold_lock, write_atomically
from mirrormargin.runs.folder import RUN_FILE, read_run, write_run

__all__ = [
    "RUN_FILE",
    "check_document",
    "check_seal",
    "check_unpacked",
    "check_writable",
    "hold_lock",
    "parse_json",
    "read_arrays",
    "read_json",
    "read_limited",
    "read_run",
    "seal",
    "write_atomically",
    "write_run",
]
