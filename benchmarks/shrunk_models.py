"""How much faster is an encoder without half of its heads and hidden units? Interleaved, ratios.

The encoder has MiniLM's sizes: 6 layers of 12 heads, 1,536 hidden units and width 384, with random
weights, for the time does not depend on them. Parts are taken out by
`mirrormargin.training.shrink`, the weakest of each layer. In each round the whole encoder and the
smaller one answer the same batch, in an order that changes from round to round. Printed is the
median over rounds of the ratio within a round, with the 95% interval of that median (order
statistics).

    python benchmarks/shrunk_models.py [--heads 0.5] [--units 0.5] [--batch 32] [--length 128]
                                       [--rounds 15] [--threads N] [--cpu-time] [--quick]

On a machine that other processes keep busy, `--threads 1 --cpu-time` says more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from mirrormargin.models import PretrainedEncoder
from mirrormargin.models.encoder import WORDPIECE
from mirrormargin.training import shrink
from mirrormargin.training.speed import ROUNDS, measure_speed_up

MINILM = {
    "model_type": "bert",
    "vocab_size": 30_522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}


def measure(
    model: PretrainedEncoder,
    ids: torch.Tensor,
    parts: dict[str, float],
    rounds: int,
    clock: Callable[[], float],
) -> None:
    shrunk = shrink(model, **{"heads": 0.0, "units": 0.0, **parts}, scope="layer")
    found = measure_speed_up(model, shrunk.model, ids, rounds=rounds, clock=clock)
    without = " and ".join(f"{share:.0%} of the {name}" for name, share in parts.items())
    blocks = sum(one.numel() for one in model.backbone.encoder.parameters())
    left = 1 - (shrunk.parameters_before - shrunk.parameters_after) / blocks
    print(
        f"  without {without:34} {found.ratio:.2f} x [{found.low:.2f}, {found.high:.2f}]"
        f"  {1e3 * found.before:,.0f} -> {1e3 * found.after:,.0f} ms,"
        f" {ids.numel() / found.after:,.0f} tokens/s, {left:.0%} of the weights of the layers",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=float, default=0.5)
    parser.add_argument("--units", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the CPU")
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = PretrainedEncoder(architecture=MINILM).eval()
    ids = torch.randint(1000, 30_000, (arguments.batch, arguments.length))
    ids[:, 0] = WORDPIECE.first
    rounds = 5 if arguments.quick else arguments.rounds
    print(
        f"MiniLM's sizes, batches of {arguments.batch} x {arguments.length} tokens,"
        f" threads: {arguments.threads}, rounds: {rounds}"
    )
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    heads, units = {"heads": arguments.heads}, {"units": arguments.units}
    for parts in (heads, units, heads | units):
        measure(model, ids, parts, rounds, clock)


if __name__ == "__main__":
    main()
