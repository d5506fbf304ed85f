"""All claims, and how to name some of them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from mirrormargin.claims import own, paper_a, paper_b, predecessors
from mirrormargin.claims.claim import Claim
from mirrormargin.errors import ClaimError

__all__ = ["CLAIMS", "PAPERS", "find_claims"]

CLAIMS: tuple[Claim, ...] = (
    *paper_a.CLAIMS,
    *paper_b.CLAIMS,
    *own.CLAIMS,
    *predecessors.CLAIMS,
)

PAPERS = {
    "A": "Optimizing Attention with Mirror Descent: Generalized Max-Margin Token Selection"
    " (Julistiono, Tarzanagh, Azizan), arXiv:2410.14581",
    "B": "Implicit Bias and Fast Convergence Rates for Self-attention"
    " (Vasudeva, Deora, Thrampoulidis), arXiv:2402.05738",
    "M": "mirrormargin's own",
    "C1": "Max-Margin Token Selection in Attention Mechanism"
    " (Tarzanagh, Li, Zhang, Oymak), arXiv:2306.13596",
    "C2": "Transformers as Support Vector Machines"
    " (Tarzanagh, Li, Thrampoulidis, Oymak), arXiv:2308.16898",
    "C3": "Mirror Descent Maximizes Generalized Margin and Can Be Implemented Efficiently"
    " (Sun, Ahn, Thrampoulidis, Azizan), arXiv:2205.12808",
    "C4": "A Unified Approach to Controlling Implicit Regularization via Mirror Descent"
    " (Sun, Gatmiry, Ahn, Azizan), arXiv:2306.13853",
}


def find_claims(names: Sequence[str]) -> list[Claim]:
    """The claims of the given names, in the order of the registry.

    Args:
        names: Each "all", a paper such as "A", the beginning of an id such as "A.thm", or an id.

    Raises:
        ClaimError: (a ValueError) If a name matches nothing.

    Example:
        >>> [claim.id for claim in find_claims(["A.thm.rate", "A.alg"])]
        ['A.alg.step', 'A.alg.gd', 'A.thm.rate']
    """
    for name in names:
        if not any(_matches(claim, name) for claim in CLAIMS):
            known = [*PAPERS, *(claim.id for claim in CLAIMS)]
            near = [one for one in known if one.lower() == name.lower()]
            near = near or get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else "see mirrormargin reproduce"
            raise ClaimError(f"there is no claim {name!r}: {hint}")
    return [claim for claim in CLAIMS if any(_matches(claim, name) for name in names)]


def _matches(claim: Claim, name: str) -> bool:
    return name in ("all", claim.id) or claim.id.startswith(f"{name}.")
