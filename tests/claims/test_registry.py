"""All claims are there, each complete, and can be named."""

import re

import pytest

from mirrormargin.claims.registry import CLAIMS, PAPERS, STORIES, find_claims
from mirrormargin.errors import ClaimError

# Theorems, algorithms, tables and figures of both papers.
PUBLISHED = {
    "A.alg.step", "A.alg.gd", "A.thm.path", "A.thm.divergence", "A.thm.direction", "A.thm.local",
    "A.thm.rate", "A.thm.growth", "A.thm.normalized-growth", "A.thm.joint-path",
    "A.thm.joint-relaxed", "A.fig.directions", "A.fig.trajectory", "A.joint.gd",
    "A.joint.probabilities", "A.sparsity", "A.tab.imdb", "A.tab.imdb-epochs",
    "A.thm.local-path", "A.fig.imdb-weights", "A.tab.attention",
    "A.fig.vit", "A.fig.vit-weights", "B.thm.ngd-global", "B.thm.ngd-rate", "B.sparsification",
    "B.thm.loss", "B.thm.polyak", "B.thm.gd", "B.fig.fixed", "B.thm.joint-loss",
    "B.thm.joint-direction", "B.thm.joint-decoder", "B.thm.joint-attention", "B.fig.joint",
    "B.fig.mnli", "B.fig.civil", "B.fig.mnist", "B.fig.cifar10",
}  # fmt: skip


def test_every_claim_of_both_papers_is_registered():
    assert {claim.id for claim in CLAIMS if claim.paper in "AB"} == PUBLISHED


def test_ids_are_unique_and_belong_to_a_paper():
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert {claim.paper for claim in CLAIMS} == set(PAPERS)
    assert all(re.fullmatch(r"[A-CM]\d?(\.[a-z0-9-]+)+", name) for name in ids)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_says_what_where_and_how(claim):
    assert claim.experiment in STORIES
    assert claim.title
    assert claim.statement.endswith(".")
    assert claim.source


def test_every_story_has_a_claim():
    assert set(STORIES) == {claim.experiment for claim in CLAIMS}


def test_every_story_can_be_run_or_says_what_it_needs():
    for story in STORIES.values():
        assert (story.run is not None and "quick" in story.profiles) or story.needs


def test_names_are_ids_beginnings_papers_or_all():
    assert [claim.id for claim in find_claims(["A.thm.rate"])] == ["A.thm.rate"]
    assert {claim.paper for claim in find_claims(["B"])} == {"B"}
    assert all(claim.id.startswith("A.thm.") for claim in find_claims(["A.thm"]))
    assert find_claims(["all"]) == list(CLAIMS)


def test_a_claim_named_twice_comes_once():
    assert len(find_claims(["A.thm.rate", "A.thm", "A.thm.rate"])) == len(find_claims(["A.thm"]))


def test_half_a_word_is_no_beginning():
    with pytest.raises(ClaimError, match=r"there is no claim 'A\.th'.*A\.thm"):
        find_claims(["A.th"])


def test_an_unknown_name_gets_a_hint():
    with pytest.raises(ClaimError, match=r"did you mean A\.thm\.rate"):
        find_claims(["A.thm.rat"])
    with pytest.raises(ClaimError, match=r"did you mean A\?"):
        find_claims(["a"])
    with pytest.raises(ClaimError, match="see mirrormargin reproduce"):
        find_claims(["?"])
