r"""How far runs at one exponent end from the max-margin solutions at the others, in two ways.

    own     D(W_mm^q(alpha_q), W_p),  alpha_q the tokens that the run at q selected
    same    D(W_mm^q(alpha_p), W_p),  alpha_p the tokens that the run at p itself selected

The published comparison is the first. It mixes two things, for runs at different exponents may
select different tokens; the second leaves only the geometry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirrormargin.dynamics.descent.record import AttentionRecord
from mirrormargin.dynamics.descent.targets import solve_targets
from mirrormargin.geometry.batched import divergence_each

__all__ = ["ExponentComparison", "compare_exponents"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
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
    exponents = record.settings.p
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
