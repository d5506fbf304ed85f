"""How fast does the lab train, next to autograd? Interleaved, as ratios per model-step.

The rivals do what one would write in PyTorch: softmax attention, ``backward`` and the mirror step,
in float64. ``loop`` trains one model at a time on one thread; ``batched`` all models of a batch in
one set of tensors, on as many threads as ours. Each round times everything once, in turn, and a
ratio is the median over rounds of the ratio within a round.

    python benchmarks/lab.py [--quick] [--cpu-time] [--only small figure medium growth]
    python benchmarks/lab.py --against ../old/src [--cpu-time]

The second compares with another version of the package, in a process of its own. On a machine that
other processes keep busy ``--cpu-time`` says more, where one core works.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import mirrormargin as mm
from mirrormargin.geometry.threads import count_cores

SECTIONS = ("small", "figure", "medium", "growth")
EXPONENTS = (1.75, 2.0, 3.0)
DECADES = (1, 10, 100, 1000)  # recorded steps

clock: Callable[[], float] = time.perf_counter


def attend_and_lose(X, z, y, v, W):
    """The loss of a batch of models: W (..., d, d), everything else with the same axes in front."""
    logits = (X @ (W @ z.mT).mT[..., None]).squeeze(-1)
    s = torch.softmax(logits, dim=-1)
    margins = y * ((s[..., None, :] @ X).squeeze(-2) @ v[..., None]).squeeze(-1)
    return torch.nn.functional.softplus(-margins).mean(dim=-1).sum()


def mirror_step(W, gradient, p, lr):
    """One normalised step of each model, in place."""
    q = p / (p - 1)
    size = gradient.abs().amax(dim=(-1, -2), keepdim=True)
    norm = size * ((gradient / size).abs() ** q).sum(dim=(-1, -2), keepdim=True) ** (1 / q)
    u = W.sign() * W.abs() ** (p - 1) - lr * gradient / norm
    W.copy_(u.sign() * u.abs() ** (1 / (p - 1)))


def train_by_autograd(problems, p: float, num_steps: int, threads: int) -> float:
    """Seconds for one step of one model, all problems in one batch."""
    torch.set_num_threads(threads)
    batch = [
        torch.tensor(np.stack([getattr(problem, name) for problem in problems]))
        for name in ("tokens", "queries", "labels", "head")
    ]
    if len(problems) == 1:
        batch = [tensor[0] for tensor in batch]
    d = problems[0].dim
    W = torch.zeros(*batch[3].shape[:-1], d, d, dtype=torch.float64, requires_grad=True)
    start = clock()
    for _ in range(num_steps):
        (gradient,) = torch.autograd.grad(attend_and_lose(*batch, W), W)
        with torch.no_grad():
            mirror_step(W, gradient, p, 0.1)
    return (clock() - start) / num_steps / len(problems)


def train_by_mirrormargin(
    problems, p: float, num_steps: int, threads: int, record: int | Sequence[int] = DECADES
) -> float:
    """Seconds for one step of one model, recording included."""
    start = clock()
    mm.train_attention(
        problems, p, num_steps=num_steps, target=None, threads=threads, record=record
    )
    return (clock() - start) / num_steps / len(problems)


def compare(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> str:
    """Interleaved: median seconds of both, and the median ratio."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    own, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    return f"{own * 1e6:10.2f} us {1 / own:12,.0f} {other * 1e6:10.1f} us {ratio:8.1f} x"


def time_small(rounds: int) -> None:
    print("\nn = 6, T = 8, d = 10, one core, per model-step, recorded every decade\n")
    print("                                 mirrormargin   steps/s      autograd      ratio")
    problems = [mm.synthetic.unit_sphere(seed) for seed in range(1, 301)]
    for p in EXPONENTS:
        for name, count, steps in (("300 runs", 300, 1000), ("1 run", 1, 5000)):
            line = compare(
                lambda p=p, count=count, steps=steps: train_by_mirrormargin(
                    problems[:count], p, steps, 1
                ),
                lambda p=p: train_by_autograd(problems[:1], p, 500, 1),
                rounds,
            )
            print(f"  p = {p:<5g} {name:>8}, a loop   {line}")
    line = compare(
        lambda: train_by_mirrormargin(problems, 2.0, 1000, 1),
        lambda: train_by_autograd(problems, 2.0, 20, 1),
        rounds,
    )
    print(f"  p = 2     300 runs, batched  {line}")


