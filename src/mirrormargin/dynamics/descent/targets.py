r"""Where the runs of a training must end, given the tokens that they select.

    fixed head    W_mm(alpha), the max-margin solution
    joint         v_mm, the max-margin decoder of the selected tokens, and for W the solution that
                  asks for a lead of one only in the sequences that support v_mm, and none elsewhere

Where nothing separates, or no solution could be certified, a target is nan.

:func:`compare_exponents` asks how far runs at one exponent end from the solutions at the others:

    own     D(W_mm^q(alpha_q), W_p),  alpha_q the tokens that the run at q selected
    same    D(W_mm^q(alpha_p), W_p),  alpha_p the tokens that the run at p itself selected

The published comparison is the first. It mixes two things, for runs at different exponents may
select different tokens; the second leaves only the geometry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.dynamics.descent.record import AttentionRecord, check_record
from mirrormargin.errors import SolverError
from mirrormargin.geometry.vector_batches import divergence_each
from mirrormargin.svm import solve_attention_svm, solve_decoder_svm, solve_many

__all__ = ["ExponentComparison", "compare_exponents", "solve_joint_targets", "solve_targets"]

Array = NDArray[np.float64]


def solve_targets(
    problems: tuple[AttentionProblem, ...],
    selection: NDArray[np.intp],
    exponents: tuple[float, ...],
    tol: float,
    threads: int | None = None,
) -> Array:
    """W_mm of each run, (P, E, I, d, d), for selections (P, E, I, n)."""
    return solve_many(
        problems, selection, exponents, tol, threads=threads, raise_on_failure=False
    ).W


def solve_joint_targets(
    problems: tuple[AttentionProblem, ...],
    selection: NDArray[np.intp],
    exponents: tuple[float, ...],
    tol: float,
) -> tuple[Array, Array]:
    """W (P, E, I, d, d) and v (P, E, I, d) of each run, each selection solved once."""
    d = problems[0].dim
    W = np.full((*selection.shape[:3], d, d), np.nan)
    v = np.full((*selection.shape[:3], d), np.nan)
    known: dict[tuple[int, int, bytes], tuple[Array, Array]] = {}
    for i, j, k in np.ndindex(selection.shape[:3]):
        key = i, j, selection[i, j, k].tobytes()
        if key not in known:
            known[key] = _solve_pair(problems[i], selection[i, j, k], exponents[j], tol)
        W[i, j, k], v[i, j, k] = known[key]
    return W, v


def _solve_pair(
    problem: AttentionProblem, chosen: NDArray[np.intp], p: float, tol: float
) -> tuple[Array, Array]:
    d = problem.dim
    W, v = np.full((d, d), np.nan), np.full(d, np.nan)
    features = problem.tokens[np.arange(problem.num_sequences), chosen]
    try:
        decoder = solve_decoder_svm(features, problem.labels, p, tol)
        v = decoder.v
        rhs = decoder.support.astype(float)
        W = solve_attention_svm(
            problem.tokens, problem.queries, chosen, p, tol, rhs=rhs, compiled=False
        ).W
    except SolverError:
        pass  # the nan stays
    return W, v


@dataclass(frozen=True, eq=False, repr=False)
class ExponentComparison:
    """Divergences of runs trained at p (axis 1) from solutions at q (axis 2).

    Attributes:
        own: With the tokens selected at q, (P, E, E, I).
        same: With the tokens selected at p, (P, E, E, I).
        agreement: Share of sequences where the runs at p and q select the same token, (E, E).
        p: The exponents, (E,).
    """

    own: Array
    same: Array
    agreement: Array
    p: Array

    def __repr__(self) -> str:
        exponents = ", ".join(f"{p:g}" for p in self.p[:8]) + ", ..." * (len(self.p) > 8)
        P, _, _, count = self.own.shape
        return f"ExponentComparison(p={exponents}; {P} x {count} problems x inits)"

    def __str__(self) -> str:
        lines = ["trained at     " + "".join(f"{f'p = {q:g}':>20}" for q in self.p)]
        for name, table in (("own", self.own), ("same", self.same)):
            means, spreads = np.nanmean(table, axis=(0, 3)), np.nanstd(table, axis=(0, 3))
            for p, row, spread in zip(self.p, means, spreads, strict=True):
                cells = "".join(
                    f"{f'{mean:.4f} +- {std:.4f}':>20}"
                    for mean, std in zip(row, spread, strict=True)
                )
                lines.append(f"{f'p = {p:g}, {name}':<15}{cells}")
        return "\n".join(lines)


def compare_exponents(record: AttentionRecord) -> ExponentComparison:
    """Compare the last W of each run with the solutions at every exponent of the record."""
    exponents = check_record(record).settings.p
    chosen = record.final_selection
    P, E, count, d, _ = record.W.shape
    own, same = (np.empty((P, E, E, count)) for _ in range(2))
    tol = record.settings.target_tol
    at_own = solve_targets(record.problems, chosen, exponents, tol)
    for j, p in enumerate(exponents):
        # (P, 1, I, n): the selections of one exponent, solved at all of them.
        at_same = solve_targets(record.problems, chosen[:, j : j + 1], exponents, tol)
        W = record.W[:, j : j + 1]
        own[:, j] = divergence_each(at_own, W, p, axes=2)
        same[:, j] = divergence_each(at_same, W, p, axes=2)
    agreement = (chosen[:, :, None] == chosen[:, None]).mean(axis=(0, 3, 4))
    return ExponentComparison(own=own, same=same, agreement=agreement, p=record.p)
