r"""A delta as one safetensors file, sealed like our other files of tensors.

    layout         uint8: JSON, compressed by zlib: names and shapes of the index space, sha256 of
                   the base, tied names, numbers of tensors without a value, number of values,
                   their scale, k, and the caller's info
    quotients      uint8 } the gaps between positions, counted without the entries of those
    remainders     uint8 } tensors, in Rice's code (:mod:`mirrormargin.deltas.rice`)
    values         float16, bfloat16 or float32: value = code * scale
    whole:<name>   each tensor that is stored whole, as it is

With metadata ``format`` = "mirrormargin-delta", ``version`` = "2" (1 had positions among all
tensors) and the checksums of :mod:`mirrormargin.runs.sealed_tensors`. n values among N entries take
n (log2(N/n) + 1.6) / 8 bytes for positions and 2n for values in float16: 34 kB for 10,000 of 10.6
million.

A file may be from anybody: every number is compared with what it must fit before memory is taken
for it.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormargin.deltas.rice import RiceCode, decode_positions, encode_positions
from mirrormargin.deltas.space import Space
from mirrormargin.deltas.values import TYPES
from mirrormargin.errors import DeltaError
from mirrormargin.runs import check_tensors, has_tensor_seal, open_tensors, parse_json, seal_tensors

__all__ = ["Contents", "pack_delta", "unpack_delta"]

FORMAT, VERSION = "mirrormargin-delta", "2"
READ = ("1", VERSION)
PARTS = ("layout", "quotients", "remainders", "values")
WHOLE = "whole:"
REMEDY = "restore a copy, or extract it again"
MOST_LAYOUT = 1 << 23  # bytes of JSON: the names of some 100,000 tensors
MOST_ENTRIES = 2**53  # of the index space
MOST_AXES = 64
MOST_VALUE = 2.0**128  # where float32 ends
SHA256 = re.compile(r"[0-9a-f]{64}")


class Contents(NamedTuple):
    """The fields of a :class:`~mirrormargin.SparseDelta`."""

    space: Space
    positions: NDArray[np.int64]
    codes: Tensor
    scale: float
    whole: Mapping[str, Tensor]
    info: Mapping[str, Any]


class Layout(msgspec.Struct, forbid_unknown_fields=True):
    """What the compressed JSON says."""

    tensors: dict[str, list[int]]
    base: list[str]
    tied: dict[str, str]
    count: int
    k: int
    scale: float
    info: dict[str, Any]
    unused: list[int] = []


def pack_delta(delta: Contents) -> bytes:
    """The file's contents."""
    unused, positions = delta.space.leave_out(delta.positions)
    code = encode_positions(positions)
    layout = {
        "tensors": {name: list(shape) for name, shape in delta.space.shapes.items()},
        "base": list(delta.space.digests),
        "tied": dict(delta.space.tied),
        "count": len(delta.positions),
        "k": code.k,
        "scale": delta.scale,
        "info": dict(delta.info),
        "unused": unused,
    }
    text = json.dumps(layout, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MOST_LAYOUT:
        raise DeltaError(
            f"names, shapes and info take {len(text):,} characters: a file holds {MOST_LAYOUT:,}"
        )
    packed = np.frombuffer(zlib.compress(text.encode(), 9), np.uint8).copy()
    tensors = {
        "layout": torch.from_numpy(packed),
        "quotients": torch.from_numpy(code.quotients),
        "remainders": torch.from_numpy(code.remainders),
        "values": delta.codes.contiguous(),
    }
    tensors |= {WHOLE + name: tensor.contiguous() for name, tensor in delta.whole.items()}
    return seal_tensors(tensors, {"format": FORMAT, "version": VERSION})


def unpack_delta(path: Path) -> Contents:
    """Inverse of :func:`pack_delta`, from a file.

    Raises:
        DeltaError: If the file is missing, damaged, or not one of a delta.
    """
    with open_tensors(path, REMEDY, error=DeltaError) as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise DeltaError(f"{path} holds no delta: give a file that SparseDelta.save wrote")
        if metadata.get("version") not in READ:
            raise DeltaError(
                f"{path} is a delta of version {metadata.get('version')!r}, and {', '.join(READ)}"
                " can be read: read it with the mirrormargin that wrote it"
            )
        if not has_tensor_seal(metadata):
            raise ValueError("it has no checksum")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        check_tensors(path, tensors, metadata)
        return _read(tensors)


def _read(tensors: dict[str, Tensor]) -> Contents:
    """The delta; a ValueError or KeyError if these cannot be one."""
    packed, quotients, remainders, codes = (tensors.pop(name) for name in PARTS)
    for part in (packed, quotients, remainders):
        if part.dtype != torch.uint8 or part.ndim != 1:
            raise ValueError("a part of it is no row of bytes")
    layout = _read_layout(packed.numpy().tobytes())
    space = _read_space(layout)
    if codes.dtype not in TYPES or tuple(codes.shape) != (layout.count,):
        raise ValueError(f"it has {layout.count:,} values, and a tensor {tuple(codes.shape)}")
    code = RiceCode(layout.k, quotients.numpy(), remainders.numpy())
    positions = decode_positions(code, layout.count, space.measure(layout.unused))
    positions = space.put_back(layout.unused, positions)
    most = float(codes.double().abs().max()) if len(codes) else 0.0
    if not (0 < layout.scale < math.inf and most * layout.scale <= MOST_VALUE):
        raise ValueError(f"its values, scaled by {layout.scale}, are not all finite")
    whole = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(WHOLE)
        if name == key or name in space.shapes:
            raise ValueError(f"it has a tensor {key[:60]!r}, which no delta has")
        whole[name] = tensor
    return Contents(space, positions, codes, layout.scale, whole, layout.info)


def _read_layout(packed: bytes) -> Layout:
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(packed, MOST_LAYOUT)
    except zlib.error as error:
        raise ValueError(f"its layout cannot be unpacked ({error})") from None
    if not reader.eof or reader.unused_data:
        raise ValueError(f"its layout does not end, or has more than {MOST_LAYOUT:,} bytes")
    try:
        return msgspec.convert(parse_json(text, finite=True), Layout)
    except msgspec.ValidationError as error:
        raise ValueError(f"its layout is not one: {error}") from None


def _read_space(layout: Layout) -> Space:
    shapes = {name: tuple(shape) for name, shape in layout.tensors.items()}
    total = 0
    for name, shape in shapes.items():
        if len(shape) > MOST_AXES or any(not 0 <= length <= MOST_ENTRIES for length in shape):
            raise ValueError(f"its tensor {name[:60]!r} has a shape that no tensor has")
        total += math.prod(shape)
    if total > MOST_ENTRIES:
        raise ValueError(f"its tensors have more than {MOST_ENTRIES:,} entries")
    if list(shapes) != sorted(shapes):
        raise ValueError("its tensors are not in the order of their names")
    if not layout.base or not all(SHA256.fullmatch(one) for one in layout.base):
        raise ValueError("its base has no sha256")
    if any(not 0 <= one < len(shapes) for one in layout.unused):
        raise ValueError("it leaves out a tensor that it does not have")
    if layout.count < 0:
        raise ValueError(f"it has {layout.count} values")
    if any(one not in shapes or name in shapes for name, one in layout.tied.items()):
        raise ValueError("a tied name is that of no other tensor")
    return Space(shapes, tuple(layout.base), layout.tied)
