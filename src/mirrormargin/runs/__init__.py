"""What is kept? Runs as folders of plain files, written whole or not at all."""

from mirrormargin.runs.arrays import check_unpacked, read_arrays
from mirrormargin.runs.documents import (
    CHECKSUM,
    check_document,
    check_seal,
    parse_json,
    read_json,
    read_limited,
    seal,
)
from mirrormargin.runs.files import check_writable, write_atomically
from mirrormargin.runs.folder import RUN_FILE, is_arrays_name, read_run, remove_run, write_run
from mirrormargin.runs.locks import hold_folder, hold_lock
from mirrormargin.runs.sealed_tensors import (
    check_tensors,
    has_tensor_seal,
    open_tensors,
    seal_tensors,
)

__all__ = [
    "CHECKSUM",
    "RUN_FILE",
    "check_document",
    "check_seal",
    "check_tensors",
    "check_unpacked",
    "check_writable",
    "has_tensor_seal",
    "hold_folder",
    "hold_lock",
    "is_arrays_name",
    "open_tensors",
    "parse_json",
    "read_arrays",
    "read_json",
    "read_limited",
    "read_run",
    "remove_run",
    "seal",
    "seal_tensors",
    "write_atomically",
    "write_run",
]
