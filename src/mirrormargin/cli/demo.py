r"""``mirrormargin demo``: the same attention problem, trained in three geometries.

Normalised mirror descent from W = 0,

    u = to_dual(W) - lr * G / |G|_q,    W = to_primal(u),    G = grad L(W),

selects one token in each sequence at every p, and the direction in which W grows is that of the
max-margin solution at p.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from mirrormargin.attention import AttentionProblem

__all__ = ["add_parser", "run"]

LR = 0.1
# |W|_p grows like (lr * steps)^(1 / (p - 1)): a larger p needs more steps.
NUM_STEPS = {1.75: 1500, 2.0: 2000, 3.0: 4000}
SMALL = 0.01  # an entry below this share of the largest one counts as small


@dataclass(frozen=True)
class Row:
    """What one training reached, a line of the table."""

    p: float
    steps: int
    loss_gap: float
    norm: float
    attention: float
    num_optimal: int
    small_entries: float
    late_turn: float


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="train one attention problem at p = 1.75, 2 and 3",
        description="Train one random attention problem at p = 1.75, 2 and 3 and compare.",
    )
    parser.add_argument("--seed", type=int, default=1, help="which problem (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="no progress and no explanations")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Train, then print the table or the JSON object."""
    import mirrormargin as mm

    start = time.perf_counter()
    problem = mm.synthetic.unit_sphere(arguments.seed)
    show_progress = sys.stderr.isatty() and not arguments.quiet
    rows, directions = [], []
    for p, num_steps in NUM_STEPS.items():
        halfway, W = _train(problem, p, num_steps, _report_to_terminal if show_progress else None)
        rows.append(_measure(problem, p, num_steps, halfway, W))
        directions.append(W)
    if show_progress:
        print("\r\033[K", end="", file=sys.stderr)
    divergences = [
        [_divergence(problem, W, row.p, target) for target in NUM_STEPS]
        for row, W in zip(rows, directions, strict=True)
    ]
    if arguments.json:
        _print_json(arguments.seed, problem, rows, divergences, time.perf_counter() - start)
    else:
        _print_table(arguments, problem, rows, divergences)
    return 0


def _train(
    problem: AttentionProblem,
    p: float,
    num_steps: int,
    report: Callable[[float, int, int], None] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """W after half of the steps and after all of them."""
    import torch

    import mirrormargin as mm

    W = torch.zeros(problem.dim, problem.dim, dtype=torch.float64, requires_grad=True)
    optimizer = mm.MirrorDescent([W], lr=LR, p=p, step_rule="normalized")
    halfway = W.detach().numpy().copy()
    for step in range(num_steps):
        W.grad = torch.from_numpy(problem.gradient(W))
        optimizer.step()
        if step + 1 == num_steps // 2:
            halfway = W.detach().numpy().copy()
        if report is not None and step % 100 == 0:
            report(p, step, num_steps)
    return halfway, W.detach().numpy().copy()


def _report_to_terminal(p: float, step: int, num_steps: int) -> None:
    print(f"\r\033[Kp = {p:g}: step {step} of {num_steps}", end="", file=sys.stderr, flush=True)


def _measure(
    problem: AttentionProblem, p: float, num_steps: int, halfway: np.ndarray, W: np.ndarray
) -> Row:
    import mirrormargin as mm

    size = abs(W)
    return Row(
        p=p,
        steps=num_steps,
        loss_gap=problem.loss_gap(W),
        norm=float(mm.LpPotential(p).norm(W)),
        attention=float(problem.attention(W).max(axis=1).mean()),
        num_optimal=int((problem.selected_tokens(W) == problem.optimal_tokens).sum()),
        small_entries=float((size < SMALL * size.max()).mean()),
        late_turn=float(mm.directional_divergence(W, halfway, p)),
    )


def _divergence(problem: AttentionProblem, W: np.ndarray, p: float, target: float) -> float:
    """Of W, trained at p, from the max-margin solution at ``target`` of the tokens it selects."""
    import mirrormargin as mm

    selection = problem.selected_tokens(W)
    # For nine small problems it does not pay to compile.
    max_margin = mm.solve_attention_svm(
        problem.tokens, problem.queries, selection, target, compiled=False
    )
    return float(mm.directional_divergence(max_margin.W, W, p))


def _print_json(
    seed: int,
    problem: AttentionProblem,
    rows: Sequence[Row],
    divergences: list[list[float]],
    seconds: float,
) -> None:
    report = {
        "seed": seed,
        "num_sequences": problem.num_sequences,
        "num_tokens": problem.num_tokens,
        "dim": problem.dim,
        "step_rule": "normalized",
        "lr": LR,
        "runs": [asdict(row) for row in rows],
        "divergences": divergences,
        "seconds": round(seconds, 3),
    }
    print(json.dumps(report, indent=2, allow_nan=False))


def _print_table(
    arguments: argparse.Namespace,
    problem: AttentionProblem,
    rows: Sequence[Row],
    divergences: list[list[float]],
) -> None:
    n = problem.num_sequences
    if not arguments.quiet:
        print(
            f"One attention layer, {n} sequences of {problem.num_tokens} tokens in dimension"
            f" {problem.dim} (seed {arguments.seed}),\ntrained by normalised mirror descent from"
            f" W = 0 with lr = {LR:g}.\n"
        )
    print("   p  steps  loss gap    |W|_p  attention  optimal  |W_ij| < 1%  late turn")
    for row in rows:
        print(
            f"{row.p:4g}  {row.steps:5d}  {row.loss_gap:8.1e}  {row.norm:7.2f}"
            f"  {row.attention:9.6f}  {f'{row.num_optimal}/{n}':>7}  {row.small_entries:11.0%}"
            f"  {row.late_turn:9.1e}"
        )
    print("\nDirectional divergence of the trained W (rows) from the max-margin solution at")
    print("   p" + "".join(f"  {f'p = {row.p:g}':>8}" for row in rows))
    for row, line in zip(rows, divergences, strict=True):
        print(f"{row.p:4g}" + "".join(f"  {abs(value):8.4f}" for value in line))
    if not arguments.quiet:
        print(_LEGEND)


_LEGEND = """
loss gap     loss above its floor, which needs all attention on the optimal tokens
attention    mean weight on the most attended token; optimal: how many of these score highest
|W_ij| < 1%  share of entries below 1% of the largest: a smaller p tends to a sparser W
late turn    divergence of the direction halfway from the last one: small once it has settled

Zero divergence means the same direction. Training at p goes to the max-margin solution at p, the W
of least lp norm that separates the selected tokens from the others: the diagonal is smallest."""
