r"""Tensors on disk: weights and checkpoints as safetensors files, dense or sparse. No pickle.

:func:`write_tensors` keeps a JSON document beside the tensors, in the file's metadata. Every file
that is written here carries a checksum over its tensors (names, types, shapes, bytes) and its
document, which is compared on reading: one changed bit is an error and no other model.

:func:`save_pruned` writes the weights of a pruned model, in one of two formats. ``"safetensors"``
holds each tensor as it is. ``"sparse"`` holds each matrix that gets smaller by it in three parts
(compressed sparse rows):

    <name>:values     the nonzero entries, row by row
    <name>:columns    the column of each, in the smallest unsigned type that fits
    <name>:rows       row i has the entries rows[i] to rows[i + 1] of the two others

and, in its metadata, ``format`` = "mirrormargin-sparse" and ``shapes`` = JSON of name -> shape.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mirrormargin.arguments import check_choice, check_number
from mirrormargin.errors import ModelError, TrainingError
from mirrormargin.runs import (
    check_tensors,
    has_tensor_seal,
    open_tensors,
    seal_tensors,
    write_atomically,
)

__all__ = [
    "FileSizes",
    "load_pruned",
    "measure_file_sizes",
    "read_document",
    "read_parts",
    "read_tensors",
    "save_pruned",
    "to_torch_sparse",
    "write_parts",
    "write_tensors",
]

FORMATS = ("safetensors", "sparse")
SPARSE = "mirrormargin-sparse"
PARTS = ("values", "columns", "rows")
REMEDY = "restore a copy, or remove it and train again"
DESCRIPTION = (
    "Matrices in compressed sparse rows: <name>:values are the nonzero entries, row by row, "
    "<name>:columns their columns, and row i has the entries <name>:rows[i] to <name>:rows[i + 1]. "
    "shapes gives the shape of each."
)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], document: Any) -> None:
    """Write tensors and a JSON document as one safetensors file, atomically."""
    contents = seal_tensors(
        {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()},
        {"document": json.dumps(document)},
    )
    write_atomically(path, lambda file: file.write(contents))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Inverse of :func:`write_tensors`.

    Raises:
        TrainingError: If the file is missing or damaged.
    """
    with open_tensors(path, REMEDY, error=TrainingError) as file:
        metadata = file.metadata()
        document = json.loads(metadata["document"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        check_tensors(path, tensors, metadata)
        return tensors, document


def write_parts(path: Path, parts: Mapping[str, Mapping[str, Tensor]], document: Any) -> None:
    """Write tensors by part and name as :func:`write_tensors` does."""
    tensors = {f"{part}/{k}": v for part, values in parts.items() for k, v in values.items()}
    write_tensors(path, tensors, document)


def read_parts(path: Path) -> tuple[dict[str, dict[str, Tensor]], Any]:
    """Inverse of :func:`write_parts`.

    Raises:
        TrainingError: If the file is missing or damaged.
    """
    tensors, document = read_tensors(path)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition("/")
        parts.setdefault(part, {})[key] = tensor
    return parts, document


def read_document(path: Path) -> Any:
    """The document alone, without reading the tensors.

    Raises:
        TrainingError: If the file is missing or damaged.
    """
    with open_tensors(path, REMEDY, error=TrainingError) as file:
        metadata = file.metadata()
        check_tensors(path, None, metadata)
        return json.loads(metadata["document"])


class FileSizes(NamedTuple):
    """What a model takes on disk, in bytes, whole files."""

    dense: int
    sparse: int


def save_pruned(
    model_state: Mapping[str, Tensor], path: str | Path, format: str = "safetensors"
) -> int:
    """Write a model's weights to one file, whole or not at all.

    Args:
        model_state: Name -> tensor, such as ``model.state_dict()``. Weights that share memory are
            written once each.
        path: Where; a file that is there is replaced.
        format: ``"safetensors"``, which other tools read, or ``"sparse"`` (see the module), which
            :func:`load_pruned` reads. Sparse files lose nothing but the sign of -0.

    Returns:
        The bytes of the file.

    Raises:
        TrainingError: If there is no such format.
        RunError: If the file cannot be written.
    """
    contents = _serialize(model_state, format)
    write_atomically(Path(path), lambda file: file.write(contents))
    return len(contents)


def measure_file_sizes(model_state: Mapping[str, Tensor]) -> FileSizes:
    """What :func:`save_pruned` would write, in bytes, in either format."""
    return FileSizes(
        *(len(_serialize(model_state, format)) for format in ("safetensors", "sparse"))
    )


def load_pruned(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file of either format, dense, ready for ``model.load_state_dict``.

    Raises:
        ModelError: If the file is absent, or not a whole file of these formats.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if has_tensor_seal(metadata):  # files of other tools have none
            check_tensors(path, tensors, metadata)
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}; write it again") from error
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{path} cannot be read as a safetensors file: {error}; give a file that save_pruned "
            "wrote, or any other safetensors file"
        ) from error
    if metadata.get("format") != SPARSE:
        return tensors
    try:
        for name, shape in json.loads(metadata["shapes"]).items():
            values, columns, rows = (tensors.pop(f"{name}:{part}") for part in PARTS)
            tensors[name] = _unpack(values, columns.to(torch.int64), rows.to(torch.int64), shape)
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ModelError(
            f"{path} is damaged, its matrices do not fit together: {error}; write it again"
        ) from error
    return tensors


def to_torch_sparse(model_state: Mapping[str, Tensor], min_zeros: float = 0.5) -> dict[str, Tensor]:
    """The state with its sparse matrices as ``torch.sparse_csr`` tensors, the rest as it is.

    Args:
        model_state: Name -> tensor.
        min_zeros: Matrices with at least this share of zeros are converted.

    Raises:
        TrainingError: If ``min_zeros`` is not a share.
    """
    check_number("min_zeros", min_zeros, least=0.0, most=1.0, error=TrainingError)
    converted = dict(model_state)
    for name, tensor in model_state.items():
        if not _is_matrix(tensor) or int((tensor == 0).sum()) < min_zeros * tensor.numel():
            continue
        values, columns, rows = _pack(tensor)
        # Both indices must have one type; 32 bits take half the memory.
        fits = max(len(values), *tensor.shape) <= torch.iinfo(torch.int32).max
        index = torch.int32 if fits else torch.int64
        with warnings.catch_warnings():  # torch says, once, that its sparse layouts may change
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            converted[name] = torch.sparse_csr_tensor(
                rows.to(index),
                columns.to(index),
                values,
                tuple(tensor.shape),
                check_invariants=True,
            )
    return converted


def _serialize(state: Mapping[str, Tensor], format: str) -> bytes:
    check_choice("format", format, FORMATS, error=TrainingError)
    for name, tensor in state.items():
        if tensor.layout is not torch.strided:
            raise TrainingError(
                f"{name} is a {tensor.layout} tensor: give it dense, the file is made sparse here"
            )
    # Copies, for tensors that share memory are refused.
    dense = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    if format == "safetensors":
        return seal_tensors(dense, {"format": "pt"})
    stored: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, tensor in dense.items():
        packed = _pack(tensor) if _is_matrix(tensor) else None
        if packed is None or sum(part.nbytes for part in packed) >= tensor.nbytes:
            stored[name] = tensor
            continue
        shapes[name] = list(tensor.shape)
        stored.update({f"{name}:{part}": t for part, t in zip(PARTS, packed, strict=True)})
    if len(stored) != len(dense) + 2 * len(shapes):
        raise TrainingError(
            "a tensor has the name of a part of another, such as <name>:values: rename it"
        )
    return seal_tensors(
        stored, {"format": SPARSE, "shapes": json.dumps(shapes), "description": DESCRIPTION}
    )


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.ndim == 2 and tensor.is_floating_point()


def _pack(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, columns and row pointers."""
    occupied = matrix.detach() != 0
    rows = torch.zeros(len(matrix) + 1, dtype=torch.int64, device=matrix.device)
    rows[1:] = occupied.sum(dim=1).cumsum(dim=0)
    columns = occupied.nonzero()[:, 1]
    values = matrix.detach()[occupied]
    return values, _shrink(columns, matrix.shape[1] - 1), _shrink(rows, len(values))


def _shrink(indices: Tensor, largest: int) -> Tensor:
    for dtype in (torch.uint8, torch.uint16, torch.uint32):
        if largest <= torch.iinfo(dtype).max:
            return indices.to(dtype)
    return indices


def _unpack(values: Tensor, columns: Tensor, rows: Tensor, shape: Sequence[int]) -> Tensor:
    """The matrix; a ValueError if its parts cannot be one."""
    height, width = shape
    lengths = rows.diff()
    if (
        len(rows) != height + 1
        or int(rows[0]) != 0
        or int(rows[-1]) != len(values)
        or len(columns) != len(values)
        or bool((lengths < 0).any())
        or bool((columns >= width).any())
    ):
        raise ValueError(f"rows or columns exceed the shape {height} x {width}")
    matrix = torch.zeros(height, width, dtype=values.dtype)
    matrix[torch.arange(height).repeat_interleave(lengths), columns] = values
    return matrix
