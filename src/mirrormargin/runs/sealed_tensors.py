r"""Tensors in safetensors files that say whether they were changed since. No pickle.

The file's metadata are texts. Two of them are checksums, one over the tensors (names, types, shapes
and bytes) and one over the other texts:

    checksum-of-tensors = blake2b(for each name: "<name> <type> <shape>\n" and its bytes)
    checksum-of-texts   = blake2b(JSON of the other texts)

One changed bit is an error and no other model.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrormargin.errors import MirrorMarginError, RunError

# The command line reads runs without torch.
if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_tensors", "has_tensor_seal", "open_tensors", "seal_tensors"]

TENSORS_SUM, TEXTS_SUM = "checksum-of-tensors", "checksum-of-texts"


def seal_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The file's contents, with checksums in its metadata; equal contents are equal files.

    Args:
        tensors: Contiguous, on the CPU, of which no two share memory.
        metadata: Texts by name.
    """
    from safetensors.torch import save

    sums = {TENSORS_SUM: _sum_tensors(tensors), TEXTS_SUM: _sum_texts(metadata)}
    contents = save(dict(tensors), {**metadata, **sums})
    # safetensors writes its metadata in any order.
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + contents[end:]


def has_tensor_seal(metadata: Mapping[str, str]) -> bool:
    """Whether a file has one: those of other tools have none."""
    return bool(metadata.keys() & {TENSORS_SUM, TEXTS_SUM})


def check_tensors(
    path: str | Path, tensors: Mapping[str, Tensor] | None, metadata: Mapping[str, str]
) -> None:
    """Compare the checksums; without tensors, that of the texts alone. Raises a ValueError."""
    if not has_tensor_seal(metadata):
        warnings.warn(
            f"{path} has no checksum, as files of earlier versions: damage would go unnoticed;"
            " write it again, and it gets one",
            stacklevel=4,
        )
        return
    texts = {key: value for key, value in metadata.items() if key not in (TENSORS_SUM, TEXTS_SUM)}
    if metadata.get(TEXTS_SUM) != _sum_texts(texts):
        raise ValueError("its document is not what was written")
    if tensors is not None and metadata.get(TENSORS_SUM) != _sum_tensors(tensors):
        raise ValueError("its tensors are not what was written")


@contextmanager
def open_tensors(
    path: str | Path, remedy: str, *, error: type[MirrorMarginError] = RunError
) -> Iterator[Any]:
    """The open file, as safetensors has it; whatever goes wrong in the block is one error of ours.

    Args:
        path: Of the file.
        remedy: What to do about a damaged one, for the message.
        error: Class of the error.

    Raises:
        RunError: (or the class given) If the file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except MirrorMarginError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: {problem}; {remedy}") from problem


def _sum_tensors(tensors: Mapping[str, Tensor]) -> str:
    import torch

    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # numpy() knows no bfloat16: the bytes, whatever the type.
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sum_texts(texts: Mapping[str, str]) -> str:
    text = json.dumps(dict(texts), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
