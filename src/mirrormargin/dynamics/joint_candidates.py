r"""Which tokens joint training may select, best first.

For a selection alpha the head of least norm and its W are

    v_mm = argmin |v|_p   s.t.   y_i <x_{i,alpha}, v> >= 1,
    W_mm = argmin |W|_p   s.t.   (x_{i,alpha} - x_it)' W z_i >= b_i,

b_i = 1 if sequence i supports v_mm, else 0. On a ball of norm r the loss is about
exp(-r / |v_mm|_p), so the selection with the shortest v_mm is the best in the end; and of equally
short ones that with the shortest W_mm. If there are too many selections to try them all, one is
improved by choosing the optimal tokens of its own v_mm, which never makes v_mm longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import AttentionProblem
from mirrormargin.errors import NotSeparableError, SolverError
from mirrormargin.svm import (
    AttentionSVM,
    DecoderSVM,
    Status,
    solve_attention_svm,
    solve_decoder_svm,
)
from mirrormargin.svm.solution import SUPPORT

__all__ = ["Candidate", "find_candidates", "solve_candidate"]

Array = NDArray[np.float64]
Selection = NDArray[np.intp]

ALL_UP_TO = 64  # selections
MAX_IMPROVEMENTS = 20
SAME_MARGIN = 1e-6
SLOWEST = 1e-3


@dataclass(frozen=True, eq=False)
class Candidate:
    """A selection with its max-margin pair."""

    selection: Selection
    decoder: DecoderSVM
    target: AttentionSVM
    kappa: float

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is better; margins that rounding cannot tell apart are equal."""
        return float(np.round(np.log(self.decoder.margin) / SAME_MARGIN)), self.target.margin


def find_candidates(
    problem: AttentionProblem, p: float, num_heads: int, rng: np.random.Generator
) -> list[Candidate]:
    """Candidates, best first.

    Args:
        problem: The tokens, queries and labels; its head is where the search begins.
        p: Exponent of the norms.
        num_heads: Random heads to begin with as well, if there are more selections than 64.
        rng: Draws them.

    Raises:
        NotSeparableError: If no selection was found that both a head and a W separate.
    """
    selections = list(_list_selections(problem, p, num_heads, rng))
    found = [solve_candidate(problem, selection, p) for selection in selections]
    candidates = sorted((c for c in found if c is not None), key=lambda c: c.rank, reverse=True)
    if not candidates:
        n = problem.num_sequences
        features = problem.tokens[np.arange(n), problem.optimal_tokens]
        decoder = solve_decoder_svm(features, problem.labels, p, raise_on_failure=False)
        raise NotSeparableError(
            f"none of {len(selections)} selections can be classified by a head and selected by a W,"
            " so the joint path has no target: give wider tokens, or a problem whose own head"
            " classifies its optimal tokens",
            decoder,
        )
    return candidates


def solve_candidate(problem: AttentionProblem, selection: Selection, p: float) -> Candidate | None:
    """The max-margin pair of a selection, None if there is none."""
    try:
        features = problem.tokens[np.arange(problem.num_sequences), selection]
        decoder = solve_decoder_svm(features, problem.labels, p)
        rhs = decoder.support.astype(float)
        margins = problem.labels[:, None] * (problem.tokens @ decoder.v)
        # A token that is as good as the selected one need not be beaten: 0 >= 0 is no constraint.
        is_free = ~decoder.support[:, None] & (margins > 1 + SUPPORT)
        tokens = np.where(is_free[:, :, None], features[:, None, :], problem.tokens)
        target = solve_attention_svm(tokens, problem.queries, selection, p, rhs=rhs)
    except SolverError:
        return None
    others = np.take_along_axis(margins, selection[:, None], axis=1)[~decoder.support]
    kappa = max(SLOWEST, min(1.0, 0.5 * (others.min() - 1))) if others.size else 1.0
    return Candidate(selection, decoder, target, float(kappa))


def _list_selections(
    problem: AttentionProblem, p: float, num_heads: int, rng: np.random.Generator
) -> list[Selection]:
    n, T = problem.num_sequences, problem.num_tokens
    if n * np.log(T) <= np.log(ALL_UP_TO):
        return [np.array(choice, np.intp) for choice in product(range(T), repeat=n)]
    heads = [problem.head, *rng.standard_normal((num_heads, problem.dim))]
    found = {tuple(_improve(problem, head, p).tolist()) for head in heads}
    return [np.array(choice, np.intp) for choice in sorted(found)]


def _improve(problem: AttentionProblem, head: Array, p: float) -> Selection:
    """The selection of a head, or a better one if a max-margin head has it."""
    selection = _select(problem, head)
    for _ in range(MAX_IMPROVEMENTS):
        features = problem.tokens[np.arange(problem.num_sequences), selection]
        decoder = solve_decoder_svm(features, problem.labels, p, raise_on_failure=False)
        if decoder.status is not Status.OPTIMAL:
            break
        better = _select(problem, decoder.v)
        if np.array_equal(better, selection):
            break
        selection = better
    return selection


def _select(problem: AttentionProblem, head: Array) -> Selection:
    return (problem.labels[:, None] * (problem.tokens @ head)).argmax(axis=1)
