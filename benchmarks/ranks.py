"""What does a step cost in several processes, and what do they tell each other?

All ranks of one job make, round by round, a step of the training loop with every optimizer in three
ways: rank 0 alone on the whole batch while the others wait, all with ddp, all with fsdp. Each way
has its own copy of the model, and the order changes from round to round. Printed are medians over
rounds of a step's time, and of its ratio to the step alone within a round; then the bytes of the
tensors that each way keeps on a rank; then, from torch's profiler, the collectives of one step and
their bytes: torch's for weights and gradients, and ours, which are the loss and the right answers,
whether somebody wants to stop or to save, the norm that clipping needs on shards, and what the
optimizer asks about whole tensors. Ours are also timed by themselves, one after the other.

    python benchmarks/ranks.py [--ranks 2] [--rounds 40] [--width 128] [--quick]

Ranks on one machine share its cores: start no more than there are, and expect no gain from the
second one where memory is what a step waits for.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mirrormargin.optim.shards import get_local
from mirrormargin.training.building import load_training_data
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.distributed import Ranks, join_ranks
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.launch import find_launch
from mirrormargin.training.loop import _Loop
from mirrormargin.training.metrics import NoMetrics

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "AdamW": {"optimizer.name": "AdamW", "optimizer.p": 2.0},
    "MirrorAdam p=1.1": {"optimizer.name": "MirrorAdam", "optimizer.p": 1.1},
    "MirrorAdam p=2": {"optimizer.name": "MirrorAdam", "optimizer.p": 2.0},
    "MirrorDescent p=1.1": {"optimizer.name": "MirrorDescent", "optimizer.p": 1.1},
    "MirrorDescent p=2": {"optimizer.name": "MirrorDescent", "optimizer.p": 2.0},
    "normalized p=1.1": {"optimizer.name": "MirrorDescent", "optimizer.step_rule": "normalized"},
    "Polyak p=2": {"optimizer.name": "Polyak", "optimizer.p": 2.0, "clip": None},
    "Polyak p=1.1": {"optimizer.name": "Polyak", "optimizer.p": 1.1, "clip": None},
}
WAYS = ("alone", "ddp", "fsdp")
WARM = 3  # steps before anything is timed: compilation, DDP's buckets


def build_step(
    ranks: Ranks, width: int, changes: dict[str, Any]
) -> tuple[Callable[[], None], torch.optim.Optimizer]:
    """One step of a training, with what the loop asks the other ranks after it; its optimizer."""
    config = find_configuration(
        "digits/tiny",
        {
            "model.width": width,
            "model.hidden": 4 * width,
            "optimizer.lr": 1e-9,
            "batch_size": 64,
            "clip": 1.0,
            **changes,
        },
    )
    data = load_training_data(config)
    loop = _Loop(config, data, TrainingFolder("none"), ranks)
    order, metrics = loop.order_epoch(0), NoMetrics()

    def step() -> None:
        position = loop.state.position
        loop.step(order[position.step % len(order)], metrics)
        ranks.agree(False, False)

    return step, loop.optimizer


def measure_memory(step: Callable[[], None], optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Bytes on this rank of weights, of gradients when they are needed, and of what is kept."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    found = {"weights": sum(get_local(param).nbytes for param in params)}

    def note(*_: Any) -> None:
        grads = [param.grad for param in params if param.grad is not None]
        found["gradients"] = sum(get_local(grad).nbytes for grad in grads)

    hook = optimizer.register_step_pre_hook(note)
    step()
    hook.remove()
    kept = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in kept if isinstance(value, Tensor)]
    found["state"] = sum(get_local(value).nbytes for value in tensors)
    return found


def count_collectives(step: Callable[[], None]) -> dict[str, tuple[int, int, float | None]]:
    """Torch's and our collectives of a step: how many, how many bytes a rank gives, and ms of ours.

    Ours are calls of ``all_reduce`` in Python; torch makes its own in C++ or as operators.
    """
    ours: list[Tensor] = []
    original: Any = dist.all_reduce

    def note(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        ours.append(tensor)
        return original(tensor, *arguments, **options)

    dist.all_reduce = note
    try:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            step()
    finally:
        dist.all_reduce = original
    sizes = [
        torch.Size(event.input_shapes[0]).numel()
        for event in profiler.events()
        if event.name.startswith(("gloo:", "nccl:"))
    ]
    others = sum(sizes) - sum(tensor.numel() for tensor in ours)
    return {
        "torch's": (len(sizes) - len(ours), 4 * others, None),  # float32
        "ours": (len(ours), sum(tensor.nbytes for tensor in ours), time_collectives(ours)),
    }


def time_collectives(tensors: list[Tensor], rounds: int = 100) -> float:
    """Milliseconds that all-reduces of such tensors take where no rank has to wait for another."""
    own, times = [torch.zeros_like(tensor) for tensor in tensors], []
    for _ in range(WARM + rounds):
        dist.barrier()
        start = time.perf_counter()
        for tensor in own:
            dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM:]) * 1e3


def measure(rounds: int, width: int) -> None:
    """Run by every rank."""
    torch.set_num_threads(1)
    with join_ranks("ddp", "cpu") as ddp, join_ranks("fsdp", "cpu") as fsdp:
        places = {"alone": Ranks("cpu"), "ddp": ddp, "fsdp": fsdp}
        built = {
            (name, way): build_step(places[way], width, changes)
            for name, changes in OPTIMIZERS.items()
            for way in WAYS
        }
        steps = {key: step for key, (step, _) in built.items()}
        times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
        keys = list(steps)
        for k in range(-WARM, rounds):
            shift = k % len(keys)
            for key in keys[shift:] + keys[:shift]:
                dist.barrier()
                start = time.perf_counter()
                if key[1] != "alone" or ddp.is_first:
                    steps[key]()
                if k >= 0:
                    times[key].append(time.perf_counter() - start)
        memory = ddp.gather({key: measure_memory(*one) for key, one in built.items()})
        counts = {key: count_collectives(steps[key]) for key in keys if key[1] != "alone"}
        if ddp.is_first:
            show(times, memory, counts, ddp.count, rounds)


def show(times: Any, memory: Any, counts: Any, num_ranks: int, rounds: int) -> None:
    print(f"{num_ranks} ranks, {rounds} rounds; ms a step, and as a multiple of one process")
    for name in OPTIMIZERS:
        alone = times[name, "alone"]
        parts = [f"alone {statistics.median(alone) * 1e3:6.1f}"]
        for way in WAYS[1:]:
            ratios = [one / other for one, other in zip(times[name, way], alone, strict=True)]
            median = statistics.median(times[name, way]) * 1e3
            parts.append(f"{way} {median:6.1f} ({statistics.median(ratios):.2f})")
        print(f"  {name:20} {'   '.join(parts)}")
    print("bytes of tensors on each rank")
    for name, way in memory[0]:
        totals = [sum(one[name, way].values()) for one in memory]
        parts = [f"{what} {size:,}" for what, size in memory[0][name, way].items()]
        total = " and ".join(f"{size:,}" for size in totals)
        print(f"  {name:20} {way:5} {', '.join(parts)}; together {total}")
    print("collectives of a step, the bytes that a rank gives to them, and the time of ours")
    for name, way in counts:
        parts = [
            f"{who} {n}, {size:,} bytes" + ("" if ms is None else f", {ms:.2f} ms")
            for who, (n, size, ms) in counts[name, way].items()
        ]
        print(f"  {name:20} {way:5} {'; '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--width", type=int, default=128, help="of the transformer")
    parser.add_argument("--quick", action="store_true", help="7 rounds")
    arguments = parser.parse_args()
    rounds = 7 if arguments.quick else arguments.rounds
    if find_launch() is not None:
        measure(rounds, arguments.width)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **address}
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(arguments.ranks)},
        )
        for rank in range(arguments.ranks)
    ]
    if any([rank.wait() for rank in ranks]):
        raise SystemExit("a rank failed")


if __name__ == "__main__":
    main()
