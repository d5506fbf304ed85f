"""How long does an optimizer step take, next to torch's own? Interleaved, one run, ratios.

Each round times every optimizer once, in turn, on tensors of equal shapes; the ratio to a baseline
is the median over rounds of the ratio within a round, so that a slow moment hits both. On a busy
machine ``--threads 1 --cpu-time`` counts the time that the thread was running, not the waiting.

    python benchmarks/step.py [--sizes 10 85] [--threads 1 2] [--rounds 15] [--quick] [--cpu-time]
    python benchmarks/step.py --device cuda
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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mirrormargin import MirrorAdam, MirrorDescent

GENERAL = (1.1, 1.3, 1.75, 4.0, 10.0)
CLOSED = (1.5, 2.0, 3.0)
ADAM = (1.05, 1.1, 1.5, 1.75, 2.0, 4.0)
LR = 1e-6  # u must move, for a weight whose u does not is not computed; where to is no matter
LARGE = 20_000_000  # from here on only what fits into memory together


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


class Literal(torch.optim.Optimizer):
    """The equations as one would first write them."""

    def __init__(self, params: list[Tensor], p: float) -> None:
        super().__init__(params, {"p": p})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            p = group["p"]
            for w in group["params"]:
                u = w.sign() * w.abs() ** (p - 1) - LR * w.grad
                w.copy_(u.sign() * u.abs() ** (1 / (p - 1)))


@dataclass
class Contestant:
    """An optimizer, the dtype of its weights, and what it is compared with."""

    make: Callable[[list[Tensor]], torch.optim.Optimizer]
    dtype: torch.dtype = torch.float32
    adam: str = "torch AdamW fused"
    is_traced: bool = False  # by torch.compile


def contestants(quick: bool, is_large: bool, traced: bool) -> dict[str, Contestant]:
    """Who takes part, by name."""
    made = {
        "torch SGD fused": Contestant(lambda w: torch.optim.SGD(w, LR, fused=True)),
        "torch AdamW fused": Contestant(lambda w: torch.optim.AdamW(w, LR, fused=True)),
    }
    for p in (*((1.1,) if quick else GENERAL), *CLOSED):
        made[f"MirrorDescent p={p:g}"] = Contestant(lambda w, p=p: MirrorDescent(w, LR, p))
    for p in (1.1, 2.0) if quick else ADAM:
        made[f"MirrorAdam p={p:g}"] = Contestant(lambda w, p=p: MirrorAdam(w, LR, p))
    variants: dict[str, dict[str, Any]] = {
        "normalized": {"step_rule": "normalized"},
        "momentum": {"momentum": 0.9},
    }
    paths: dict[str, dict[str, Any]] = {"foreach": {"foreach": True}, "plain": {"fused": False}}
    for name, options in ({} if is_large else variants | ({} if quick else paths)).items():
        made[f"MirrorDescent p=1.1 {name}"] = Contestant(
            lambda w, options=options: MirrorDescent(w, LR, 1.1, **options)
        )
    if not quick and not is_large:
        for name, options in paths.items():
            made[f"MirrorAdam p=1.1 {name}"] = Contestant(
                lambda w, options=options: MirrorAdam(w, LR, 1.1, **options)
            )
        baseline = "torch AdamW fused bf16"
        made[baseline] = Contestant(
            lambda w: torch.optim.AdamW(w, LR, fused=True), torch.bfloat16, baseline
        )
        for p in (1.1, 2.0):
            for kind in (MirrorDescent, MirrorAdam):
                made[f"{kind.__name__} p={p:g} bf16"] = Contestant(
                    lambda w, p=p, kind=kind: kind(w, LR, p), torch.bfloat16, baseline
                )
        for kind in (MirrorDescent, MirrorAdam):
            made[f"{kind.__name__} p=1.1 centred"] = Contestant(
                lambda w, kind=kind: kind(w, LR, 1.1, center=True)
            )
            made[f"{kind.__name__} p=1.1 bf16 state"] = Contestant(
                lambda w, kind=kind: kind(w, LR, 1.1, state_dtype=torch.bfloat16)
            )
        if traced:
            for kind in (MirrorDescent, MirrorAdam):
                made[f"{kind.__name__} p=1.1 torch.compile"] = Contestant(
                    lambda w, kind=kind: kind(w, torch.tensor(LR), 1.1), is_traced=True
                )
    made["literal eager p=1.1"] = Contestant(lambda w: Literal(w, 1.1))
    return made


def select(all_of_them: dict[str, Contestant], only: list[str]) -> dict[str, Contestant]:
    """Those whose name holds one of the given texts, and the baselines that ratios need."""
    chosen = {name for name in all_of_them if any(text in name for text in only)}
    chosen |= {all_of_them[name].adam for name in chosen}
    chosen |= {"torch SGD fused", "literal eager p=1.1"}
    return {name: one for name, one in all_of_them.items() if name in chosen}


def count_bytes(params: list[Tensor], optimizer: torch.optim.Optimizer) -> int:
    """Of the weights and of what the optimizer keeps, gradients not included."""
    states = [x for state in optimizer.state.values() for x in state.values()]
    tensors = [*params, *(x for x in states if isinstance(x, Tensor))]
    return sum(x.numel() * x.element_size() for x in tensors)


def measure(
    shapes: list[tuple[int, ...]],
    rounds: int,
    quick: bool,
    clock: Callable[[], float],
    device: torch.device,
    only: list[str],
    traced: bool,
) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [(torch.randn(shape, generator=generator) * 0.02).to(device) for shape in shapes]
    drawn = [(torch.randn(shape, generator=generator) * 0.01).to(device) for shape in shapes]
    grads = {torch.float32: drawn}
    count = sum(weight.numel() for weight in weights)
    entered = select(contestants(quick, count > LARGE, traced), only)
    steps: dict[str, Callable[[], object]] = {}
    size: dict[str, float] = {}
    for name, one in entered.items():  # each has weights of its own
        if one.dtype not in grads:
            grads[one.dtype] = [grad.to(one.dtype) for grad in grads[torch.float32]]
        params: list[Tensor] = [torch.nn.Parameter(w.to(one.dtype, copy=True)) for w in weights]
        for param, grad in zip(params, grads[one.dtype], strict=True):
            param.grad = grad
        optimizer = one.make(params)
        steps[name] = optimizer.step
        if one.is_traced:
            optimizer.step()  # makes the state
            steps[name] = torch.compile(optimizer.step, fullgraph=True)
        start = time.perf_counter()
        steps[name]()
        if one.is_traced:
            print(f"  {name}: {time.perf_counter() - start:.0f} s to compile")
        size[name] = count_bytes(params, optimizer) / count
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            synchronize(device)
            start = clock()
            step()
            synchronize(device)
            times[name].append(clock() - start)
    columns = f"{'ns/value':>9} {'bytes/value':>12} {'/ AdamW':>8} {'/ SGD':>8} {'literal /':>10}"
    print(f"  {'':32} {columns}")
    for name, one in entered.items():
        ratios = [
            statistics.median(a / b for a, b in zip(*pair, strict=True))
            for pair in (
                (times[name], times[one.adam]),
                (times[name], times["torch SGD fused"]),
                (times["literal eager p=1.1"], times[name]),
            )
        ]
        each = statistics.median(times[name]) / count * 1e9
        print(
            f"  {name:32} {each:9.2f} {size[name]:12.1f} {ratios[0]:8.2f} {ratios[1]:8.2f}"
            f" {ratios[2]:10.1f}"
        )


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was asked to."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


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


def _numba_target() -> str:
    """What compiled code is held to; the host's own CPU unless Numba's variables say otherwise."""
    return os.environ.get("NUMBA_CPU_NAME", "host")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 85], help="million values")
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--only", nargs="+", default=[""], help="names that hold one of these")
    parser.add_argument("--quick", action="store_true", help="fewer optimizers and layouts")
    parser.add_argument("--traced", action="store_true", help="torch.compile too: takes minutes")
    parser.add_argument("--cpu-time", action="store_true", help="of the calling thread")
    arguments = parser.parse_args()
    clock = time.thread_time if arguments.cpu_time else time.perf_counter
    if arguments.device.type == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        print(f"CPU features: torch {capability}, Numba {_numba_target()}")
        print("First step of a process:")
        measure_compilation()
        print("Memory:")
        measure_memory()
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for millions in arguments.sizes:
            for name, layout in LAYOUTS.items():
                if name not in arguments.layouts or (
                    name != "150 tensors" and (arguments.quick or millions > 20)
                ):
                    continue
                where = f"{threads} threads" if arguments.device.type == "cpu" else arguments.device
                print(f"{name}, {millions}M float32 values, {where}:")
                shapes = layout(millions * 1_000_000)
                measure(
                    shapes,
                    arguments.rounds,
                    arguments.quick,
                    clock,
                    arguments.device,
                    arguments.only,
                    arguments.traced and name != "2,000 tensors",
                )


if __name__ == "__main__":
    main()
