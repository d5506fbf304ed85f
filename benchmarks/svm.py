"""How long does a certified attention SVM take, next to general solvers? Interleaved, ratios.

The others get the problem as one would state it: ``min norm(w, p)  s.t.  A w >= 1`` with the dense
matrix A; the time of stating it counts. Each round times every solver once, in turn, and the ratio
is the median over rounds of the ratio within a round. ``error`` is what a solver's w, scaled to be
feasible, is above the proven lower bound.

    python benchmarks/svm.py [--quick] [--only small medium large largest growth]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mirrormargin import AttentionProblem, solve_attention_svm, solve_many, synthetic
from mirrormargin.svm.attention_svm import build_program

Solver = Callable[[AttentionProblem, np.ndarray, float], np.ndarray]

EXPONENTS = (1.5, 2.0, 3.0)
SECTIONS = ("small", "medium", "large", "largest", "growth")


def solve_by_mirrormargin(problem: AttentionProblem, rows: np.ndarray, p: float) -> np.ndarray:
    selection = problem.optimal_tokens
    return solve_attention_svm(problem.tokens, problem.queries, selection, p).W.ravel()


def solve_by_cvxpy(solver: str, **options: float) -> Solver:
    import cvxpy as cp

    def solve(problem: AttentionProblem, rows: np.ndarray, p: float) -> np.ndarray:
        w = cp.Variable(rows.shape[1])
        statement = cp.Problem(cp.Minimize(cp.norm(w, p)), [rows @ w >= 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an inaccurate solution: the error shows it
            statement.solve(solver=solver, **options)
        return np.full(rows.shape[1], np.nan) if w.value is None else w.value

    return solve


def solve_by_linear_svc(problem: AttentionProblem, rows: np.ndarray, p: float) -> np.ndarray:
    from sklearn.svm import LinearSVC

    # It wants two classes: every second row is turned around.
    signs = np.where(np.arange(len(rows)) % 2, -1.0, 1.0)
    svc = LinearSVC(C=1e6, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        svc.fit(rows * signs[:, None], signs)
    return svc.coef_.ravel()


def rivals(p: float) -> dict[str, Solver]:
    made: dict[str, Solver] = {
        "CVXPY + Clarabel": solve_by_cvxpy("CLARABEL"),
        "CVXPY + SCS": solve_by_cvxpy("SCS", eps_abs=1e-6, eps_rel=1e-6, max_iters=20_000),
    }
    if p == 2.0:
        made["LinearSVC"] = solve_by_linear_svc
    return made


def compare(size: tuple[int, int, int], p: float, rounds: int, solvers: dict[str, Solver]) -> None:
    """Print a line for each solver: median time, ratio to ours, error."""
    problems = [synthetic.unit_sphere(seed, *size) for seed in range(1, rounds + 1)]
    every = {"mirrormargin": solve_by_mirrormargin, **solvers}
    times: dict[str, list[float]] = {name: [] for name in every}
    errors: dict[str, list[float]] = {name: [] for name in every}
    every["mirrormargin"](problems[0], np.empty(0), p)  # imports, first touch of memory
    for problem in problems:
        rows = dense_rows(problem)
        reference = solve_attention_svm(
            problem.tokens, problem.queries, problem.optimal_tokens, p, tol=1e-9
        )
        lower = 1 / reference.margin / (1 + reference.gap)
        for name, solve in every.items():
            start = time.perf_counter()
            w = solve(problem, rows, p)
            times[name].append(time.perf_counter() - start)
            norm = np.linalg.norm(w, p)
            errors[name].append(norm / max((rows @ w).min(), 1e-300) / lower - 1)
    m, D = rows.shape
    print(f"  {m} x {D}, p = {p:g}")
    for name, seconds in times.items():
        pairs = zip(seconds, times["mirrormargin"], strict=True)
        ratio = statistics.median(theirs / ours for theirs, ours in pairs)
        print(
            f"    {name:<18} {1e3 * statistics.median(seconds):10.2f} ms  {ratio:9.1f} x"
            f"   error {max(errors[name]):.0e}",
            flush=True,
        )


def dense_rows(problem: AttentionProblem) -> np.ndarray:
    ones = np.ones(problem.num_sequences)
    selection = problem.optimal_tokens
    return build_program(problem.tokens, problem.queries, selection, 2.0, ones).constraints.matrix


def measure_small(quick: bool) -> None:
    measure_compilation()
    for p in EXPONENTS:
        compare((6, 8, 10), p, 5 if quick else 20, rivals(p))
    problems = [synthetic.unit_sphere(seed) for seed in range(1, 101)]
    exponents = [1.75, 2.0, 3.0]
    selections = np.stack([problem.optimal_tokens for problem in problems])[:, None, None, :]
    clarabel, ratios, ours = solve_by_cvxpy("CLARABEL"), [], []
    for round_ in range(3 if quick else 9):
        start = time.perf_counter()
        solve_many(problems, selections, exponents)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        for p in exponents:
            clarabel(problems[round_], dense_rows(problems[round_]), p)
        ratios.append((time.perf_counter() - start) / 3 / (ours[-1] / 300))
    each = 1e3 * statistics.median(ours) / 300
    print(
        f"  solve_many, 300 problems 42 x 100 (p = 1.75, 2, 3): {statistics.median(ours):.3f} s,"
        f" {each:.2f} ms each; CVXPY + Clarabel takes {statistics.median(ratios):.0f} x per problem"
    )


def measure_compilation() -> None:
    """The first small solve of a process, without and with the cache of compiled code."""
    script = (
        "import time, mirrormargin as mm; P = mm.synthetic.unit_sphere(1); t = time.perf_counter();"
        "mm.solve_many(P, P.optimal_tokens); print(round(time.perf_counter() - t, 1))"
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds = [
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for _ in range(2)
        ]
    print(f"  first small solve: {seconds[0]} s to compile, {seconds[1]} s from the cache")


def measure_medium(quick: bool) -> None:
    for p in EXPONENTS:
        compare((50, 10, 25), p, 1 if quick else 3, rivals(p))
    if quick:
        return
    for p in EXPONENTS:
        only = {k: v for k, v in rivals(p).items() if k != "CVXPY + SCS" or p == 1.5}
        compare((100, 10, 50), p, 1, only)


def measure_large(quick: bool) -> None:
    for p in (*EXPONENTS, 1.1, 10.0):
        run_alone((500, 10, 100), p)
    if not quick:
        compare((500, 10, 100), 2.0, 1, {"LinearSVC": solve_by_linear_svc})


def measure_largest(quick: bool) -> None:
    for p in (2.0,) if quick else (2.0, 1.5, 3.0):
        run_alone((2000, 50, 256), p)


def run_alone(size: tuple[int, int, int], p: float) -> None:
    """In a process of its own, whose peak memory is then the solver's."""
    command = [sys.executable, __file__, "--alone", json.dumps([size, p])]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout
    print(f"  {out.strip()}", flush=True)


