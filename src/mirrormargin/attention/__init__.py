"""The lab: one attention layer whose key-query matrix is trained on labelled sequences."""

from mirrormargin.attention import synthetic
from mirrormargin.attention.problem import AttentionProblem

__all__ = ["AttentionProblem", "synthetic"]
