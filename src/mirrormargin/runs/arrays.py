r"""Arrays from .npz files that anybody may have written.

An .npz file is a zip archive of .npy files. NumPy trusts what their headers say: a few kilobytes
can claim terabytes, and a few megabytes unpack to gigabytes. Here every size is compared before
memory is taken for it,

    bytes of the array = product of its shape * bytes of an entry = what the archive says
    bytes of all arrays <= max(256 MiB, 100 * bytes of the file),

and whatever is not as it should be is one error of ours.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from mirrormargin.errors import MirrorMarginError, RunError

__all__ = ["FREE_BYTES", "MOST_RATIO", "check_unpacked", "pack_arrays", "read_arrays"]

FREE_BYTES = 1 << 28  # what any file may unpack to, however small it is
MOST_RATIO = 100  # beyond that, how many times its own size
MOST_MEMBERS = 10_000
MOST_HEADER = 10_000  # bytes of the text that says what an array is, as NumPy has it
KINDS = "biufcSUV"  # numbers, texts and raw bytes; never Python objects


def check_unpacked(
    path: object, unpacked: int, packed: int, *, error: type[MirrorMarginError] = RunError
) -> None:
    """Refuse a compressed file that takes up far more memory than its size lets one expect.

    Args:
        path: For the message.
        unpacked: Bytes after unpacking, or those so far.
        packed: Bytes of the file.
        error: Class of the error.
    """
    most = max(FREE_BYTES, MOST_RATIO * packed)
    if unpacked > most:
        raise error(
            f"{path} has {packed:,} bytes and unpacks to more than {most:,}: that much from so"
            " little is no honest file; if it is yours, store it without compression"
        )


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """An .npz file that :func:`read_arrays` accepts: compressed, unless that makes it too small."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    unpacked = sum(array.nbytes for array in arrays.values())
    if 2 * unpacked > max(FREE_BYTES, MOST_RATIO * buffer.tell()):
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def read_arrays(
    path: str | Path,
    contents: bytes | None = None,
    *,
    error: type[MirrorMarginError] = RunError,
) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file by name.

    Args:
        path: The file.
        contents: Its bytes, if they have been read already.
        error: Class of the error.

    Raises:
        FileNotFoundError: If there is no file.
        RunError: (or the class given) If it cannot be read, is no .npz file, is damaged, or holds
            more than :func:`check_unpacked` allows or other things than numbers and texts.
    """
    try:
        with open(path, "rb") if contents is None else io.BytesIO(contents) as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            with zipfile.ZipFile(file) as archive:
                members = _list_members(path, archive, size, error)
                return {name: _read_member(archive, one) for name, one in members.items()}
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror or problem}") from problem
    except MirrorMarginError:
        raise
    # Garbled headers make zipfile, zlib and NumPy's parser raise whatever they stumble over.
    except Exception as problem:
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise error(f"{path} is damaged: it cannot be read as an .npz file: {reason}") from problem


def _list_members(
    path: str | Path, archive: zipfile.ZipFile, size: int, error: type[MirrorMarginError]
) -> dict[str, zipfile.ZipInfo]:
    """The entries of an archive by the names of their arrays, once all of them can be read."""
    entries = archive.infolist()
    if len(entries) > MOST_MEMBERS:
        raise ValueError(f"it holds {len(entries):,} entries, more than {MOST_MEMBERS:,}")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if entry.flag_bits & 0x1:
            raise ValueError(f"{name!r} in it is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name!r} in it is compressed by a method that NumPy does not use")
        if name == entry.filename:
            raise ValueError(f"{name!r} in it is no .npy file")
        if name in members:
            raise ValueError(f"it holds {name!r} twice")
        members[name] = entry
    check_unpacked(path, sum(entry.file_size for entry in entries), size, error=error)
    return members


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    name = entry.filename.removesuffix(".npy")
    with archive.open(entry) as file:
        shape, is_fortran, dtype = _read_header(file)
        if dtype.kind not in KINDS or dtype.hasobject:
            raise ValueError(f"{name!r} in it holds Python objects, which are never read")
        count, rest = math.prod(shape), entry.file_size - file.tell()
        if count * dtype.itemsize != rest:
            raise ValueError(
                f"{name!r} in it has {rest:,} bytes, but is said to be of shape {shape} and type"
                f" {dtype}"
            )
        # The archive says how much to read, and its checksum is compared at the end.
        contents = bytearray(rest)
        if cast(Any, file).readinto(contents) != rest or file.read(1):
            raise ValueError(f"{name!r} in it has another length than the archive says")
    array = np.frombuffer(contents, dtype, count) if count else np.empty(0, dtype)
    return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it is of version {version} of the format")
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read(file, max_header_size=MOST_HEADER)
    if any(length < 0 for length in shape):
        raise ValueError(f"it has the shape {shape}")
    return shape, is_fortran, dtype
