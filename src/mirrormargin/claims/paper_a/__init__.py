"""Paper A: "Optimizing Attention with Mirror Descent: Generalized Max-Margin Token Selection".

Julistiono, Tarzanagh and Azizan, arXiv:2410.14581.
"""

from mirrormargin.claims.paper_a import figures, real_data, theorems

__all__ = ["CLAIMS"]

CLAIMS = (*theorems.CLAIMS, *figures.CLAIMS, *real_data.CLAIMS)
