r"""Which selections training ends at.

    global      the optimal token in every sequence
    local       locally optimal: every support token of W_mm(alpha) scores below the selected one
    unsettled   neither: theory knows no such end, so the run has not settled, or cannot

W_mm(alpha) is the max-margin solution of the selected tokens alpha, at the exponent of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.attention.problem import read_problems
from mirrormargin.dynamics.descent.record import AttentionRecord, check_record
from mirrormargin.errors import ProblemError
from mirrormargin.figures.spread import find_share_of
from mirrormargin.svm import Status, solve_many

__all__ = ["BasinStatistics", "basin_statistics", "classify_selections"]

KINDS = ("global", "local", "unsettled", "unknown")


@dataclass(frozen=True, eq=False, repr=False)
class BasinStatistics:
    """How often training ended where, at each exponent.

    Attributes:
        kinds: The kind of each run's end, strings, (problem, p, init).
        p: The exponents, (E,).
        counts: How many runs of each kind, one dictionary for each exponent.
        shares: Share of each kind with its 95% Wilson interval ``(share, low, high)``.
        optimal_tokens: Share of sequences whose selected token is the optimal one, (E,).
    """

    kinds: NDArray[np.str_]
    p: NDArray[np.float64]
    counts: tuple[dict[str, int], ...]
    shares: tuple[dict[str, tuple[float, float, float]], ...]
    optimal_tokens: NDArray[np.float64]

    def __repr__(self) -> str:
        ends = ", ".join(f"{kind}={int((self.kinds == kind).sum())}" for kind in KINDS)
        return f"BasinStatistics({self.kinds.size} runs: {ends})"

    def __str__(self) -> str:
        lines = ["   p   runs  " + "".join(f"{kind:>20}" for kind in KINDS)]
        for p, counts, shares in zip(self.p, self.counts, self.shares, strict=True):
            cells = "".join(
                f"{f'{share:.0%} [{low:.0%}, {high:.0%}]':>20}"
                for share, low, high in (shares[kind] for kind in KINDS)
            )
            lines.append(f"{p:5g}  {sum(counts.values()):5d}  {cells}")
        return "\n".join(lines)


def classify_selections(
    problems: AttentionProblem | Sequence[AttentionProblem],
    selections: ArrayLike | Any,
    p: float | ArrayLike = 2.0,
    *,
    threads: int | None = None,
) -> NDArray[np.str_]:
    """The kind of each selection: "global", "local" or "unsettled", shape (problem, p, init).

    "unknown" where the max-margin solution could not be certified.

    Args:
        problems: One problem, or P of them of one shape.
        selections: Broadcastable to (problem, p, init, n), as in :func:`solve_many`.
        p: One exponent, or E of them.
        threads: Cores to use; None for all that the process may use.
    """
    members = read_problems(problems)
    solved = solve_many(members, selections, p, threads=threads, raise_on_failure=False)
    kinds = np.full(solved.status.shape, "unknown", dtype="<U9")
    scores = np.stack([problem.scores for problem in members])[:, None, None]
    best = np.stack([problem.optimal_tokens for problem in members])[:, None, None]
    own = np.take_along_axis(
        np.broadcast_to(scores, solved.support.shape), solved.selections[..., None], axis=-1
    )
    beaten = (solved.support & (scores >= own)).any(axis=(-1, -2))
    certified = solved.status == Status.OPTIMAL
    kinds[certified & ~beaten] = "local"
    kinds[(certified & beaten) | (solved.status == Status.INFEASIBLE)] = "unsettled"
    kinds[(solved.selections == best).all(axis=-1)] = "global"
    return kinds


def basin_statistics(record: AttentionRecord, *, threads: int | None = None) -> BasinStatistics:
    """How often the runs of a record ended at the global, a local or no locally optimal selection.

    Raises:
        ProblemError: (a ValueError) If the head was trained too: scores are then the run's own.
    """
    if check_record(record).head is not None:
        raise ProblemError("the record is of joint training, whose scores differ from run to run")
    chosen = record.final_selection
    kinds = classify_selections(record.problems, chosen, record.p, threads=threads)
    best = np.stack([problem.optimal_tokens for problem in record.problems])[:, None, None]
    counts = []
    for j in range(len(record.p)):
        found = Counter(kinds[:, j].ravel().tolist())
        counts.append({kind: found[kind] for kind in KINDS})
    return BasinStatistics(
        kinds=kinds,
        p=record.p,
        counts=tuple(counts),
        shares=tuple(
            {kind: _find_share(count, sum(row.values())) for kind, count in row.items()}
            for row in counts
        ),
        optimal_tokens=(chosen == best).mean(axis=(0, 2, 3)),
    )


def _find_share(count: int, total: int) -> tuple[float, float, float]:
    share, low, high = map(float, find_share_of(count, total))
    return share, low, high
