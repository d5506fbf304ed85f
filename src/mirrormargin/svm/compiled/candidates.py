r"""Many small attention SVMs through the compiled kernel, over threads, and measured afterwards.

What the kernel finds for a job counts only if

    |w|_p / min_k <w, a_k>  <=  (1 + tol) sum lam / |A' lam|_q

with the original tokens, computed here and not by the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.geometry.threads import share_out
from mirrormargin.geometry.vector_batches import norm_each, power_each
from mirrormargin.svm.compiled import newton as at
from mirrormargin.svm.compiled.kernel import FIRST_EXPONENT, load_kernel
from mirrormargin.svm.compiled.newton import Work, allocate
from mirrormargin.svm.inputs import Integers, Jobs, other_tokens
from mirrormargin.svm.interior.program import ROUNDING_UNIT
from mirrormargin.svm.interior.separability import SEPARABLE

__all__ = ["Candidates", "solve_jobs"]

Array = NDArray[np.float64]

BLOCK = 4_000_000  # entries of the tokens of the jobs done at a time, to bound the memory


@dataclass(frozen=True)
class Candidates:
    """What the kernel found, scaled to ``min_k <w, a_k> = 1`` and ``psi_p'(w) = A' lam``.

    Attributes:
        W: (J, d, d).
        lam: (J, n, T - 1), without the selected tokens.
        slack: (J, n, T - 1), ``<w, a_k> - 1``.
        norm: (J,), of W.
        gap: (J,); nan where the kernel found nothing.
        rounding: (J,), what floating point may hide of the gap.
        steps: (J,), Newton steps.
    """

    W: Array
    lam: Array
    slack: Array
    norm: Array
    gap: Array
    rounding: Array
    steps: Integers


def solve_jobs(jobs: Jobs, tol: float, max_iter: int, threads: int) -> Candidates:
    """Solve each job, in the same way whichever thread takes it, and measure what came out."""
    count = max(1, BLOCK // jobs.tokens[0].size)
    blocks = [jobs[k : k + count] for k in range(0, len(jobs), count)]
    with np.errstate(all="ignore"):
        parts = [_solve_block(block, tol, max_iter, threads) for block in blocks]
    columns = [field.name for field in fields(Candidates)]
    return Candidates(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in columns)
    )


def _solve_block(jobs: Jobs, tol: float, max_iter: int, threads: int) -> Candidates:
    n, T, d = jobs.tokens.shape[1:]
    X, z = jobs.tokens[jobs.problem], jobs.queries[jobs.problem]
    others = np.take_along_axis(X, other_tokens(jobs.chosen, T)[..., None], axis=2)
    delta = np.take_along_axis(X, jobs.chosen[..., None, None], axis=2) - others
    W, lam = np.empty((len(jobs), d * d)), np.empty((len(jobs), n * (T - 1)))
    steps = np.empty(len(jobs), np.intp)
    kernel = load_kernel()

    def solve(job: int, work: Work) -> None:
        p = float(jobs.p[job])
        steps[job], scale = _find_candidate(kernel, work, delta[job], z[job], p, tol, max_iter)
        W[job] = work.unknowns[at.BEST_W] / scale
        lam[job] = work.rows[at.BEST_LAM]

    share_out(solve, len(jobs), threads, lambda: allocate(n * (T - 1), d * d))
    return _measure(delta, z, jobs.p, W.reshape(-1, d, d), lam.reshape(-1, n, T - 1), steps)


def _find_candidate(
    kernel: Callable[..., Any],
    work: Work,
    delta: Array,
    z: Array,
    p: float,
    tol: float,
    max_iter: int,
) -> tuple[int, float]:
    """Leave the kernel's w and lam in the work; returns its steps and the scale of w.

    The scale is nan if nothing was found.
    """
    scale = _load_rows(work, delta, z)
    if not 0 < scale < np.inf:
        return 0, np.nan
    if p <= 2:
        steps, gap, _ = kernel(p, tol, max_iter, *work)
    else:
        steps, gap, _ = kernel(2.0, SEPARABLE, max_iter, *work)
        if gap < np.inf:
            scale /= _prepare_primal(work, p)
            more, gap, _ = kernel(p, tol, max_iter - steps, *work)
            steps += more
    return steps, scale if gap < np.inf else np.nan


def _load_rows(work: Work, delta: Array, z: Array) -> float:
    """Fill A with rows of mean norm one, and the first lam; returns what they were divided by.

    That is nan if a row is zero.
    """
    n, per_sequence, d = delta.shape
    norms = np.sqrt((delta * delta).sum(axis=2) * (z * z).sum(axis=1)[:, None]).reshape(-1)
    scale = norms.mean()
    A = work.A.reshape(n, per_sequence, d, d)
    np.multiply(delta[:, :, :, None], (z / scale)[:, None, None, :], out=A)
    work.At[:] = work.A.T
    work.rows[at.LAM] = 1 / np.maximum(norms / scale, 1e-9)
    return scale if norms.min() > 0 else np.nan


def _prepare_primal(work: Work, p: float) -> float:
    """Start p > 2 from the best w and lam at p = 2, the rows times the number returned."""
    w, lam = work.unknowns[at.BEST_W], work.rows[at.BEST_LAM]
    # Entries of about one: |w|^20 then stays in range.
    largest = np.abs(w).max()
    work.A[:] *= largest
    work.At[:] *= largest
    # The rows of the best w are at least one: all slacks are positive, and none of them small.
    w = 1.2 / largest * w
    lam = np.maximum(lam, 1e-6 * lam.max())
    exponent = min(p, FIRST_EXPONENT)
    power = np.abs(power_each(w[None], exponent)).sum()
    work.unknowns[at.W], work.rows[at.LAM] = w, lam * (power / lam.sum())
    return largest


def _measure(delta: Array, z: Array, p: Array, W: Array, lam: Array, steps: Integers) -> Candidates:
    """Scale what the kernel found, and bound the least norm from both sides.

    The gap and its rounding are those of ``measure_gap`` and ``rounding`` in ``interior.program``,
    for many solutions at once and with bits that do not depend on their number.
    """
    q = p / (p - 1)
    y = (delta @ (z @ W.swapaxes(1, 2))[..., None])[..., 0]
    margin = y.min(axis=(1, 2))
    W = W / margin[:, None, None]
    norm = norm_each(W.reshape(len(W), -1), p)
    slack = y / margin[:, None, None] - 1
    lam = lam * (power_each(norm, p) / lam.sum(axis=(1, 2)))[:, None, None]
    u = (lam[:, :, None, :] @ delta)[:, :, 0, :].swapaxes(1, 2) @ z
    dual_norm = norm_each(u.reshape(len(u), -1), q)
    total = lam.sum(axis=(1, 2))
    valid = (margin > 0) & (lam >= 0).all(axis=(1, 2)) & (total > 0)
    sizes = norm_each(delta, q[:, None, None]), norm_each(z, q[:, None])[:, :, None]
    rows = ROUNDING_UNIT * sizes[0] * sizes[1]
    unsure = np.maximum((rows * norm[:, None, None] - slack).max(axis=(1, 2)), 0.0)
    return Candidates(
        W=W,
        lam=lam,
        slack=slack,
        norm=norm,
        gap=np.where(valid, norm * dual_norm / total - 1, np.nan),
        rounding=unsure + (lam * rows).sum(axis=(1, 2)) / dual_norm,
        steps=steps,
    )
