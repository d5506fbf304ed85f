"""How long does an optimizer step take, next to torch's own? Interleaved, one run, ratios.

Each round times every optimizer once, in turn, on the same tensors; the ratio to a baseline is
the median over rounds of the ratio within a round, so that a slow moment hits both.

    python benchmarks/step.py [--sizes 10 85] [--threads 1 2] [--rounds 15] [--quick]
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor

from mirrormargin import MirrorAdam, MirrorDescent

GENERAL = (1.1, 1.3, 1.75, 4.0, 10.0)
CLOSED = (1.5, 2.0, 3.0)
LR = 1e-9  # the step must be taken, the weights should stay where they are


def transformer_shapes(total: int) -> list[tuple[int, ...]]:
    """150 tensors in the proportions of a 6-layer transformer, ``total`` values in all."""
    d = round(math.sqrt(total / 72))
    block = [(d, d)] * 4 + [(4 * d, d), (d, 4 * d)] + [(d,)] * 19
    return block * 6


LAYOUTS: dict[str, Callable[[int], list[tuple[int, ...]]]] = {
    "150 tensors": transformer_shapes,
    "one tensor": lambda total: [(total,)],
    "2,000 tensors": lambda total: [(total // 2000,)] * 2000,
}


def literal_step(params: list[Tensor], p: float) -> Callable[[], None]:
    """The equations as one would first write them."""

    @torch.no_grad()
    def step() -> None:
        for w in params:
            assert w.grad is not None
            u = w.sign() * w.abs() ** (p - 1) - LR * w.grad
            w.copy_(u.sign() * u.abs() ** (1 / (p - 1)))

    return step


def contestants(quick: bool) -> dict[str, Callable[[list[Tensor]], Callable[[], object]]]:
    """Name -> what makes the step function for given parameters."""
    torch_fused = {"lr": LR, "fused": True}
    made: dict[str, Callable[[list[Tensor]], Callable[[], object]]] = {
        "torch SGD fused": lambda params: torch.optim.SGD(params, **torch_fused).step,
        "torch AdamW fused": lambda params: torch.optim.AdamW(params, **torch_fused).step,
    }
    for p in (*((1.1,) if quick else GENERAL), *CLOSED):
        made[f"MirrorDescent p={p:g}"] = lambda params, p=p: MirrorDescent(params, LR, p).step
    for p in (1.1, 2.0) if quick else (1.1, 1.5, 2.0, 4.0):
        made[f"MirrorAdam p={p:g}"] = lambda params, p=p: MirrorAdam(params, LR, p).step
    for name, options in (
        ("normalized", {"step_rule": "normalized"}),
        ("momentum", {"momentum": 0.9}),
    ):
        made[f"MirrorDescent p=1.1 {name}"] = lambda params, options=options: (
            MirrorDescent(params, LR, 1.1, **options).step
        )
    made["literal eager p=1.1"] = lambda params: literal_step(params, 1.1)
    return made


def measure(shapes: list[tuple[int, ...]], rounds: int, quick: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=generator) * 0.02 for shape in shapes]
    grads = [torch.randn(shape, generator=generator) * 0.01 for shape in shapes]
    count = sum(weight.numel() for weight in weights)
    steps = {}
    for name, make in contestants(quick).items():  # each has weights of its own
        params: list[Tensor] = [torch.nn.Parameter(weight.clone()) for weight in weights]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        steps[name] = make(params)
        steps[name]()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    print(f"  {'':32} {'ns/value':>9} {'/ AdamW':>8} {'/ SGD':>8} {'literal /':>10}")
    for name in steps:
        ratios = [
            statistics.median(a / b for a, b in zip(*pair, strict=True))
            for pair in (
                (times[name], times["torch AdamW fused"]),
                (times[name], times["torch SGD fused"]),
                (times["literal eager p=1.1"], times[name]),
            )
        ]
        each = statistics.median(times[name]) / count * 1e9
        print(f"  {name:32} {each:9.2f} {ratios[0]:8.2f} {ratios[1]:8.2f} {ratios[2]:10.1f}")


def measure_memory() -> None:
    """How much more memory the process holds at its peak because of one step."""
    weight = torch.nn.Parameter(torch.full((20_000_000,), 0.02))
    weight.grad = torch.full((20_000_000,), 0.01)
    for p, label in ((1.1, "dual state (80 MB)"), (1.5, "no state")):
        optimizer = MirrorDescent([weight], lr=LR, p=p)
        optimizer.step()  # builds the state
        _reset_peak()
        before = _peak_mib()
        optimizer.step()
        print(f"  20M values, p={p}: {label}; extra peak in a step {_peak_mib() - before:.1f} MiB")


def _reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def _peak_mib() -> float:
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_compilation() -> None:
    """Seconds of the first step in a new process, without and with the disk cache."""
    script = (
        "import time, torch; from mirrormargin import {kind}\n"
        "w = torch.nn.Parameter(torch.ones(8)); w.grad = torch.ones(8)\n"
        "o = {kind}([w], lr=0.1, p=1.1); t = time.perf_counter(); o.step()\n"
        "print(round(time.perf_counter() - t, 1))"
    )
    for kind in ("MirrorDescent", "MirrorAdam"):
        with tempfile.TemporaryDirectory() as folder:
            seconds = [
                subprocess.run(
                    [sys.executable, "-c", script.format(kind=kind)],
                    env={**os.environ, "NUMBA_CACHE_DIR": folder},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.strip()
                for _ in range(2)
            ]
        print(f"  {kind}: {seconds[0]} s to compile, {seconds[1]} s from the cache")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 85], help="million values")
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="fewer optimizers and layouts")
    arguments = parser.parse_args()
    print("First step of a process:")
    measure_compilation()
    print("Memory:")
    measure_memory()
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for millions in arguments.sizes:
            for name, layout in LAYOUTS.items():
                if name != "150 tensors" and (arguments.quick or millions > 20):
                    continue
                print(f"{name}, {millions}M float32 values, {threads} threads:")
                measure(layout(millions * 1_000_000), arguments.rounds, arguments.quick)


if __name__ == "__main__":
    main()
