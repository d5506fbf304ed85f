r"""The decoder SVM: the head of least norm that classifies one feature vector for each sequence.

v_mm = argmin |v|_p   s.t.   y_i <x_i, v> >= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import (
    check_exponent,
    check_finite,
    read_array,
)
from mirrormargin.attention.problem import read_labels
from mirrormargin.errors import ProblemError
from mirrormargin.geometry.threads import limit_threads
from mirrormargin.svm.inputs import check_cap, check_limits, read_start
from mirrormargin.svm.interior.constraints import MatrixConstraints
from mirrormargin.svm.interior.program import Program
from mirrormargin.svm.interior.solver import refuse_row, solve_program
from mirrormargin.svm.solution import MaxMarginSolution, collect_fields

__all__ = ["DecoderSVM", "solve_decoder_svm"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DecoderSVM(MaxMarginSolution):
    """The solution of a decoder SVM; ``duals`` and ``support`` have shape (n,).

    Without a solution v is nan, margin is 0 and ``duals`` are the certificate's.
    """

    remedy: ClassVar[str] = "check the samples' labels, or use a soft margin, C=..."

    @property
    def v(self) -> Array:
        """The head, shape (d,)."""
        return self.w


def solve_decoder_svm(
    features: ArrayLike | Any,
    labels: ArrayLike | Any,
    p: float = 2.0,
    tol: float = 1e-8,
    *,
    C: float | None = None,
    warm_start: DecoderSVM | ArrayLike | None = None,
    max_iter: int = 200,
    threads: int | None = None,
    raise_on_failure: bool = True,
) -> DecoderSVM:
    """Find the head of least lp norm that classifies every feature vector with margin one.

    Args:
        features: One row for each sample, shape (n, d); of a sequence, its selected token.
        labels: +1 or -1 for each sample, shape (n,).
        p: Exponent of the norm, ``1 < p``.
        tol: Largest relative gap between the norm of v and the proven lower bound.
        C: Price of falling short by one, for a soft margin; None for a hard one.
        warm_start: A solution of a similar problem, or its duals (n,); a help up to p = 5.
        max_iter: Bound on the Newton steps.
        threads: Cores for the linear algebra; None leaves them as they are.
        raise_on_failure: Whether to raise when there is no certified solution.

    Raises:
        ProblemError: (a ValueError) If an argument has a wrong shape or value.
        NotSeparableError: If no v classifies all samples; carries the proof.
        MarginBelowError: If neither a solution nor that proof was found; carries a proven bound on
            the margin.
        SolverError: If the gap could not be brought to ``tol``.

    Example:
        >>> solve_decoder_svm([[1.0, 0.0], [0.0, -2.0]], [1, -1], p=2.0).v.round(6)
        array([1. , 0.5])
    """
    x = read_array("features", features)
    if x.ndim != 2 or x.size == 0:
        raise ProblemError(
            f"features has shape {x.shape}: give shape (num_samples, dim), not empty, one row for"
            " each sample"
        )
    check_finite("features", x)
    y = read_labels(labels, len(x))
    check_limits(tol, max_iter, threads, raise_on_failure=raise_on_failure)
    start = None if warm_start is None else read_start(warm_start, (len(x),))
    exponent = check_exponent(p, error=ProblemError)
    ones, none = np.ones(len(x)), np.zeros(len(x), bool)
    program = Program(MatrixConstraints(x * y[:, None]), exponent, ones, none, check_cap(C))
    zero = np.flatnonzero(~x.any(axis=1))
    if zero.size and C is None:
        outcome = refuse_row(program, int(zero[0]), "comparison with zero")
    else:
        with limit_threads(threads):
            outcome = solve_program(program, tol, max_iter, start)
    solution = DecoderSVM(**collect_fields(program, outcome, tol, np.copy))
    if raise_on_failure:
        solution.check()
    return solution
