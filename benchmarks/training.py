"""How fast does a transformer train with mirror optimizers, next to AdamW? Interleaved, ratios.

Each round makes one whole step (forward, backward, optimizer) with every optimizer, in an order
that changes from round to round, each on its own copy of the model. Printed is the throughput over
that of torch's fused AdamW: the median over rounds of the ratio within a round, with the 95%
interval of that median (order statistics).

    python benchmarks/training.py [--configs imdb/small imdb/paper-3] [--rounds 60] [--quick]
                                  [--only 'MirrorAdam p=2']

``imdb/paper-3`` takes batches of 10 instead of 100: the optimizer's share of a step is then larger,
and the comparison harder.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from scipy.stats import binom

from mirrormargin.models import TextTransformer
from mirrormargin.training.building import build_optimizer
from mirrormargin.training.config import OptimizerConfig, TextModel
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.evaluation import compute_loss

OPTIMIZERS = {
    "AdamW": OptimizerConfig("AdamW", 1e-6),
    "MirrorAdam p=1.1": OptimizerConfig("MirrorAdam", 1e-6, p=1.1),
    "MirrorAdam p=2": OptimizerConfig("MirrorAdam", 1e-6, p=2.0),
    "MirrorAdam p=3": OptimizerConfig("MirrorAdam", 1e-6, p=3.0),
    "MirrorDescent p=1.1": OptimizerConfig("MirrorDescent", 1e-9, p=1.1),
    "MirrorDescent p=2": OptimizerConfig("MirrorDescent", 1e-9, p=2.0),
    "MirrorDescent p=3": OptimizerConfig("MirrorDescent", 1e-9, p=3.0),
}
BATCH = {"imdb/paper-3": 10}


def build_step(name: str, optimizer: OptimizerConfig) -> Callable[[], None]:
    """One training step of a configuration, on random tokens."""
    config = find_configuration(name)
    assert isinstance(config.model, TextModel)
    torch.manual_seed(0)
    length, vocab_size = config.data.length or 512, config.data.vocab_size or 30_522
    model = TextTransformer(vocab_size, length=length, **vars(replace(config.model)))
    batch = BATCH.get(name, config.batch_size)
    ids = torch.randint(4, vocab_size, (batch, length), dtype=torch.int32)
    labels = torch.randint(0, 2, (batch,))
    steps = build_optimizer(optimizer, model)

    def step() -> None:
        steps.zero_grad()
        compute_loss(model(ids), labels, config.reduction).backward()
        steps.step()

    return step


def find_interval(ratios: list[float]) -> tuple[float, float]:
    """Of the median, 95%, from order statistics: no assumption about the distribution."""
    ordered, n = sorted(ratios), len(ratios)
    low = max(int(binom.ppf(0.025, n, 0.5)) - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def measure(name: str, rounds: int, only: list[str]) -> None:
    steps = {label: build_step(name, OPTIMIZERS[label]) for label in ["AdamW", *only]}
    for step in steps.values():  # compilation, allocation
        step()
    times: dict[str, list[float]] = {label: [] for label in steps}
    labels = list(steps)
    for k in range(rounds):
        shift = k % len(labels)
        for label in labels[shift:] + labels[:shift]:
            start = time.perf_counter()
            steps[label]()
            times[label].append(time.perf_counter() - start)
    base = times["AdamW"]
    print(f"\n{name}: AdamW {statistics.median(base) * 1e3:.0f} ms a step, {rounds} rounds")
    for label in labels[1:]:
        ratios = [a / b for a, b in zip(base, times[label], strict=True)]
        low, high = find_interval(ratios)
        median = statistics.median(ratios)
        print(
            f"  {label:20} {median:.3f} of AdamW's throughput [{low:.3f}, {high:.3f}]", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", nargs="+", default=["imdb/small", "imdb/paper-3"])
    parser.add_argument("--rounds", type=int, default=60)
    choices = list(OPTIMIZERS)[1:]
    parser.add_argument("--only", nargs="+", choices=choices, default=choices, metavar="OPTIMIZER")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="9 rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.configs:
        measure(name, 9 if arguments.quick else arguments.rounds, arguments.only)


if __name__ == "__main__":
    main()
