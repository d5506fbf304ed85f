"""Is one commit as fast as another? The same calls in both, in turn, as ratios.

Two processes stay open, each with the package of one source tree. A round makes every call once in
each, one after the other; printed is the median over rounds of the ratio within a round, with the
95% interval of that median, so that a busy moment hits both.

    git worktree add /tmp/before COMMIT
    python tools/compare_speed.py /tmp/before . [--rounds 40] [--only solve]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

CALLS = """
import json, sys, time
import numpy as np, torch
import mirrormargin as mm

torch.set_num_threads(2)
calls = {}
for n, T, d in ((6, 8, 10), (50, 10, 25)):
    problem = mm.synthetic.unit_sphere(1, n, T, d)
    for p in (1.5, 2.0, 3.0):
        def solve(problem=problem, p=p):
            mm.solve_attention_svm(problem.tokens, problem.queries, problem.optimal_tokens, p)
        calls[f"solve {n * (T - 1)} x {d * d}, p = {p:g}"] = (solve, 20 if n == 6 else 2)
problem = mm.synthetic.unit_sphere(1)
for rule in ("normalized", "polyak"):
    for p in (1.75, 2.0, 3.0):
        def train(p=p, rule=rule):
            mm.train_attention(
                problem, p=p, step_rule=rule, lr=0.1, num_steps=5000, record=1, target=None
            )
        calls[f"lab {rule}, p = {p:g}, 5,000 steps"] = (train, 2)
def build(kind, **options):
    weights = [torch.nn.Parameter(torch.randn(258, 258)) for _ in range(150)]
    for one in weights:
        one.grad = 1e-3 * torch.randn_like(one)
    return getattr(mm, kind)(weights, lr=1e-9, **options).step
for kind, p in (("MirrorDescent", 1.1), ("MirrorDescent", 2.0), ("MirrorDescent", 3.0),
                ("MirrorAdam", 1.1), ("MirrorAdam", 2.0)):
    calls[f"{kind} p = {p:g}, 10M values"] = (build(kind, p=p), 1)
calls["MirrorDescent normalized p = 1.1, 10M values"] = (
    build("MirrorDescent", p=1.1, step_rule="normalized"), 1)
for call, _ in calls.values():
    call()
print(json.dumps(list(calls)), flush=True)
for line in sys.stdin:
    call, times = calls[json.loads(line)]
    start = time.perf_counter()
    for _ in range(times):
        call()
    print((time.perf_counter() - start) / times, flush=True)
"""


class Tree:
    """A process that makes calls with the package of one source tree."""

    def __init__(self, folder: Path) -> None:
        package = folder.resolve() / "src"
        if not (package / "mirrormargin").is_dir():
            raise SystemExit(f"{folder} has no src/mirrormargin: give a checkout of the project")
        self._process = subprocess.Popen(
            [sys.executable, "-c", CALLS],
            env={**os.environ, "PYTHONPATH": str(package)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.calls: list[str] = json.loads(self._read())

    def time(self, call: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process ended: see its error above")
        return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout of the project")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose name has this")
    arguments = parser.parse_args()
    before, after = Tree(arguments.before), Tree(arguments.after)
    from scipy.stats import binom

    low = max(int(binom.ppf(0.025, arguments.rounds, 0.5)) - 1, 0)
    for call in before.calls:
        if arguments.only not in call:
            continue
        ratios = []
        for k in range(arguments.rounds):
            first, second = (before, after) if k % 2 else (after, before)
            times = {id(first): first.time(call), id(second): second.time(call)}
            ratios.append(times[id(after)] / times[id(before)])
        ratios.sort()
        middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
        print(f"{call:46} {middle:.3f} [{ratios[low]:.3f}, {ratios[-1 - low]:.3f}]", flush=True)


if __name__ == "__main__":
    main()
