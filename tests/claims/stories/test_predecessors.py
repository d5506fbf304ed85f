"""Claims of C1 to C4: what honest evidence says about them, and what spoilt evidence does."""

import numpy as np
import pytest

from mirrormargin.claims.claim import Provenance, decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import CLAIMS as ALL

CLAIMS = [claim for claim in ALL if claim.paper.startswith("C")]
BY_ID = {claim.id: claim for claim in CLAIMS}
DIFFERENTLY = {"C2.fig.rank", "C2.fig.multi-token"}
GOOD, DIFFERENT, BAD = "reproduced", "reproduced differently", "not reproduced"

# A record that somebody could store.
RECORDS = {
    "overhead": {"p": [1.5, 2.0], "ratio": [[1.1, 1.0, 1.2], [0.9, 1.0, 1.1]]},
}

# For each claim: what is done to which array, and the verdict that this must turn it to.
SPOILT = [
    ("C1.thm.path", "divergence", lambda a: a + 0.01, BAD),
    ("C1.thm.path", "selects_optimal", np.logical_not, BAD),
    ("C1.thm.gd-global", "optimal", lambda a: a - 0.1, BAD),
    ("C1.thm.gd-global", "flow_divergence", lambda a: a[:, ::-1], BAD),
    ("C1.thm.local", "stays", np.logical_not, BAD),
    ("C1.thm.local", "divergence", lambda a: a[:, ::-1], BAD),
    ("C1.thm.joint-path", "head_divergence", lambda a: a + 0.01, BAD),
    ("C1.thm.joint-path", "divergence", lambda a: a[:, ::-1], BAD),
    ("C1.thm.relaxed", "plain_divergence", lambda a: 0 * a, BAD),
    ("C1.thm.relaxed", "divergence", lambda a: a + 0.01, BAD),
    ("C1.thm.nonlinear-head", "divergence", lambda a: a[:, ::-1], BAD),
    ("C1.thm.nonlinear-head", "log_loss_gap", lambda a: a[:, ::-1], BAD),
    ("C1.thm.nonlinear-head", "mixing_gain", lambda a: a + 1, BAD),
    ("C1.fig.single", "optimal", np.ones_like, BAD),
    ("C1.fig.single", "optimal", np.zeros_like, BAD),
    ("C1.fig.single", "divergence", lambda a: a + 0.1, BAD),
    ("C1.fig.multi", "norm", lambda a: 1.2 * a, DIFFERENT),
    ("C1.fig.multi", "attention", lambda a: 0.9 * a, DIFFERENT),
    ("C1.fig.multi", "rule", lambda a: a[::-1], BAD),
    ("C1.fig.joint", "num_unsupported", lambda a: a[::-1], BAD),
    ("C1.fig.joint", "plain_divergence", lambda a: 0 * a, BAD),
    ("C1.fig.joint", "attention", lambda a: 0.9 * a, DIFFERENT),
    ("C1.fig.losses", "loss", lambda a: a[::-1], BAD),
    ("C1.fig.losses", "height", lambda a: -a, BAD),
    ("C2.thm.frobenius", "cosine", lambda a: a[..., ::-1], BAD),
    ("C2.thm.nuclear", "cosine", lambda a: a[..., ::-1], BAD),
    ("C2.thm.feasible", "drawn_separable", np.logical_not, BAD),
    ("C2.thm.feasible", "d", lambda a: a[::-1], BAD),
    ("C2.fig.local", "cosine", lambda a: a[:, :, ::-1], BAD),
    ("C2.fig.local", "attention", lambda a: a[:, ::-1], DIFFERENT),
    ("C2.fig.planar", "cosine", lambda a: a[..., ::-1], BAD),
    ("C2.fig.planar", "selection", lambda a: a + 1, BAD),
    ("C2.fig.rank", "rank", lambda a: a[:, ::-1], BAD),
    ("C2.fig.rank", "d", lambda a: a - 1, BAD),
    ("C2.thm.global", "optimal", lambda a: a - 0.1, BAD),
    ("C2.thm.global", "divergence", lambda a: 0 * a, BAD),
    ("C3.overhead", "ratio", lambda a: 5 * a, BAD),
    ("C2.fig.multi-token", "d", lambda a: a[::-1], BAD),
    ("C2.fig.multi-token", "cosine_eq", lambda a: a - 0.5, BAD),
    ("C2.fig.multi-token", "cosine_one", lambda a: a - 0.2, DIFFERENT),
    ("C3.thm.linear", "cross", lambda a: a[:, ::-1], BAD),
    ("C3.thm.linear", "margin", lambda a: 0.8 * a, BAD),
    ("C3.thm.rate", "divergence", lambda a: a**0.01, BAD),
    ("C3.parallel", "last_places", lambda a: a + 1000, BAD),
    ("C3.parallel", "moved", lambda a: 0 * a, BAD),
    ("C3.fig.weights", "p", lambda a: 1 / a, BAD),
    ("C3.fig.weights", "small", lambda a: -a, BAD),
    ("C4.thm.homogeneous", "divergence", lambda a: a + 0.01, BAD),
    ("C4.thm.homogeneous", "margin", lambda a: 0.9 * a, BAD),
    ("C4.thm.homogeneous", "cross", lambda a: 0 * a, BAD),
    ("C4.thm.normalized", "divergence", lambda a: a**0.01, BAD),
    ("C4.thm.normalized", "constant_divergence", lambda a: 1e-9 * a, BAD),
]


@pytest.fixture
def find_honest(find_evidence):
    """A function from a claim to evidence that is as it should be."""

    def find(claim):
        if claim.experiment in RECORDS:
            arrays = {name: np.array(value) for name, value in RECORDS[claim.experiment].items()}
            return Evidence(claim.experiment, {}, arrays)
        return find_evidence(claim.experiment)

    return find


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_honest_evidence_gives_the_expected_verdict(claim, find_honest):
    finding = claim.examine(find_honest(claim))
    verdict, note = decide(finding.checks)
    assert verdict == (DIFFERENT if claim.id in DIFFERENTLY else GOOD), note
    assert finding.measured


@pytest.mark.parametrize(("name", "array", "spoil", "verdict"), SPOILT)
def test_spoilt_evidence_turns_the_verdict(name, array, spoil, verdict, find_honest):
    evidence = find_honest(BY_ID[name])
    arrays = evidence.arrays | {array: spoil(evidence[array])}
    finding = BY_ID[name].examine(Evidence(evidence.experiment, evidence.settings, arrays))
    assert decide(finding.checks)[0] == verdict


def test_every_claim_has_evidence_that_spoils_it():
    assert {name for name, *_ in SPOILT} == set(BY_ID)


def test_ids_are_different_and_name_a_paper():
    assert len(BY_ID) == len(CLAIMS)
    assert {claim.paper for claim in CLAIMS} == {"C1", "C2", "C3", "C4"}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_numbers_are_checked_only_where_they_were_seen(claim, find_honest):
    kinds = {check.kind for check in claim.examine(find_honest(claim)).checks}
    assert "statement" in kinds
    assert claim.provenance is Provenance.SEEN or "number" not in kinds


def test_only_nuclear_ranks_differ_from_the_published_ones(find_evidence):
    checks = BY_ID["C2.fig.rank"].examine(find_evidence("rank")).checks
    broken = [check.name for check in checks if not check.holds]
    assert broken
    assert all(name.startswith("nuclear rank") for name in broken)