def solve_alone(size: tuple[int, int, int], p: float) -> None:
    problem = synthetic.unit_sphere(0, *size)
    before = peak_memory()
    start = time.perf_counter()
    solution = solve_attention_svm(problem.tokens, problem.queries, problem.optimal_tokens, p)
    seconds = time.perf_counter() - start
    peak = peak_memory()
    n, T, d = size
    print(
        f"{n * (T - 1):,} x {d * d:,}, p = {p:g}: {solution.status}, gap {solution.gap:.0e},"
        f" {solution.iterations} steps, {seconds:.1f} s, peak {peak:.0f} MB (before {before:.0f}),"
        f" support {int(solution.support.sum()):,} ({solution.method})"
    )


def peak_memory() -> float:
    """Of this process, in MB. On Linux not getrusage, which inherits the parent's peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure_growth(quick: bool) -> None:
    """How the time grows from one base in each direction."""
    base = {"n": 50, "T": 8, "d": 32, "p": 2.0}
    steps = {
        "n": (25, 50, 100, 200, 400),
        "T": (4, 8, 16, 32),
        "d": (16, 32, 64, 128),
        "p": (1.05, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0),
    }
    print(f"  base: {', '.join(f'{name} = {value:g}' for name, value in base.items())}")
    print("    varied          m          D   steps        ms   method")
    for name, values in steps.items():
        for value in values:
            point = {**base, name: value}
            problem = synthetic.unit_sphere(1, int(point["n"]), int(point["T"]), int(point["d"]))
            arrays = problem.tokens, problem.queries, problem.optimal_tokens
            seconds = []
            for _ in range(1 if quick else 3):
                start = time.perf_counter()
                solution = solve_attention_svm(*arrays, point["p"], raise_on_failure=False)
                seconds.append(time.perf_counter() - start)
            print(
                f"    {name} = {value:<6g} {solution.lam.size:8} {solution.W.size:10}"
                f" {solution.iterations:7} {1e3 * min(seconds):9.1f}   {solution.method}"
                f"{'' if solution.status == 'optimal' else f' ({solution.status})'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        size, p = json.loads(arguments.alone)
        solve_alone(tuple(size), p)
        return
    measures = (measure_small, measure_medium, measure_large, measure_largest, measure_growth)
    for section, measure in zip(SECTIONS, measures, strict=True):
        if section in arguments.only:
            print(f"{section}:", flush=True)
            measure(arguments.quick)


if __name__ == "__main__":
    main()