def time_figure() -> None:
    """100 problems at three exponents with the published numbers of steps, targets included."""
    problems = [mm.synthetic.unit_sphere(seed) for seed in range(1, 101)]
    start = clock()
    record = mm.train_attention(
        problems,
        EXPONENTS,
        lr=0.1,
        num_steps=[1500, 2000, 20000],
        init=mm.NormalInit(std=1.0, seeds=0),
    )
    seconds = clock() - start
    mean = record.divergence[..., -1].mean(axis=(0, 2))
    print(
        f"\n300 runs of 1500 / 2000 / 20000 steps, max-margin solutions included: {seconds:.1f} s"
    )
    print("mean divergence " + " / ".join(f"{value:.4f}" for value in mean))


def time_medium(rounds: int) -> None:
    cores = count_cores()
    print(f"\nn = 200, T = 20, d = 64, 32 runs, {cores} cores, per model-step\n")
    print("                                 mirrormargin   steps/s      autograd      ratio")
    problems = [mm.synthetic.unit_sphere(seed, 200, 20, 64) for seed in range(32)]
    for p in EXPONENTS:
        line = compare(
            lambda p=p: train_by_mirrormargin(problems, p, 100, cores, record=5),
            lambda p=p: train_by_autograd(problems, p, 10, cores),
            rounds,
        )
        print(f"  p = {p:<5g} batched             {line}")


def time_growth(rounds: int) -> None:
    print("\ngrowth, p = 1.75, 8 runs, one core: microseconds per model-step\n")
    for name, sizes in (
        ("n", [(n, 8, 16) for n in (4, 8, 16, 32, 64)]),
        ("T", [(8, T, 16) for T in (4, 8, 16, 32, 64)]),
        ("d", [(8, 8, d) for d in (4, 8, 16, 32, 64)]),
    ):
        cells = []
        for n, T, d in sizes:
            problems = [mm.synthetic.unit_sphere(seed, n, T, d) for seed in range(8)]
            best = min(
                train_by_mirrormargin(problems, 1.75, 1000, 1, record=1) for _ in range(rounds)
            )
            cells.append(f"{best * 1e6:8.1f}")
        print(f"  {name} = 4, 8, 16, 32, 64 " + "".join(cells))


CASES = {  # n, T, d, runs, steps
    "n = 6, T = 8, d = 10, 300 runs": (6, 8, 10, 300, 1000),
    "the same, 1 run": (6, 8, 10, 1, 5000),
    "n = 16, T = 16, d = 16, 8 runs": (16, 16, 16, 8, 300),
    "n = 200, T = 20, d = 64, 4 runs": (200, 20, 64, 4, 100),
}


def serve() -> None:
    """Train what the lines of the input say, and print the seconds of a step of one model."""
    for line in sys.stdin:
        p, *numbers = line.split()
        n, T, d, runs, steps = map(int, numbers)
        problems = [mm.synthetic.unit_sphere(seed, n, T, d) for seed in range(1, runs + 1)]
        print(train_by_mirrormargin(problems, float(p), steps, 1), flush=True)


def compare_versions(other: Path, rounds: int, options: list[str]) -> None:
    """Interleaved with another version of the package, on one core."""
    if not (other / "mirrormargin").is_dir():
        raise SystemExit(f"there is no mirrormargin in {other}: give the src folder of a checkout")
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", *options],
            env={**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in (Path(mm.__file__).parents[1], other)
    ]

    def time_in(index: int, case: str) -> float:
        process = processes[index]
        assert process.stdin is not None
        assert process.stdout is not None
        print(case, file=process.stdin, flush=True)
        return float(process.stdout.readline())

    print("\none core, per model-step, recorded every decade\n")
    print("                                              here    steps/s          there      ratio")
    for name, sizes in CASES.items():
        for p in EXPONENTS:
            case = " ".join(map(str, (p, *sizes)))
            ours, theirs = (lambda i=i, case=case: time_in(i, case) for i in range(2))
            ours(), theirs()  # what is compiled and allocated once
            print(f"  p = {p:<5g} {name:32} {compare(ours, theirs, rounds)}", flush=True)
    for process in processes:
        process.communicate()


def main() -> None:
    global clock
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of each")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, not on the clock")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else 5
    if arguments.cpu_time:
        clock = time.process_time
    if arguments.serve:
        return serve()
    if arguments.against is not None:
        options = ["--cpu-time"] if arguments.cpu_time else []
        return compare_versions(arguments.against, rounds, options)
    problems = [mm.synthetic.unit_sphere(seed) for seed in range(9)]
    mm.train_attention(problems, num_steps=1)  # compiles
    if "small" in arguments.only:
        time_small(rounds)
    if "figure" in arguments.only:
        time_figure()
    if "medium" in arguments.only:
        time_medium(rounds)
    if "growth" in arguments.only:
        time_growth(rounds)


if __name__ == "__main__":
    main()
