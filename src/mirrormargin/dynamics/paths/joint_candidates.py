r"""Which tokens joint training may select, best first.

For a selection alpha the head of least norm and its W are

    v_mm = argmin |v|_p   s.t.   y_i <x_{i,alpha}, v> >= 1,
    W_mm = argmin |W|_p   s.t.   (x_{i,alpha} - x_it)' W z_i >= b_i,

b_i = 1 if sequence i supports v_mm; else b_i = 0, and only tokens of margin 1 or less count. On a
ball of norm r the loss is about exp(-r / |v_mm|_p), so the selection with the shortest v_mm is the
best in the end; and of equally short ones that with the shortest W_mm. If there are too many
selections to try them all, those of random heads are improved: by choosing the optimal tokens of
the selection's own v_mm, which never makes v_mm longer, and by changing one token at a time.
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
Selection = tuple[int, ...]

ALL_UP_TO = 64  # selections
MAX_CHANGES = 20
MAX_CANDIDATES = 4
NUM_CLIMBS = 4
SAME_MARGIN = 1e-6  # relative difference of margins that is none
SLOWEST = 1e-3  # least kappa


@dataclass(frozen=True, eq=False)
class Candidate:
    """A selection with its max-margin pair."""

    selection: NDArray[np.intp]
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
    """Up to MAX_CANDIDATES candidates, best first.

    Args:
        problem: The tokens, queries and labels; its head is where the search begins.
        p: Exponent of the norms.
        num_heads: Random heads to begin with as well, if there are more than 64 selections.
        rng: Draws them.

    Raises:
        NotSeparableError: If it is proved of every selection looked at that no head classifies it
            or no W separates it.
        SolverError: If none of them could be certified, but not all are proved to be impossible.
    """
    search = _Search(problem, p)
    selections = search.list_selections(num_heads, rng)
    selections.sort(key=search.find_margin, reverse=True)
    candidates: list[Candidate] = []
    errors: list[SolverError] = []
    for selection in selections:
        is_tied = bool(candidates) and search.find_margin(selection) >= (
            (1 - SAME_MARGIN) * candidates[-1].decoder.margin
        )
        if len(candidates) >= MAX_CANDIDATES and not is_tied:
            break
        try:
            candidates.append(_solve_candidate(problem, np.array(selection), p))
        except SolverError as error:
            errors.append(error)
    if not candidates:
        unproved = [error for error in errors if not isinstance(error, NotSeparableError)]
        if unproved:
            raise SolverError(
                f"none of {len(selections)} selections could be certified, so the joint path has no"
                f" target; of the first that may be possible: {unproved[0]}",
                unproved[0].solution,
            )
        raise NotSeparableError(
            f"none of {len(selections)} selections can be classified by a head and selected by a W,"
            " so the joint path has no target: give wider tokens, or a problem whose own head"
            " classifies its optimal tokens",
            errors[0].solution,
        )
    return sorted(candidates, key=lambda candidate: candidate.rank, reverse=True)


def solve_candidate(
    problem: AttentionProblem, selection: NDArray[np.intp], p: float
) -> Candidate | None:
    """The max-margin pair of a selection, None if there is none."""
    try:
        return _solve_candidate(problem, selection, p)
    except SolverError:
        return None


def _solve_candidate(problem: AttentionProblem, selection: NDArray[np.intp], p: float) -> Candidate:
    features = problem.tokens[np.arange(problem.num_sequences), selection]
    decoder = solve_decoder_svm(features, problem.labels, p)
    rhs = decoder.support.astype(float)
    margins = problem.labels[:, None] * (problem.tokens @ decoder.v)
    # A token that is as good as the selected one need not be beaten: 0 >= 0 is no constraint.
    is_free = ~decoder.support[:, None] & (margins > 1 + SUPPORT)
    tokens = np.where(is_free[:, :, None], features[:, None, :], problem.tokens)
    target = solve_attention_svm(tokens, problem.queries, selection, p, rhs=rhs)
    others = np.take_along_axis(margins, selection[:, None], axis=1)[~decoder.support]
    kappa = max(SLOWEST, min(1.0, 0.5 * (others.min() - 1))) if others.size else 1.0
    return Candidate(selection, decoder, target, float(kappa))


class _Search:
    """Decoder SVMs of selections, each solved once."""

    def __init__(self, problem: AttentionProblem, p: float) -> None:
        self._problem, self._p = problem, p
        self._known: dict[Selection, DecoderSVM] = {}

    def solve(self, selection: Selection) -> DecoderSVM:
        if selection not in self._known:
            features = self._problem.tokens[np.arange(len(selection)), list(selection)]
            labels, p = self._problem.labels, self._p
            self._known[selection] = solve_decoder_svm(features, labels, p, raise_on_failure=False)
        return self._known[selection]

    def find_margin(self, selection: Selection) -> float:
        decoder = self.solve(selection)
        return decoder.margin if decoder.status is Status.OPTIMAL else 0.0

    def list_selections(self, num_heads: int, rng: np.random.Generator) -> list[Selection]:
        n, T = self._problem.num_sequences, self._problem.num_tokens
        if n * np.log(T) <= np.log(ALL_UP_TO) + 1e-9:
            return list(product(range(T), repeat=n))
        heads = [self._problem.head, *rng.standard_normal((num_heads, self._problem.dim))]
        found = sorted({self._improve(self._select(head)) for head in heads})
        best = sorted(found, key=self.find_margin, reverse=True)[:NUM_CLIMBS]
        return sorted({*found, *(self._climb(selection) for selection in best)})

    def _improve(self, selection: Selection) -> Selection:
        """Choose the optimal tokens of the max-margin head, as long as that changes them."""
        for _ in range(MAX_CHANGES):
            if self.find_margin(selection) == 0:
                break
            better = self._select(self.solve(selection).v)
            if better == selection:
                break
            selection = better
        return selection

    def _climb(self, selection: Selection) -> Selection:
        """Change a token of one supporting sequence, as long as that widens the margin."""
        for _ in range(MAX_CHANGES):
            support = np.flatnonzero(self.solve(selection).support)
            changed = [
                self._improve((*selection[:i], t, *selection[i + 1 :]))
                for i in support
                for t in range(self._problem.num_tokens)
            ]
            best = max(changed, key=self.find_margin, default=selection)
            if self.find_margin(best) <= (1 + SAME_MARGIN) * self.find_margin(selection):
                break
            selection = best
        return selection

    def _select(self, head: Array) -> Selection:
        scores = self._problem.labels[:, None] * (self._problem.tokens @ head)
        return tuple(scores.argmax(axis=1).tolist())
