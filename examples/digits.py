"""Train a small transformer on scikit-learn's digits with mirror optimizers at several exponents.

    python examples/digits.py [--epochs 30] [--seed 0]

Each 8 x 8 image is a sequence of 16 patches of 2 x 2 pixels. The table shows the test accuracy
(one evaluation, after the last epoch) and how the weights of the attention layers are spread:
the share of entries below 1% of the largest of their matrix, and the accuracy left after the
smaller nine tenths of each of those matrices were set to zero.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import mirrormargin as mm

PATCH, WIDTH, NUM_TRAIN = 2, 32, 1300


class DigitTransformer(nn.Module):
    """Two encoder layers over patches, a learned position for each, mean pooling, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, WIDTH)
        self.position = nn.Parameter(0.5 * torch.randn(16, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = images.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).flatten(3).flatten(1, 2)
        return self.head(self.encoder(self.embed(patches) + self.position).mean(dim=1))


def load_split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [-1, 1] and labels: 1,300 to train on, 497 to test on, shuffled once."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32)[order] / 8 - 1
    labels = torch.tensor(digits.target)[order]
    return images[:NUM_TRAIN], labels[:NUM_TRAIN], images[NUM_TRAIN:], labels[NUM_TRAIN:]


def train(
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer], epochs: int, seed: int
) -> DigitTransformer:
    torch.manual_seed(seed)
    model = DigitTransformer()
    images, labels, _, _ = load_split()
    optimizer = make_optimizer(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    _, _, images, labels = load_split()
    return float((model.eval()(images).argmax(dim=1) == labels).float().mean())


def attention_matrices(model: nn.Module) -> list[Tensor]:
    return [w for name, w in model.named_parameters() if "self_attn" in name and w.ndim == 2]


@torch.no_grad()
def share_of_small_entries(model: nn.Module) -> float:
    small = [(w.abs() < 0.01 * w.abs().max()).float() for w in attention_matrices(model)]
    return float(torch.cat([x.flatten() for x in small]).mean())


@torch.no_grad()
def prune_attention(model: nn.Module, share: float) -> None:
    for w in attention_matrices(model):
        w[w.abs() < w.abs().flatten().quantile(share)] = 0


# Learning rates: by hand, from the training loss; steps three times longer diverge at p = 1.1.
CHOICES: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "MirrorDescent p=1.1": lambda m: mm.MirrorDescent(mm.mirror_groups(m), 0.02, momentum=0.9),
    "MirrorDescent p=2": lambda m: mm.MirrorDescent(m.parameters(), 0.1, 2.0, momentum=0.9),
    "MirrorDescent p=3": lambda m: mm.MirrorDescent(m.parameters(), 0.01, 3.0, momentum=0.9),
    "MirrorAdam p=1.1": lambda m: mm.MirrorAdam(mm.mirror_groups(m, p=1.1), 0.003),
    "MirrorAdam p=2": lambda m: mm.MirrorAdam(m.parameters(), 0.003, 2.0),
    "MirrorAdam p=3": lambda m: mm.MirrorAdam(m.parameters(), 0.001, 3.0),
    "torch AdamW": lambda m: torch.optim.AdamW(m.parameters(), 0.003, weight_decay=0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{'optimizer':20} {'test':>7} {'|w|<1%':>7} {'90% pruned':>11} {'seconds':>8}")
    for name, make_optimizer in CHOICES.items():
        start = time.perf_counter()
        model = train(make_optimizer, arguments.epochs, arguments.seed)
        seconds = time.perf_counter() - start
        test, small = accuracy(model), share_of_small_entries(model)
        prune_attention(model, 0.9)
        print(f"{name:20} {test:7.1%} {small:7.1%} {accuracy(model):11.1%} {seconds:8.1f}")


if __name__ == "__main__":
    main()
