"""The claims of the four papers that came before: of prompts, of matrices, of linear models."""

from __future__ import annotations

from mirrormargin.claims import linear_models, prompt_attention, svm_transformers
from mirrormargin.claims.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (
    *prompt_attention.CLAIMS,
    *svm_transformers.CLAIMS,
    *linear_models.CLAIMS,
)
