r"""Proof that no w separates: multipliers whose rows cancel.

If ``lam >= 0`` (free on equalities), ``<b, lam> = 1`` and ``A' lam = 0``, then ``A w >= b`` has no
solution: the weighted sum of its rows reads ``0 >= 1``. In floating point the rows cancel up to

    |A' lam|_q  <=  1e-12 max_k |a_k|_q,

which proves that the margin is below 1e-12 of the largest row: that is what infeasible means here.
The test is relative, so that tokens of size 1e-6 are not condemned.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from mirrormargin.geometry import lp_norm
from mirrormargin.svm.interior.constraints import Constraints
from mirrormargin.svm.interior.direct_newton import DENSE_ENTRIES
from mirrormargin.svm.interior.program import Program

__all__ = ["INFEASIBLE_BELOW", "cancellation", "polish_cancellation"]

Array = NDArray[np.float64]

INFEASIBLE_BELOW = 1e-12
POLISHES = 5


def cancellation(program: Program, lam: Array) -> float:
    """``|A' lam|_q / max_k |a_k|_q`` for multipliers with ``<b, lam> = 1``: bounds the margin."""
    size = lp_norm(program.constraints.adjoint(lam), program.q)
    return 0.0 if size == 0 else size / float(program.constraints.row_norms(program.q).max())


def polish_cancellation(program: Program, lam: Array) -> Array | None:
    """The nearest multipliers whose rows cancel, or None if those are not a proof.

    Nearest relative to each multiplier, ``min |v - 1|  s.t.  A' diag(lam) v = 0``, so that small
    ones do not change sign.
    """
    free = program.equality
    weights = np.where(free, np.abs(lam).max(), lam)
    lam = lam / float(program.b @ lam)
    for _ in range(POLISHES):
        v = _least_squares(program.constraints, weights, -program.constraints.adjoint(lam))
        lam = lam + weights * v
        # A multiplier that would turn negative has no part in the proof.
        lam = np.where(free, lam, np.maximum(lam, 0.0))
        total = float(program.b @ lam)
        if not total > 1e-3:
            return None
        lam = lam / total
        if cancellation(program, lam) <= INFEASIBLE_BELOW:
            return lam
        weights = np.where(free, np.abs(lam).max(), lam)
    return None


def _least_squares(constraints: Constraints, weights: Array, u: Array) -> Array:
    """The shortest v that minimises ``|A' diag(weights) v - u|_2``."""
    if constraints.num_rows * constraints.num_unknowns <= DENSE_ENTRIES / 5:
        scaled = (constraints.matrix * weights[:, None]).T
        solved = scipy.linalg.lstsq(scaled, u, check_finite=False, lapack_driver="gelsy")
        assert solved is not None
        return solved[0]
    operator = _ScaledAdjoint(constraints, weights)
    return scipy.sparse.linalg.lsqr(operator, u, atol=1e-15, btol=1e-15, iter_lim=2000)[0]


class _ScaledAdjoint(scipy.sparse.linalg.LinearOperator):
    """``A' diag(weights)``, never formed."""

    def __init__(self, constraints: Constraints, weights: Array) -> None:
        super().__init__(np.dtype(np.float64), (constraints.num_unknowns, constraints.num_rows))
        self.constraints, self.weights = constraints, weights

    def _matvec(self, x: Array) -> Array:
        return self.constraints.adjoint(self.weights * x.ravel())

    def _rmatvec(self, x: Array) -> Array:
        return self.weights * self.constraints.apply(x.ravel())
