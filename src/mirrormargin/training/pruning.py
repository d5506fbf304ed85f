"""One-shot magnitude pruning: the smallest entries become zero, and files that profit from it.

A share s of N entries leaves exactly round(s N) zeros: entries that are zero already come first,
then the smallest magnitudes, equal ones in the order of the model. Nothing is trained afterwards.

Files are safetensors. ``"safetensors"`` holds each tensor as it is. ``"sparse"`` holds each matrix
that gets smaller by it in three parts (compressed sparse rows):

    <name>:values     the nonzero entries, row by row
    <name>:columns    the column of each, in the smallest unsigned type that fits
    <name>:rows       row i has the entries rows[i] to rows[i + 1] of the two others

and, in its metadata, ``format`` = "mirrormargin-sparse" and ``shapes`` = JSON of name -> shape.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirrormargin.errors import ModelError, TrainingError
from mirrormargin.runs import write_atomically
from mirrormargin.training.sparsity import select_matrices

__all__ = [
    "FileSizes",
    "find_needed",
    "load_pruned",
    "measure_file_sizes",
    "prune",
    "pruning_curve",
    "save_pruned",
    "to_torch_sparse",
]

RANKINGS = ("global", "matrix")
SPARSE = "mirrormargin-sparse"
PARTS = ("values", "columns", "rows")
DESCRIPTION = (
    "Matrices in compressed sparse rows: <name>:values are the nonzero entries, row by row, "
    "<name>:columns their columns, and row i has the entries <name>:rows[i] to <name>:rows[i + 1]. "
    "shapes gives the shape of each."
)


class FileSizes(NamedTuple):
    """What a model takes on disk, in bytes, whole files."""

    dense: int
    sparse: int


@torch.no_grad()
def prune(
    model: nn.Module | Mapping[str, Tensor],
    share: float,
    matrices: str = "blocks",
    ranking: str = "global",
) -> int:
    """Set the smallest entries to zero, in place.

    Args:
        model: A model, or its state dict. Its other parameters stay as they are.
        share: Of the chosen entries that are zero afterwards, 0 to 1. Where more are zero already,
            nothing changes.
        matrices: Which entries are chosen, as in :func:`select_matrices`.
        ranking: ``"global"`` compares all chosen entries, so that some matrices lose more than
            others; ``"matrix"`` prunes the same share of each.

    Returns:
        How many of the chosen entries are zero now.

    Raises:
        TrainingError: If an option makes no sense, nothing is chosen, or an entry is nan.

    Example:
        >>> model = nn.Linear(4, 1, bias=False)
        >>> model.weight.data = torch.tensor([[0.3, -0.1, 0.0, -0.2]])
        >>> prune(model, 0.5, "weight"), model.weight.tolist()[0][1:3]
        (2, [0.0, 0.0])
    """
    _check_share(share)
    _check_ranking(ranking)
    chosen = select_matrices(model, matrices)
    for name, weight in chosen.items():
        if bool(weight.isnan().any()):
            raise TrainingError(f"{name} holds nan: it has no smallest entries; nothing is pruned")
    groups = [list(chosen.values())] if ranking == "global" else [[w] for w in chosen.values()]
    for group in groups:
        masks = _find_smallest(group, share)
        for weight, mask in zip(group, masks, strict=True):
            weight.masked_fill_(mask.to(weight.device), 0)
    return sum(int((weight == 0).sum()) for weight in chosen.values())


def pruning_curve(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    shares: Sequence[float],
    matrices: str = "blocks",
    ranking: str = "global",
) -> list[float]:
    """What a model can still do when a share of its weights is gone, for each share.

    Args:
        model: Has its weights back afterwards, bit for bit, also if ``evaluate`` raises.
        evaluate: From the pruned model to its accuracy, or any other number.
        shares: In any order; each prunes the model as it was given.
        matrices: As in :func:`prune`.
        ranking: As in :func:`prune`.

    Returns:
        One number for each share.

    Raises:
        TrainingError: As :func:`prune`, before anything is evaluated.
    """
    for share in shares:
        _check_share(share)
    chosen = select_matrices(model, matrices)
    originals = {name: weight.detach().clone() for name, weight in chosen.items()}
    numbers = []
    try:
        for share in shares:
            prune(model, share, matrices, ranking)
            numbers.append(float(evaluate(model)))
            _restore(chosen, originals)
    finally:
        _restore(chosen, originals)
    return numbers


def find_needed(shares: Sequence[float], accuracies: Sequence[float], unpruned: float) -> float:
    """The share of weights that must be left for an accuracy within a point of the unpruned one.

    That is the least r such that this holds for all shares left from r to 1, interpolated linearly
    in log r between the shares that were measured; the least of those if it holds for all.

    Args:
        shares: Removed, rising.
        accuracies: In %, with each of them removed.
        unpruned: In %, with nothing removed.

    Example:
        >>> round(find_needed([0.9, 0.99], [85.0, 83.0], 85.0), 4)
        0.0316
    """
    left, before = 1.0, float(unpruned)
    for share, accuracy in zip(shares, accuracies, strict=True):
        if accuracy < unpruned - 1:
            part = (before - (unpruned - 1)) / (before - accuracy)
            return math.exp((1 - part) * math.log(left) + part * math.log(1 - share))
        left, before = 1 - share, accuracy
    return float(left)


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
    _check_share(min_zeros, "min_zeros")
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


def _check_share(share: float, name: str = "share") -> None:
    if not (math.isfinite(share) and 0 <= share <= 1):
        raise TrainingError(f"{name} must be a number from 0 to 1, got {share!r}")


def _check_ranking(ranking: str) -> None:
    if ranking not in RANKINGS:
        allowed = " or ".join(repr(choice) for choice in RANKINGS)
        raise TrainingError(f"ranking must be {allowed}, got {ranking!r}")


def _find_smallest(weights: list[Tensor], share: float) -> list[Tensor]:
    """For each weight a mask; together they hold exactly round(share N) entries."""
    wide = torch.float64 if any(w.dtype is torch.float64 for w in weights) else torch.float32
    magnitude = torch.cat([weight.flatten().to("cpu", wide).abs() for weight in weights])
    count = round(share * magnitude.numel())
    if count == 0:
        mask = torch.zeros(magnitude.shape, dtype=torch.bool)
    else:
        last = magnitude.kthvalue(count).values
        mask = magnitude < last
        ties = (magnitude == last).nonzero().flatten()
        mask[ties[: count - int(mask.sum())]] = True
    sizes = [weight.numel() for weight in weights]
    return [
        part.view(weight.shape) for part, weight in zip(mask.split(sizes), weights, strict=True)
    ]


@torch.no_grad()
def _restore(weights: Mapping[str, Tensor], originals: Mapping[str, Tensor]) -> None:
    for name, weight in weights.items():
        weight.copy_(originals[name])


def _serialize(state: Mapping[str, Tensor], format: str) -> bytes:
    from safetensors.torch import save

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
        return save(dense, {"format": "pt"})
    if format != "sparse":
        raise TrainingError(f"format must be 'safetensors' or 'sparse', got {format!r}")
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
    return save(
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
