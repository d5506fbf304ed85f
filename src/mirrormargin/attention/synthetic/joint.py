r"""Problems in the plane whose head v is trained together with W.

Training is to end at the max-margin pair of a selection alpha,

    v_mm = argmin |v|_p   s.t.   y_i <x_{i,alpha}, v> >= 1,
    W_mm = argmin |W|_p   s.t.   (x_{i,alpha} - x_it)' W z_i >= 1,

with ``>= 0`` instead of ``>= 1`` in the second line for a sequence that is no support vector of
the first. A problem holds some head in any case; joint training ignores it and brings its own.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from mirrormargin.arguments import read_array
from mirrormargin.attention.losses import LossName
from mirrormargin.attention.problem import AttentionProblem

__all__ = ["joint_toy", "planar_joint"]


def joint_toy(*, loss: LossName = "logistic") -> AttentionProblem:
    """Two sequences of three tokens, labels +1 and -1; queries are the first tokens.

    From "Optimizing Attention with Mirror Descent", with the tokens of the authors' program. There
    W and v start at zero and take normalized steps of lr 0.1. Joint training selects the tokens
    [1, 0] at p = 1.75 and p = 2, but [0, 0] at p = 3. The head of this problem is (0, 1), whose
    optimal tokens are [1, 0].

    Args:
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If the loss is unknown.

    Example:
        >>> joint_toy().optimal_tokens
        array([1, 0])
    """
    tokens = [[[-2.7, 1.2], [1.4, 2.1], [1.3, -0.1]], [[0.4, -2.2], [-1.1, -0.4], [0.9, 0.1]]]
    queries = [X[0] for X in tokens]
    return AttentionProblem(tokens, queries, [1, -1], [0.0, 1.0], loss)


def planar_joint(
    third: ArrayLike | Any = (0.5, 1.0), *, loss: LossName = "logistic"
) -> AttentionProblem:
    """Three sequences of the origin and one other token, (1, 1), (1, -1) and ``third``.

    Labels are +1, -1 and +1, and all queries are (1, 0), so that only the first column of W is
    trained, the prompt of "Max-Margin Token Selection in Attention Mechanism", where this problem
    comes from. There the prompt starts at (0, -1), v at (-1, 0), both with normalized steps of lr
    0.1, and training selects the tokens other than the origin. For these at p = 2:

        third         v_mm      prompt
        (0.5, 1.0)    (0, 1)    (4/3, 1/3)
        (0.5, 1.5)    (0, 1)    (1, 0), relaxed in the third sequence; not (5/4, 1/4)

    since v_mm gives the third sequence a margin of exactly 1 in the first case and of 1.5 in the
    second, where it is no support vector. The head of this problem is (0, 1).

    Args:
        third: The second token of the third sequence, two numbers.
        loss: Name of the loss of the margin.

    Raises:
        ProblemError: (a ValueError) If ``third`` is not two finite numbers or the loss is unknown.

    Example:
        >>> planar_joint(third=(0.5, 1.5)).scores
        array([[ 0. ,  1. ],
               [-0. ,  1. ],
               [ 0. ,  1.5]])
    """
    other = read_array("third", third, (2,), "the two coordinates of a token", finite=True)
    tokens = [[[0.0, 0.0], x] for x in ([1.0, 1.0], [1.0, -1.0], other.tolist())]
    return AttentionProblem(tokens, [[1.0, 0.0]] * 3, [1, -1, 1], [0.0, 1.0], loss)
