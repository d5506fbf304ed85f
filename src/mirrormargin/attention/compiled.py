r"""The scaled gradient of an attention problem, compiled: what :mod:`logits` says, in loops.

    Y_i = W z_i,   a_i = X_i Y_i,   c_i = dL / da_i,   H_i = X_i' c_i,   G = sum_i H_i z_i'

Each of the products adds up weighted rows (:func:`weigh_rows`), so rows are padded with zeros to a
multiple of its width: tokens X (n, T, dp) and their transposes Xt (n, d, Tp); W and G are
transposed as well, (d, dp). The log-scale is 0 as long as the weights are in the range of floating
point.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.attention import losses
from mirrormargin.attention.losses import LOSSES
from mirrormargin.attention.problem import AttentionProblem
from mirrormargin.geometry import float64_loops
from mirrormargin.geometry.float64_loops import (
    WIDTH,
    compiled,
    exponential,
    exponentials,
    weigh_rows,
)

__all__ = [
    "DEEP",
    "EXPONENTIAL",
    "LARGE",
    "LOGISTIC",
    "LOSS_CODES",
    "SMALL",
    "SOURCES",
    "Data",
    "Memory",
    "allocate",
    "find_head_gradient",
    "find_loss_gap",
    "find_scaled_weights",
    "find_scores",
    "find_weights",
    "pack",
    "pack_all",
    "pull_back",
    "pull_back_transposed",
    "push_forward",
    "round_up",
]

Array = NDArray[np.float64]

# Of the losses the loops know names and order.
SOURCES = (*float64_loops.SOURCES, str(losses.__file__), __file__)

LOSS_CODES = {name: code for code, name in enumerate(LOSSES)}
LOGISTIC, EXPONENTIAL, _CORRELATION = (LOSS_CODES[name] for name in LOSSES)
SMALL, LARGE = 1e-200, 1e200  # outside, weights are computed from their logarithms
_GONE = -1e4  # the logarithm of a weight that is zero
DEEP = -300.0  # from here on gaps are measured from the smallest one
_TINY = 1e-280  # below, a loss is straight to all digits


class Data(NamedTuple):
    """A problem in the layout of the loops.

    Attributes:
        X: Tokens, (n, T, dp).
        Xt: Their transposes, (n, d, Tp).
        z: Queries, (n, dp).
        scores: gamma, (n, Tp). Joint training writes it.
        labels: y, (n,).
    """

    X: Array
    Xt: Array
    z: Array
    scores: Array
    labels: Array


class Memory(NamedTuple):
    """What the loops of one thread work in.

    Attributes:
        Y, H: W z and X' c, (n, dp).
        logits, gaps, below, s, c, arguments, weights: (n, Tp).
        leaders: The most attended tokens, (n,).
        margins, exponents, slopes, log_slopes, totals: (n,).
    """

    Y: Array
    H: Array
    logits: Array
    gaps: Array
    below: Array
    s: Array
    c: Array
    arguments: Array
    weights: Array
    leaders: NDArray[np.int64]
    margins: Array
    exponents: Array
    slopes: Array
    log_slopes: Array
    totals: Array


def round_up(count: int) -> int:
    return -(-count // WIDTH) * WIDTH


def pack(problem: AttentionProblem) -> Data:
    """The arrays of a problem, padded and transposed."""
    return Data(*(array[0] for array in pack_all([problem])))


def pack_all(problems: Sequence[AttentionProblem]) -> Data:
    """Those of P problems of one shape, stacked."""
    P = len(problems)
    n, T, d = problems[0].tokens.shape
    dp, Tp = round_up(d), round_up(T)
    shapes = ((P, n, T, dp), (P, n, d, Tp), (P, n, dp), (P, n, Tp), (P, n))
    data = Data(*map(np.empty, shapes))
    for i, problem in enumerate(problems):
        data.X[i, :, :, :d] = problem.tokens
        data.Xt[i, :, :, :T] = problem.tokens.swapaxes(1, 2)
        data.z[i, :, :d] = problem.queries
        data.scores[i, :, :T] = problem.scores
        data.labels[i] = problem.labels
    for array, stop in ((data.X, d), (data.Xt, T), (data.z, d), (data.scores, T)):
        array[..., stop:] = 0.0
    return data


def allocate(n: int, T: int, d: int) -> Memory:
    """Memory for problems of this shape."""
    dp, Tp = round_up(d), round_up(T)
    shapes = {"Y": (n, dp), "H": (n, dp)}
    shapes |= dict.fromkeys(("margins", "exponents", "slopes", "log_slopes", "totals"), (n,))
    names = (name for name in Memory._fields if name != "leaders")
    arrays = {name: np.zeros(shapes.get(name, (n, Tp))) for name in names}
    return Memory(leaders=np.zeros(n, np.int64), **arrays)


@compiled
def push_forward(Wt, data, memory):
    """Fill Y and the logits."""
    n, d, Tp = data.Xt.shape
    dp = Wt.shape[1]
    Y = memory.Y.ctypes.data
    weigh_rows(data.z.ctypes.data, dp, 1, Wt.ctypes.data, 0, dp, Y, n, d)
    weigh_rows(Y, dp, 1, data.Xt.ctypes.data, d * Tp, Tp, memory.logits.ctypes.data, n, d)


@compiled
def find_weights(data, memory, loss):
    """Fill attention s and ``c = dL / da`` times ``exp(-log_scale)``; returns the log-scale."""
    n, T, _ = data.X.shape
    below, s, c = memory.below, memory.s, memory.c
    shift = _find_gaps(T, memory.logits, data.scores, memory)
    exponentials(memory.arguments.reshape(-1), memory.weights.reshape(-1))
    small = exponential(shift)
    for i in range(n):
        total, drop = 0.0, 0.0
        for t in range(T):
            weight = memory.weights[i, t]
            s[i, t] = weight * small if below[i, t] != 0.0 else weight
            total += s[i, t]
            drop += s[i, t] * below[i, t]
        memory.totals[i] = total
        memory.margins[i] = data.scores[i, memory.leaders[i]] - drop * (1.0 / total)
    _find_slopes(memory, loss)
    biggest = 0.0
    for i in range(n):
        inverse = 1.0 / memory.totals[i]
        factor = memory.slopes[i] * inverse / n
        weighted = 0.0
        for t in range(T):
            c[i, t] = factor * memory.weights[i, t] * below[i, t]
            weighted += c[i, t]
            biggest = max(biggest, abs(c[i, t]))
        for t in range(T):
            s[i, t] *= inverse
            c[i, t] -= s[i, t] * weighted
    if SMALL < biggest < LARGE:
        return shift
    return find_scaled_weights(n, T, memory, loss)


@compiled
def _find_gaps(T, logits, scores, memory):
    """Fill ``gaps`` <= 0 and ``below``, relative to the leader, and the exponents of the weights.

    Returns what was taken out of the exponents where ``below`` is not zero: the smallest gap, if
    that is large, else 0.
    """
    n, Tp = logits.shape
    gaps, below, arguments = memory.gaps, memory.below, memory.arguments
    nearest = -np.inf
    for i in range(n):
        leader = 0
        for t in range(1, T):
            if logits[i, t] > logits[i, leader]:
                leader = t
        memory.leaders[i] = leader
        top, best = logits[i, leader], scores[i, leader]
        for t in range(T):
            gaps[i, t] = logits[i, t] - top
            below[i, t] = best - scores[i, t]
            if below[i, t] != 0.0 and gaps[i, t] > nearest:
                nearest = gaps[i, t]
    shift = nearest if -np.inf < nearest < DEEP else 0.0
    for i in range(n):
        for t in range(T):
            arguments[i, t] = gaps[i, t] - shift if below[i, t] != 0.0 else gaps[i, t]
        for t in range(T, Tp):
            arguments[i, t] = _GONE
    return shift


@compiled
def find_scaled_weights(n, T, memory, loss):
    """Fill c where weights under- or overflow: the largest one is taken out of all.

    Needs ``gaps``, ``below``, ``s``, ``margins`` and ``totals``; returns the log-scale. Logits that
    are not finite make all of c nan.
    """
    gaps, below, s, c, arguments = memory.gaps, memory.below, memory.s, memory.c, memory.arguments
    scale = -np.inf
    for i in range(n):
        slope = _log_slope(memory.margins[i], loss)
        memory.log_slopes[i] = slope
        for t in range(T):
            if below[i, t] != 0:
                size = slope + gaps[i, t]
                if not size < np.inf:
                    c[:] = np.nan
                    return 0.0
                scale = max(scale, size)
    if scale == -np.inf:
        c[:] = 0.0
        return 0.0
    for i in range(n):
        for t in range(arguments.shape[1]):
            arguments[i, t] = _GONE
            if t < T and below[i, t] != 0:
                arguments[i, t] = memory.log_slopes[i] + gaps[i, t] - scale
    exponentials(arguments.reshape(-1), memory.weights.reshape(-1))
    for i in range(n):
        weighted = 0.0
        for t in range(T):
            c[i, t] = memory.weights[i, t] * below[i, t] / memory.totals[i]
            weighted += c[i, t]
        for t in range(T):
            c[i, t] = (c[i, t] - s[i, t] * weighted) / n
    return scale


@compiled
def _find_slopes(memory, loss):
    """-loss'(margin)."""
    margins, exponents, slopes = memory.margins, memory.exponents, memory.slopes
    if loss == LOGISTIC:
        for i in range(len(slopes)):
            exponents[i] = -abs(margins[i])
        exponentials(exponents, slopes)
        for i in range(len(slopes)):
            slopes[i] = (slopes[i] if margins[i] > 0.0 else 1.0) / (1.0 + slopes[i])
    elif loss == EXPONENTIAL:
        for i in range(len(slopes)):
            exponents[i] = -margins[i]
        exponentials(exponents, slopes)
    else:
        slopes[:] = 1.0


