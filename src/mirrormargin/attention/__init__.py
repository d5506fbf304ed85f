"""What is trained in the lab? One attention layer, its key-query matrix, on labelled sequences."""

from mirrormargin.attention import synthetic
from mirrormargin.attention.problem import AttentionProblem

__all__ = ["AttentionProblem", "synthetic"]
