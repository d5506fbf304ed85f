"""Paper B: "Implicit Bias and Fast Convergence Rates for Self-attention".

Vasudeva, Deora and Thrampoulidis, arXiv:2402.05738.
"""

from mirrormargin.claims.paper_b import fixed_head, joint, real_data

__all__ = ["CLAIMS"]

CLAIMS = (*fixed_head.CLAIMS, *joint.CLAIMS, *real_data.CLAIMS)