@compiled
def _log_slope(m, loss):
    if loss == LOGISTIC:
        return -max(m, 0.0) - math.log1p(math.exp(-abs(m)))
    return -m if loss == EXPONENTIAL else 0.0


@compiled
def pull_back(data, memory, Gt):
    """Fill H, and the transpose of G, from c."""
    n, T, dp = data.X.shape
    H, c = memory.H.ctypes.data, memory.c
    weigh_rows(c.ctypes.data, c.shape[1], 1, data.X.ctypes.data, T * dp, dp, H, n, T)
    weigh_rows(data.z.ctypes.data, 1, dp, H, 0, dp, Gt.ctypes.data, Gt.shape[0], n)


@compiled
def pull_back_transposed(data, memory, G):
    """Fill G itself, (d, dp), from H."""
    n, dp = data.z.shape
    z = data.z.ctypes.data
    weigh_rows(memory.H.ctypes.data, 1, dp, z, 0, dp, G.ctypes.data, G.shape[0], n)


@compiled
def find_scores(v, data):
    """Write the scores under the head v, (dp,)."""
    n, d, Tp = data.Xt.shape
    scores = data.scores
    weigh_rows(v.ctypes.data, 0, 1, data.Xt.ctypes.data, d * Tp, Tp, scores.ctypes.data, n, d)
    for i in range(n):
        for t in range(Tp):
            scores[i, t] *= data.labels[i]


