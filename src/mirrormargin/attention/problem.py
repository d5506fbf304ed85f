r"""The training problem of one attention layer with a fixed head.

Sequence i holds tokens ``X_i`` (T, d), a query ``z_i`` (d,) and a label ``y_i`` in {-1, +1}. The
head v (d,) reads the token average that attention makes; only the key-query matrix W is trained:

    s_i     = softmax(X_i W z_i)              attention map
    gamma_i = y_i X_i v                       scores of the tokens
    m_i     = <gamma_i, s_i>                  margin
    L(W)    = (1/n) sum_i loss(m_i)
    grad L  = (1/n) sum_i loss'(m_i) X_i' c_i z_i',    c_it = s_it (gamma_it - m_i).

Training drives s_i to one token, where ``gamma_it - m_i`` is a difference of nearly equal numbers
and everything underflows in the end; :mod:`mirrormargin.attention.logits` says how to avoid both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormargin.arguments import check_choice, check_finite, check_kind, read_array
from mirrormargin.attention.logits import attend, find_log_loss_gap, find_logit_gradient
from mirrormargin.attention.losses import LOSSES, LossName, MarginLoss
from mirrormargin.errors import ProblemError

__all__ = [
    "AttentionProblem",
    "check_problem",
    "read_labels",
    "read_problems",
    "read_queries",
    "read_tokens",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class AttentionProblem:
    """Tokens, queries, labels and head of one attention layer, checked and read-only.

    Arrays are copied to float64; torch tensors are detached and brought to the CPU.

    Args:
        tokens: X, shape (num_sequences, num_tokens, dim), at least two tokens.
        queries: z, shape (num_sequences, dim).
        labels: y, shape (num_sequences,), each +1 or -1.
        head: v, shape (dim,), not all zero.
        loss: Name of the loss, a key of :data:`LOSSES`.

    Raises:
        ProblemError: (a ValueError) If an array has a wrong shape or holds a wrong value.

    Example:
        >>> problem = AttentionProblem([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], [0.0, 2.0])
        >>> problem.optimal_tokens
        array([1])
        >>> problem.gradient([[0.0, 0.0], [0.0, 0.0]]).round(3)
        array([[ 0.134,  0.   ],
               [-0.134,  0.   ]])
    """

    tokens: Array
    queries: Array
    labels: Array
    head: Array
    loss_name: LossName

    def __init__(
        self,
        tokens: ArrayLike | Any,
        queries: ArrayLike | Any,
        labels: ArrayLike | Any,
        head: ArrayLike | Any,
        loss: LossName = "logistic",
    ) -> None:
        X = read_tokens(tokens)
        n, _, d = X.shape
        z = read_queries(queries, n, d)
        y = read_labels(labels, n)
        v = read_array("head", head, (d,), "one vector of the tokens' width", finite=True)
        if not v.any():
            raise ProblemError(
                "head is all zeros, so that all tokens score the same: give a head with a nonzero"
                " entry"
            )
        check_choice("loss", loss, LOSSES)
        fields = {"tokens": X, "queries": z, "labels": y, "head": v, "loss_name": loss}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for array in (X, z, y, v):
            array.flags.writeable = False

    def __reduce__(self):
        # By the constructor: NumPy forgets the read-only flag when it copies or unpickles.
        return type(self), (self.tokens, self.queries, self.labels, self.head, self.loss_name)

    def __repr__(self) -> str:
        return (
            f"AttentionProblem(num_sequences={self.num_sequences}, num_tokens={self.num_tokens},"
            f" dim={self.dim}, loss={self.loss_name!r})"
        )

    @property
    def num_sequences(self) -> int:
        """n."""
        return self.tokens.shape[0]

    @property
    def num_tokens(self) -> int:
        """T, the same in each sequence."""
        return self.tokens.shape[1]

    @property
    def dim(self) -> int:
        """d, the width of a token."""
        return self.tokens.shape[2]

    @cached_property
    def scores(self) -> Array:
        """gamma, shape (n, T): what each token would give as the margin of its sequence."""
        scores = self.labels[:, None] * (self.tokens @ self.head)
        scores.flags.writeable = False
        return scores

    @cached_property
    def optimal_tokens(self) -> NDArray[np.intp]:
        """Index of the highest score of each sequence, shape (n,); the first one on ties."""
        optimal = self.scores.argmax(axis=1)
        optimal.flags.writeable = False
        return optimal

    @property
    def loss_floor(self) -> float:
        """The loss when all attention is on the optimal tokens: no W goes below it."""
        return float(self.margin_loss.value(self.scores.max(axis=1)).mean())

    @property
    def margin_loss(self) -> MarginLoss:
        """The loss as a function of the margin."""
        return LOSSES[self.loss_name]

    def attention(self, W: ArrayLike | Any) -> Array:
        """Attention maps s, shape (n, T); each row sums to one."""
        return attend(self.logits(W))[0]

    def selected_tokens(self, W: ArrayLike | Any) -> NDArray[np.intp]:
        """Index of the most attended token of each sequence, shape (n,); the first on ties."""
        return self.logits(W).argmax(axis=1)

    def margins(self, W: ArrayLike | Any) -> Array:
        """m, shape (n,): label times output, positive where the sequence is classified right."""
        return (self.scores * self.attention(W)).sum(axis=1)

    def loss(self, W: ArrayLike | Any) -> float:
        """L(W), the mean loss of the margins."""
        return float(self.margin_loss.value(self.margins(W)).mean())

    def loss_gap(self, W: ArrayLike | Any) -> float:
        """L(W) minus its floor, with all digits even where the two round to the same number.

        Pinned by ``test_loss_gap_keeps_its_digits_where_the_difference_is_zero``.
        """
        best = self.scores.max(axis=1)
        drop = (self.attention(W) * (best[:, None] - self.scores)).sum(axis=1)
        return float(self.margin_loss.rise(best, drop).mean())

    def log_loss_gap(self, W: ArrayLike | Any) -> float:
        """``log(L(W) - floor)``, where the gap itself has underflowed long ago.

        -inf if the gap is exactly zero. Pinned by ``test_log_loss_gap_at_every_logit_gap``.
        """
        return float(find_log_loss_gap(self.logits(W), self.scores, self.margin_loss))

    def gradient(self, W: ArrayLike | Any) -> Array:
        """The gradient of L at W, shape (d, d).

        Accurate entry by entry until the attention off the selected tokens underflows; pinned by
        ``test_gradient_keeps_its_digits_under_saturated_attention``.
        """
        mantissa, log_scale = self.scaled_gradient(W)
        return mantissa * np.exp(log_scale)

    def scaled_gradient(self, W: ArrayLike | Any) -> tuple[Array, float]:
        """``(mantissa, log_scale)`` with ``gradient = mantissa * exp(log_scale)``.

        The mantissa, shape (d, d), has about the size of scores times tokens times queries at
        every W, so that the direction of the gradient is known however small it is.

        Example:
            >>> problem = AttentionProblem([[[1.0, 0], [0, 1.0]]], [[1.0, 0]], [1], [0, 2.0])
            >>> mantissa, log_scale = problem.scaled_gradient([[-1e6, 0], [0, 0]])
            >>> mantissa, round(log_scale, 3)
            (array([[ 2.,  0.],
                   [-2.,  0.]]), -1000002.127)
        """
        gradient = find_logit_gradient(self.logits(W), self.scores, self.margin_loss)
        return self.pull_back(gradient.mantissa), float(gradient.log_scale)

    def logits(self, W: ArrayLike | Any) -> Array:
        """``X_i W z_i``, shape (n, T)."""
        meaning = "a square matrix of the tokens' width"
        matrix = read_array("W", W, (self.dim, self.dim), meaning, finite=True)
        with np.errstate(over="ignore", invalid="ignore"):
            logits = (self.tokens @ (self.queries @ matrix.T)[:, :, None])[:, :, 0]
        if not np.isfinite(logits).all():
            raise ProblemError("W is so large that X W z overflows: scale W or the tokens down")
        return logits

    def pull_back(self, logit_gradient: Array) -> Array:
        """``sum_i X_i' g_i z_i'``, (d, d): a gradient by the logits, (n, T), as one by W."""
        return (logit_gradient[:, None, :] @ self.tokens)[:, 0, :].T @ self.queries


def read_tokens(tokens: Any) -> Array:
    """Tokens of shape (num_sequences, num_tokens, dim) with at least two tokens, finite."""
    X = read_array("tokens", tokens)
    if X.ndim != 3:
        raise ProblemError(
            f"tokens has shape {X.shape}: give shape (num_sequences, num_tokens, dim), one matrix"
            " of tokens for each sequence"
        )
    if X.size == 0:
        raise ProblemError(f"tokens has shape {X.shape} and is empty: give at least one entry")
    if X.shape[1] == 1:
        raise ProblemError(
            f"tokens has shape {X.shape}, one token in a sequence: attention chooses among"
            " tokens, so give at least 2"
        )
    check_finite("tokens", X)
    return X


def read_queries(queries: Any, n: int, d: int) -> Array:
    """Queries of shape (n, d), finite."""
    meaning = "one query of the tokens' width for each sequence"
    return read_array("queries", queries, (n, d), meaning, finite=True)


def read_labels(labels: Any, n: int) -> Array:
    """Labels of shape (n,), each +1 or -1."""
    y = read_array("labels", labels, (n,), "one label for each sequence", finite=True)
    wrong = np.flatnonzero(np.abs(y) != 1.0)
    if wrong.size:
        hint = "; 2 * y - 1 makes them of labels in {0, 1}" * bool(np.isin(y, (0.0, 1.0)).all())
        raise ProblemError(f"labels[{wrong[0]}] is {y[wrong[0]]:g}: give +1 or -1{hint}")
    return y


def check_problem(problem: Any) -> AttentionProblem:
    """One problem, for what takes no more than one.

    Raises:
        ProblemError: If it is something else, such as a list of problems.
    """
    advice = "one in a call" if isinstance(problem, (list, tuple)) else "made from your arrays"
    return check_kind("problem", problem, AttentionProblem, advice)


def read_problems(problems: Any, *, same_loss: bool = False) -> tuple[AttentionProblem, ...]:
    """One problem, or several of one shape, none with a query of zeros.

    Args:
        problems: A problem, or a sequence of them.
        same_loss: Whether all of them must have the same loss.

    Raises:
        ProblemError: Names the first problem that does not fit.
    """
    try:
        members = (problems,) if isinstance(problems, AttentionProblem) else tuple(problems)
    except Exception:  # objects may raise what they like
        raise ProblemError(
            f"problems is a {type(problems).__name__}: give an AttentionProblem, or a list of them"
        ) from None
    if not members:
        raise ProblemError("problems is empty: give at least one AttentionProblem")
    for i, problem in enumerate(members):
        if not isinstance(problem, AttentionProblem):
            raise ProblemError(
                f"problems[{i}] is a {type(problem).__name__}: give AttentionProblems"
            )
        if problem.tokens.shape != members[0].tokens.shape:
            raise ProblemError(
                f"problems[{i}] has tokens of shape {problem.tokens.shape}, problems[0] of shape"
                f" {members[0].tokens.shape}: give problems of one shape, and others in another"
                " call"
            )
        zero = np.flatnonzero(~problem.queries.any(axis=1))
        if zero.size:
            raise ProblemError(
                f"problems[{i}].queries[{zero[0]}] is all zeros, so that every W gives its tokens"
                " the same attention: remove the sequence"
            )
    if same_loss and len({problem.loss_name for problem in members}) > 1:
        raise ProblemError("problems have different losses: give those of each loss in a call")
    return members
