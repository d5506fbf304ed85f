r"""Deltas as adapters of Hugging Face's peft, and back: its SHiRA adapters are sparse deltas too.

For each linear layer W of m rows and n columns such an adapter has

    shira_weight     float32 (N,)       values
    shira_indices    int32   (2, N)     the row and the column of each,     N = r (m + n),

with one r for all layers. Layers with fewer differences are filled up with zeros; each number takes
12 bytes. A head that is stored whole becomes one of peft's ``modules_to_save``. Nothing here
imports peft: the tests load what is written with it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mirrormargin.arguments import check_kind, check_path, show
from mirrormargin.deltas import SparseDelta
from mirrormargin.deltas.changes import check_shapes
from mirrormargin.deltas.space import Space, digest_base
from mirrormargin.deltas.tensors import find_slots, find_tied, read_tensors, unwrap
from mirrormargin.deltas.values import check_type, encode_values
from mirrormargin.errors import DeltaError
from mirrormargin.runs import open_tensors, read_json, write_atomically

__all__ = ["from_shira", "to_shira"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
ADVICE = "extract it with whole= for the head and a delta of linear layers alone"


def to_shira(
    delta: SparseDelta,
    folder: str | os.PathLike[str],
    base: nn.Module,
    *,
    base_name: str = "",
) -> int:
    """Write a delta as an adapter that ``peft.PeftModel.from_pretrained(base, folder)`` loads.

    Args:
        delta: Of linear layers, and of heads that are stored whole.
        folder: Where; made if it does not exist.
        base: The model that the delta belongs to, which says which layers are linear.
        base_name: What the adapter calls its base, such as the name of a model on the Hub.

    Returns:
        How many numbers each layer has for each of its rows and columns, peft's ``r``.

    Raises:
        DeltaError: If SHiRA cannot hold the delta; the message says what to change.
        RunError: If the folder cannot be written.
    """
    check_kind("delta", delta, SparseDelta, error=DeltaError)
    check_kind("base", base, nn.Module, error=DeltaError)
    place = Path(check_path("folder", folder, error=DeltaError))
    if not isinstance(base_name, str):
        raise DeltaError(f"base_name is {show(base_name)}: give a text")
    check_shapes(read_tensors("base", base), delta.contents)
    layers = _collect_layers(delta, unwrap(base))
    heads = _collect_heads(delta, unwrap(base))
    if not layers:
        raise DeltaError(f"the delta has no difference in a linear layer: {ADVICE}")
    r = max(-(-len(places) // sum(shape)) for shape, places, _ in layers.values())
    tensors = {PREFIX + name: one.contiguous() for name, one in delta.whole.items()}
    for name, (shape, places, values) in layers.items():
        tensors |= _fill(name, shape, places, values, r)
    config = {
        "peft_type": "SHIRA",
        "base_model_name_or_path": base_name,
        "inference_mode": True,
        "mask_type": "random",
        "modules_to_save": heads or None,
        "r": r,
        # A pattern, for a list would also match the ends of other names.
        "target_modules": "|".join(re.escape(name) for name in sorted(layers)),
        "task_type": None,
    }
    _write(place, tensors, config)
    return r


def from_shira(
    folder: str | os.PathLike[str],
    base: nn.Module | Mapping[str, Tensor] | str | os.PathLike[str],
    *,
    values: torch.dtype = torch.float32,
) -> SparseDelta:
    """Read a SHiRA adapter that peft or :func:`to_shira` wrote, which may come from anyone.

    Args:
        folder: With ``adapter_config.json`` and ``adapter_model.safetensors``.
        base: What the adapter belongs to: a model, its state dict or the path of a safetensors
            file.
        values: The type in which differences are stored.

    Raises:
        DeltaError: If the folder holds no such adapter, a damaged one, or that of another model.
    """
    place = Path(check_path("folder", folder, error=DeltaError))
    check_type("values", values)
    old = read_tensors("base", base)
    tied = find_tied(old, ())
    try:
        config = read_json(place / CONFIG, error=DeltaError)
    except FileNotFoundError:
        raise DeltaError(f"{place} holds no adapter: there is no {CONFIG} in it") from None
    if config.get("peft_type") != "SHIRA":
        raise DeltaError(
            f"{place} holds an adapter of type {show(config.get('peft_type'))}: only SHIRA is a"
            " sparse delta; merge another one into its base, and extract the difference"
        )
    with open_tensors(place / WEIGHTS, "restore a copy of the adapter", error=DeltaError) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        layers, whole = _split(tensors, old, tied)
        ranked = {
            name: one
            for name, one in sorted(old.items())
            if one.is_floating_point() and name not in tied and name not in whole
        }
        shapes = {name: tuple(one.shape) for name, one in ranked.items()}
        known = {name: one for name, one in tied.items() if one in shapes}
        space = Space(shapes, digest_base(ranked), known)
        positions, numbers = _place(layers, space)
    codes, scale = encode_values(numbers, values)
    return SparseDelta(space, positions, codes, scale, whole)


def _collect_layers(delta: SparseDelta, base: nn.Module) -> dict[str, tuple[Any, Any, Tensor]]:
    """Of each linear layer with differences: shape, flat indices and values."""
    modules = {slot: module for slot, (module, _) in find_slots(base).items()}
    aliases: dict[str, list[str]] = {}
    for alias, name in delta.space.tied.items():
        aliases.setdefault(name, []).append(alias)
    layers, values = {}, delta.values
    for name, part, places in delta.space.split(delta.positions):
        layer, _, last = name.rpartition(".")
        if last != "weight" or not isinstance(modules[name], nn.Linear) or not layer:
            what = f"a {type(modules[name]).__name__}'s {last}"
            raise DeltaError(
                f"{name} is {what}, and SHiRA changes weights of linear layers alone: {ADVICE}"
            )
        if name in aliases:
            raise DeltaError(
                f"{name} shares its memory with {aliases[name][0]}, which SHiRA would not change:"
                f" {ADVICE}"
            )
        shape = delta.space.shapes[name]
        most = shape[0] * shape[1] // sum(shape) * sum(shape)
        if len(places) > most:
            raise DeltaError(
                f"{name} has {len(places):,} differences, and SHiRA holds at most {most:,} of it:"
                " keep fewer"
            )
        layers[layer] = shape, places, values[part]
    return layers


def _collect_heads(delta: SparseDelta, base: nn.Module) -> list[str]:
    """The modules whose tensors are stored whole, all of them."""
    slots, heads = find_slots(base), sorted({name.rpartition(".")[0] for name in delta.whole})
    modules = [name for name, _ in base.named_modules()]
    for head in heads:
        rest = [
            name
            for name in slots
            if name.startswith(f"{head}." if head else "") and name not in delta.whole
        ]
        if rest or not head:
            raise DeltaError(
                f"{min(delta.whole)} is stored whole and {rest[0] if rest else 'it'} is not a part"
                " of a whole module: peft keeps modules, so extract the delta with all of a head,"
                ' such as whole=["classifier.*"]'
            )
        other = [name for name in modules if name.endswith(head) and name != head]
        if other:
            raise DeltaError(f"peft would take {other[0]} for the head {head}: rename one of them")
    return heads


def _fill(name: str, shape: Any, places: Any, values: Tensor, r: int) -> dict[str, Tensor]:
    """The two tensors of a layer, with zeros at the first free places."""
    num_free = r * sum(shape) - len(places)
    if r * sum(shape) > shape[0] * shape[1]:
        raise DeltaError(
            f"{name} of shape {shape} is too small for r = {r}, which another layer needs: keep"
            ' fewer differences, or as many of each layer with scope="tensor"'
        )
    is_free = np.ones(shape[0] * shape[1], bool)
    is_free[places] = False
    every = np.concatenate([places, np.flatnonzero(is_free)[:num_free]])
    order = np.argsort(every)
    rows, columns = np.divmod(every[order], shape[1])
    filled = torch.cat([values, torch.zeros(num_free)])[torch.from_numpy(order)]
    indices = torch.from_numpy(np.stack([rows, columns]).astype(np.int32))
    start = f"{PREFIX}{name}.shira_"
    return {f"{start}weight": filled, f"{start}indices": indices}


def _write(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    from safetensors.torch import save

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltaError(f"{folder} cannot be made: {error.strerror}") from error
    contents = save(tensors, {"format": "pt"})
    text = json.dumps(config, indent=2).encode() + b"\n"
    write_atomically(folder / WEIGHTS, lambda file: file.write(contents))
    write_atomically(folder / CONFIG, lambda file: file.write(text))


def _split(
    tensors: dict[str, Tensor], old: Mapping[str, Tensor], tied: Mapping[str, str]
) -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, Tensor]]:
    """Values and indices of each layer, and the tensors that are whole; a ValueError otherwise."""
    layers, whole = {}, {}
    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        layer, _, part = name.rpartition(".")
        if part == "shira_weight":
            weight = tied.get(f"{layer}.weight", f"{layer}.weight")
            layers[weight] = tensor, tensors[f"{key.removesuffix('weight')}indices"]
        elif part != "shira_indices":
            name = tied.get(name, name)
            whole[name] = tensor
        if part not in ("shira_weight", "shira_indices") and name not in old:
            raise ValueError(f"it has {name[:60]!r}, which the base lacks")
    return layers, whole


def _place(
    layers: Mapping[str, tuple[Tensor, Tensor]], space: Space
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Tensor]:
    """Positions, increasing, and values; a ValueError if they are not those of the base."""
    positions, numbers = [np.empty(0, np.int64)], [torch.empty(0)]
    offsets = dict(zip(space.shapes, space.offsets.tolist(), strict=False))
    for name, (values, indices) in layers.items():
        shape = space.shapes.get(name)
        if shape is None or len(shape) != 2:
            raise ValueError(f"it changes {name[:60]!r}, which is no matrix of the base")
        if values.ndim != 1 or tuple(indices.shape) != (2, len(values)):
            raise ValueError(f"values and indices of {name[:60]!r} do not fit together")
        rows, columns = indices.to(torch.int64).numpy()
        inside = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
        if not inside.all() or not values.isfinite().all():
            raise ValueError(f"indices of {name[:60]!r} are beyond {shape}, or values not finite")
        positions.append(rows * shape[1] + columns + offsets[name])
        numbers.append(values.float())
    every, values = np.concatenate(positions), torch.cat(numbers)
    if len(np.unique(every)) != len(every):
        raise ValueError("it changes an entry twice")
    kept = np.flatnonzero(values.numpy() != 0)
    kept = kept[np.argsort(every[kept])]
    return every[kept], values[torch.from_numpy(kept)]