@compiled
def find_head_gradient(data, memory, loss, gv):
    """Fill ``dL / dv = (1/n) sum_i loss'(m_i) y_i X_i' s_i`` times ``exp(-log_scale)``.

    Returns the log-scale. Y and the log-slopes are overwritten.
    """
    n, T, dp = data.X.shape
    Y, s, coefficients = memory.Y.ctypes.data, memory.s, memory.log_slopes
    weigh_rows(s.ctypes.data, s.shape[1], 1, data.X.ctypes.data, T * dp, dp, Y, n, T)
    scale = -np.inf
    for i in range(n):
        coefficients[i] = _log_slope(memory.margins[i], loss)
        scale = max(scale, coefficients[i])
    for i in range(n):
        coefficients[i] = -data.labels[i] * math.exp(coefficients[i] - scale) / n
    weigh_rows(coefficients.ctypes.data, 0, 1, Y, 0, dp, gv.ctypes.data, 1, n)
    return scale


@compiled
def find_loss_gap(data, memory, loss, log_scale):
    """``(L - floor) exp(-log_scale)``, after :func:`find_weights` gave the log-scale."""
    n, T, _ = data.X.shape
    mean = 0.0
    for i in range(n):
        best = data.scores[i, 0]
        for t in range(1, T):
            best = max(best, data.scores[i, t])
        drop = 0.0
        for t in range(T):
            drop += memory.s[i, t] * (best - data.scores[i, t])
        if log_scale == 0.0:
            mean += _rise(best, drop, loss) / n
            continue
        if drop > _TINY:
            mean += math.exp(_log_rise(best, drop, loss) - log_scale) / n
            continue
        slope = _log_slope(best, loss) - log_scale
        drop = 0.0
        for t in range(T):
            if best != data.scores[i, t]:
                drop += math.exp(slope + memory.gaps[i, t]) * (best - data.scores[i, t])
        mean += drop / memory.totals[i] / n
    return mean


@compiled
def _rise(m, drop, loss):
    """loss(m - drop) - loss(m)."""
    if loss == LOGISTIC:
        if drop <= 1.0:
            return math.log1p(math.expm1(drop) / (1.0 + math.exp(m)))
        return _softplus(_log_expm1(drop) + _log_slope(m, loss))
    if loss == EXPONENTIAL:
        return math.exp(-m) * math.expm1(drop) if drop <= 1.0 else math.exp(_log_expm1(drop) - m)
    return drop


@compiled
def _log_rise(m, drop, loss):
    """The same in logarithms, for drop > 0."""
    if loss == _CORRELATION:
        return math.log(drop)
    x = _log_expm1(drop) + _log_slope(m, loss)
    return math.log(_softplus(x)) if loss == LOGISTIC and x > -40.0 else x


@compiled
def _log_expm1(x):
    """log(e^x - 1)."""
    return math.log(math.expm1(x)) if x <= 1.0 else x + math.log1p(-math.exp(-x))


@compiled
def _softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
