"""All stories, all claims, and how to name some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mirrormargin.claims.claim import Claim
from mirrormargin.claims.stories import (
    cifar10_vit,
    cone_paths,
    cones,
    curves,
    digits,
    directions,
    factors,
    fitted,
    identities,
    imdb,
    imdb_optimizers,
    imdb_weights,
    joint,
    joint_paths,
    joint_prompts,
    joint_steps,
    league,
    linear_flow,
    linear_steps,
    multi_token,
    nonlinear_head,
    overhead,
    paths,
    planar_matrices,
    prompt_losses,
    prompts,
    pruning,
    rank,
    rates,
    shards,
    sparsity_of_w,
    step_rules,
    token_selection,
    trajectories,
    uniform_starts,
)
from mirrormargin.claims.story import Story
from mirrormargin.errors import ClaimError, suggest

__all__ = ["CLAIMS", "PAPERS", "STORIES", "find_claims"]

# In the order in which a page shows their figures.
_STORIES = (
    directions.STORY,
    trajectories.STORY,
    rates.STORY,
    cones.STORY,
    step_rules.STORY,
    paths.STORY,
    joint.STORY,
    joint_steps.STORY,
    joint_paths.STORY,
    sparsity_of_w.STORY,
    factors.STORY,
    prompts.STORY,
    joint_prompts.STORY,
    prompt_losses.STORY,
    planar_matrices.STORY,
    multi_token.STORY,
    rank.STORY,
    linear_flow.STORY,
    linear_steps.STORY,
    identities.STORY,
    nonlinear_head.STORY,
    uniform_starts.STORY,
    shards.STORY,
    imdb.STORY,
    imdb_optimizers.STORY,
    imdb_weights.STORY,
    *token_selection.STORIES,
    *pruning.STORIES,
    *league.STORIES,
    *fitted.STORIES,
    *curves.STORIES,
    cifar10_vit.STORY,
    digits.STORY,
    cone_paths.STORY,
    overhead.STORY,
)

STORIES: Mapping[str, Story] = MappingProxyType({story.name: story for story in _STORIES})

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

# Stories hold the claims of several papers, in the order of their figures. A page lists the claims
# in the order in which their paper states them; a claim that is not named here comes last.
_ORDER = [
    "A.alg.step", "A.alg.gd", "A.thm.path", "A.thm.local-path", "A.thm.divergence",
    "A.thm.direction", "A.thm.local", "A.thm.rate", "A.thm.growth", "A.thm.normalized-growth",
    "A.thm.joint-path", "A.thm.joint-relaxed", "A.fig.directions", "A.fig.trajectory",
    "A.joint.gd", "A.joint.probabilities", "A.sparsity", "A.tab.imdb", "A.tab.imdb-epochs",
    "A.fig.imdb-weights", "A.tab.attention", "A.fig.vit", "A.fig.vit-weights",
    "B.thm.ngd-global", "B.thm.ngd-rate", "B.sparsification", "B.thm.loss", "B.thm.polyak",
    "B.thm.gd", "B.fig.fixed", "B.thm.joint-loss", "B.thm.joint-direction",
    "B.thm.joint-decoder", "B.thm.joint-attention", "B.fig.joint", "B.fig.mnli", "B.fig.civil",
    "B.fig.mnist", "B.fig.cifar10", "M.maps.mnli", "M.maps.civil", "M.maps.mnist",
    "M.maps.cifar10",
    "M.accuracy.imdb", "M.attention.imdb", "M.pruning.imdb", "M.pruning.sst2", "M.pruning.mnist",
    "M.pruning.cifar10", "M.sparsest.imdb", "M.sparsest.sst2", "M.sparsest.mnist",
    "M.sparsest.cifar10", "M.pruning.plain", "M.speed.mnist", "M.speed.cifar10",
    "M.speed.civil", "M.pruning.digits", "M.league.mnist", "M.league.fashion", "M.league.cifar10",
    "M.league.shakespeare", "M.league.wikitext2", "M.league.sst2", "M.league.imdb",
    "C1.thm.path", "C1.thm.gd-global", "C1.thm.local", "C1.thm.joint-path", "C1.thm.relaxed",
    "C1.thm.nonlinear-head", "C1.fig.single", "C1.fig.multi", "C1.fig.joint", "C1.fig.losses",
    "C2.thm.frobenius", "C2.thm.nuclear", "C2.thm.global", "C2.thm.feasible", "C2.fig.local",
    "C2.fig.planar", "C2.fig.rank", "C2.fig.multi-token",
    "C3.thm.linear", "C3.thm.rate", "C3.parallel", "C3.fig.weights", "C3.overhead",
    "C4.thm.homogeneous", "C4.thm.normalized",
]  # fmt: skip


def _find_rank(claim: Claim) -> tuple[int, int]:
    rank = _ORDER.index(claim.id) if claim.id in _ORDER else len(_ORDER)
    return list(PAPERS).index(claim.paper), rank


CLAIMS: tuple[Claim, ...] = tuple(
    sorted(
        (claim for story in _STORIES for claim in story.claims),
        key=_find_rank,
    )
)


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
            hint = suggest(name, known, cutoff=0.4, otherwise="see mirrormargin reproduce")
            raise ClaimError(f"there is no claim {name!r}: {hint}")
    return [claim for claim in CLAIMS if any(_matches(claim, name) for name in names)]


def _matches(claim: Claim, name: str) -> bool:
    return name in ("all", claim.id) or claim.id.startswith(f"{name}.")
