"""Is it true? Every claim of the papers, what is run for it, and the verdict."""

from mirrormargin.claims.claim import Claim, Verdict
from mirrormargin.claims.registry import CLAIMS, PAPERS, find_claims
from mirrormargin.claims.reproduce import reproduce

__all__ = ["CLAIMS", "PAPERS", "Claim", "Verdict", "find_claims", "reproduce"]
