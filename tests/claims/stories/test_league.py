"""The league of ways to sparse weights: what is gathered, who is ahead, what is claimed."""

import numpy as np
import pytest
from training_arrays import make_league

from mirrormargin.claims.campaign.league import LEAGUE, SHARES, name_way
from mirrormargin.claims.claim import decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.league import (
    choose_ours,
    collect_league,
    compare,
    judge,
    make_story,
)
from mirrormargin.training.summary import SHARES as FRONTIER

METHODS = LEAGUE["mnist/small"]
STORY = make_story("mnist", "MNIST", METHODS)
(CLAIM,) = STORY.claims


def examine(arrays):
    return CLAIM.examine(Evidence(CLAIM.experiment, {}, arrays))


def find_verdict(arrays):
    return decide(examine(arrays).checks)[0]


def make_record(method, setting, seed, validation, test, unpruned=97.0):
    config = method.grid[setting]
    frontier = {"blocks": [test] * len(FRONTIER)}
    return {
        "key": f"{method.folder}/{setting}-seed{seed}",
        "config": config.as_dict(),
        "validation": {"selected": 0.0, "frontier": {"blocks": [validation] * len(FRONTIER)}},
        "test": {"frontier": frontier, "unpruned": unpruned},
    }


def test_scores_are_those_of_the_share_that_was_trained_for():
    finals = []
    for k, method in enumerate(METHODS):
        setting = next(iter(method.grid))
        seeds = range(5 if name_way(method) == "MirrorAdam" else 3)
        finals.append([make_record(method, setting, s, 90.0 + k, 80.0, 50.0 + k) for s in seeds])
    arrays = collect_league(METHODS, finals)
    ways = arrays["way"].tolist()
    assert ways[0] == "AdamW"
    assert len(ways) == 6
    assert arrays["score"].shape == (6, 3, 5)
    assert (arrays["score"][0, :, :3] == 80.0).all()  # pruned in one shot: on the curve
    assert np.isnan(arrays["score"][0, :, 3:]).all()
    assert np.array_equal(arrays["dense"], [50.0] * 3)
    for k, method in enumerate(METHODS):
        way, share = ways.index(name_way(method)), method.removed[0]
        if way:
            found = arrays["score"][way, SHARES.index(share)]
            assert (found[np.isfinite(found)] == 50.0 + k).all()
            assert np.isfinite(found).sum() == (5 if name_way(method) == "MirrorAdam" else 3)
    assert not arrays["is_loss"]


def test_ours_is_the_one_that_validation_data_prefers():
    arrays = make_league(40)
    ours = arrays["way"].tolist().index("MirrorAdam")
    assert choose_ours(Evidence("league", {}, arrays)) == ours
    arrays["validation"][-1] = 99.0
    assert choose_ours(Evidence("league", {}, arrays)) == len(arrays["way"]) - 1


def test_ways_are_compared_seed_by_seed_and_a_smaller_loss_is_better():
    arrays = make_league(40)
    evidence = Evidence("league", {}, arrays)
    difference = compare(evidence, 4, 0, 1)
    assert np.allclose(difference, arrays["score"][4, 1] - arrays["score"][0, 1])
    arrays["is_loss"] = np.array(True)
    assert np.allclose(compare(evidence, 4, 0, 1), -difference)
    arrays["score"][0, 1, -1] = np.nan
    assert len(compare(evidence, 4, 0, 1)) == len(difference) - 1


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        ([0.5, 0.6, 0.55], "ahead"),
        ([-0.5, -0.6, -0.55], "behind"),
        ([0.5, -0.6, 0.1], "level"),
        ([5.0], "level"),
    ],
)
def test_ahead_is_an_interval_above_zero(difference, verdict):
    assert judge(np.array(difference)) == verdict


def test_the_claim_falls_if_one_other_way_is_ahead_at_one_share():
    assert find_verdict(make_league(40)) == "reproduced"
    for share in range(3):
        arrays = make_league(40)
        arrays["score"][2, share] += 5.0
        assert find_verdict(arrays) == "not reproduced"


def test_the_claim_falls_if_a_point_is_lost_at_95_percent():
    arrays = make_league(40)
    arrays["dense"] += 2.0
    assert find_verdict(arrays) == "not reproduced"


def test_the_finding_says_whom_ours_is_ahead_of():
    checks = {check.name: check for check in examine(make_league(40)).checks}
    assert checks["MirrorAdam at 99% zeros"].value == "ahead of 4, behind 0 of 4"


def test_the_table_says_how_ours_stands_against_each():
    figure = STORY.draw[0](Evidence(CLAIM.experiment, {}, make_league(40)))
    rows = {row[0]: row for row in figure.table.rows}
    assert "(ahead)" in rows["gradual pruning"][3]
    assert "(" not in rows["MirrorAdam"][1]
    assert figure.table.columns == ("way", "95% zeros", "98% zeros", "99% zeros", "setting")
