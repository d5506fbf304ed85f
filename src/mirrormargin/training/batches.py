"""The order of the data, and what is done to a batch of images.

The order of an epoch follows from the seed and the epoch's number alone, so a training that goes
on finds its place without having drawn what came before.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

__all__ = ["augment_images", "order_epoch"]

SHIFT = 4  # pixels, as in paper A


def order_epoch(seed: int, epoch: int, size: int, batch_size: int) -> Tensor:
    """Indices (batches, batch_size) of one epoch; a last, smaller batch is left out."""
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    batch_size = min(batch_size, size)
    order = torch.randperm(size, generator=generator)
    return order[: size // batch_size * batch_size].view(-1, batch_size)


def augment_images(images: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels (zeros come in) and mirror half of them."""
    size, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (SHIFT,) * 4)
    top, left = torch.randint(0, 2 * SHIFT + 1, (2, size, 1), device=images.device)
    rows = top + torch.arange(height, device=images.device)
    columns = left + torch.arange(width, device=images.device)
    is_mirrored = torch.rand(size, 1, device=images.device) < 0.5
    columns = torch.where(is_mirrored, columns.flip(1), columns)
    index = torch.arange(size, device=images.device)
    # (size, height, width, channels) comes out of indexing around a slice.
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
