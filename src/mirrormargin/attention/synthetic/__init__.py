r"""Attention problems with a name: drawn from a seed, or small enough to draw by hand.

    unit_sphere     tokens, queries and head on the unit sphere, labels fair coins
    equal_scores    near-orthogonal tokens, one good one a sequence, the others alike
    signal_noise    one signal of two, which tells the label, among noise tokens
    joint_toy       two sequences in the plane, for training W and the head v
    planar_joint    three sequences in the plane, likewise
    planar_single   one sequence with a good, a fair and a third token; trains a prompt
    planar_multi    three sequences of one good and six other tokens; likewise

Each function returns the same :class:`~mirrormargin.AttentionProblem` whenever it gets the same
arguments, and neither reads nor changes global random state. :data:`GENERATORS` finds it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mirrormargin.attention.problem import AttentionProblem
from mirrormargin.attention.synthetic.gaussian import equal_scores, signal_noise
from mirrormargin.attention.synthetic.joint import joint_toy, planar_joint
from mirrormargin.attention.synthetic.prompt import planar_multi, planar_single
from mirrormargin.attention.synthetic.sphere import unit_sphere

__all__ = [
    "GENERATORS",
    "equal_scores",
    "joint_toy",
    "planar_joint",
    "planar_multi",
    "planar_single",
    "signal_noise",
    "unit_sphere",
]


def __dir__() -> list[str]:
    return sorted(__all__)


GENERATORS: Mapping[str, Callable[..., AttentionProblem]] = MappingProxyType(
    {
        "unit_sphere": unit_sphere,
        "equal_scores": equal_scores,
        "signal_noise": signal_noise,
        "joint_toy": joint_toy,
        "planar_joint": planar_joint,
        "planar_single": planar_single,
        "planar_multi": planar_multi,
    }
)
