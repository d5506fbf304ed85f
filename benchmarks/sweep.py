"""How many lab runs does a sweep make per second and core, and what do more workers bring?

n = 6, T = 8, d = 10, 1,000 normalised steps at p = 2, each with its certified max-margin solution.
Each round runs the same grid with every number of workers, in turn; rates are medians over rounds,
and the scaling is the median of the ratios within a round. What a sweep costs beside its runs, such
as starting workers, is left out by taking the difference of two grids.

    python benchmarks/sweep.py [--quick] [--runs 20000] [--workers 1 2] [--engine local ray]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mirrormargin.sweep import LabGrid, run_sweep

STEPS = 1000


class Timing(NamedTuple):
    """One sweep: seconds by the clock, processor time of workers and of the driver, and bytes."""

    seconds: float
    workers: float
    driver: float
    size: int


def time_sweep(num_runs: int, workers: int, engine: str) -> Timing:
    """Run a grid of so many runs in an empty folder."""
    grid = LabGrid(seed=range(1, num_runs + 1), num_steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        sweep = run_sweep(grid, Path(folder), engine=engine, workers=workers)
        seconds, driver = time.perf_counter() - begin, time.process_time() - begin_cpu
        assert (len(sweep.done), sweep.failed) == (num_runs, 0)
        return Timing(seconds, sweep.cpu_seconds, driver, sweep.num_bytes)


def time_engine(engine: str, num_runs: int, counts: list[int], rounds: int) -> None:
    """Print a line for each number of workers."""
    few = max(1, num_runs // 10)
    if engine == "ray":
        import ray

        ray.init(num_cpus=max(counts), include_dashboard=False, logging_level="error")
    time_sweep(100 * max(counts), max(counts), engine)  # starts what stays, and compiles
    rows: dict[int, list[tuple[Timing, Timing]]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            rows[count].append(
                (time_sweep(few, count, engine), time_sweep(num_runs, count, engine))
            )
    print(f"\n{engine} engine, {num_runs:,} runs of {STEPS:,} steps, {rounds} rounds\n")
    print("  workers   runs/s   runs/s and core   scaling   cpu us/run   driver us/run   bytes/run")
    base = [_count_per_second(pair, num_runs - few) for pair in rows[counts[0]]]
    for count in counts:
        rates = [_count_per_second(pair, num_runs - few) for pair in rows[count]]
        scaling = statistics.median(b / a for a, b in zip(base, rates, strict=True))
        whole = [pair[1] for pair in rows[count]]
        rate = statistics.median(rates)
        cpu = statistics.median(one.workers for one in whole) / num_runs * 1e6
        driver = [(b.driver - a.driver) / (num_runs - few) * 1e6 for a, b in rows[count]]
        print(
            f"  {count:7d} {rate:8.0f} {rate / count:17.0f} {scaling / count * counts[0]:8.0%}"
            f" {cpu:12.0f} {statistics.median(driver):15.1f} {whole[-1].size / num_runs:11.0f}"
        )


def _count_per_second(pair: tuple[Timing, Timing], more: int) -> float:
    """Runs per second of what the large sweep has beyond the small one."""
    return more / (pair[1].seconds - pair[0].seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of 2,000 runs")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engine", nargs="+", choices=("local", "ray"), default=["local"])
    arguments = parser.parse_args()
    num_runs, rounds = (2_000, 1) if arguments.quick else (arguments.runs, arguments.rounds)
    for engine in arguments.engine:
        time_engine(engine, num_runs, arguments.workers, rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nlargest memory of the driver: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
