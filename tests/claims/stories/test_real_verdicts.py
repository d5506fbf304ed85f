"""Claims on real data: records with the published numbers hold, and spoiled ones do not."""

import copy

import numpy as np
import pytest

from mirrormargin.claims.claim import decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import CLAIMS, STORIES
from mirrormargin.claims.stories import fitted

REAL = [claim for claim in CLAIMS if claim.paper in "AB" and not STORIES[claim.experiment].run]
BY_ID = {claim.id: claim for claim in CLAIMS}


def judge(claim, evidence):
    return decide(claim.examine(evidence).checks)


def swap(name, i, j, axis):
    def spoil(arrays):
        order = np.arange(arrays[name].shape[axis])
        order[[i, j]] = order[[j, i]]
        arrays[name] = np.take(arrays[name], order, axis=axis)

    return spoil


# What records of real trainings hold, with the published numbers in them.
ACCURACY = np.array(
    [[83.47, 83.36, 83.65], [81.66, 81.05, 82.23], [82.57, 82.40, 81.97]]
)[:, :, None] + np.array([-0.1, 0.0, 0.1])  # fmt: skip
CURVES = {
    "optimizer": np.array(["SGD", "SNGD", "Adam"]),
    "step": np.arange(1, 101),
    "loss": np.exp(-np.array([0.01, 0.03, 0.05]))[:, None, None] ** np.arange(1, 101)
    * np.array([1.0, 1.01, 1.02])[None, :, None],
    "accuracy": np.full((3, 3), 80.0),
}
# Those that are judged where the training set is fitted, and those that were trained in one pass.
FITTING = [story.name.removeprefix("fitted-") for story in fitted.STORIES]
CURVED = [name for name in ("mnist", "mnli", "civil", "cifar10") if name not in FITTING]
FITTED = {
    "optimizer": np.array(["SGD", "SNGD"]),
    "is_at_edge": np.array([False, False]),
    "steps": np.array([[200, 600, 1200, 1800], [120, 360, 720, 1080]])[:, None]
    + np.arange(3)[:, None],
    "num_epochs": np.full((2, 3), 40),
    "steps_per_epoch": np.array(50),
    "loss": np.full((2, 3, 5), 0.001),
    "entropy": np.linspace(1.0, 0.7, 6)[:, None] * np.array([[1.0], [0.99], [0.98]])[:, None]
    * np.ones((2, 1, 1, 2)),
    "largest": np.linspace(0.1, 0.4, 6)[:, None] * np.array([[1.0], [0.99], [0.98]])[:, None]
    * np.ones((2, 1, 1, 2)),
}  # fmt: skip
RECORDS = {
    "imdb": {
        "p": np.array([1.1, 2.0, 3.0]),
        "layers": np.array([3, 4, 6]),
        "best_test": ACCURACY,
        "selected_test": ACCURACY - 0.5,
        "epochs": np.array([[72, 87, 65], [80, 88, 54], [162, 135, 132]])[:, :, None]
        + np.arange(3),
        "train": np.full((3, 3, 3), 99.6),
    },
    "imdb-weights": {
        "p": np.array([1.1, 2.0]),
        "above": np.array([[18206, 13964, 7643], [27224, 14654, 10127]]),
        "largest": np.array([[0.70, 0.30, 1.16], [0.26, 0.17, 0.29]]),
    },
    "token-selection": {
        "optimizer": np.array(["MirrorDescent p=1.1", "MirrorDescent p=2"]),
        "kind": np.full((2, 3, 5), 0.2),
        "score": np.array([[[0.4387]], [[0.3122]]]) + np.linspace(-0.01, 0.01, 15).reshape(3, 5),
        "untrained": np.full(3, 0.5),
    },
    "cifar10-vit": {
        "optimizer": np.array(["Adam", "MD p=1.1"]),
        "train": np.full((2, 3), 99.0),
        "test": np.array([[81.5], [81.0]]) + np.array([-0.1, 0.0, 0.1]),
        "near_zero": np.array([[104e3, 107e3, 110e3], [236e3, 240e3, 250e3]]),
        "largest": np.ones((2, 3)),
    },
    **dict.fromkeys(CURVED, CURVES),
    **{f"fitted-{name}": FITTED for name in FITTING},
}
SPOILED = {
    "A.tab.imdb": swap("selected_test", 0, 1, axis=0),
    "A.tab.imdb-epochs": swap("epochs", 0, 2, axis=0),
    "A.fig.imdb-weights": swap("above", 0, 1, axis=0),
    "A.tab.attention": swap("score", 0, 1, axis=0),
    "A.fig.vit": lambda arrays: arrays["test"].__setitem__(1, 70.0),
    "A.fig.vit-weights": swap("near_zero", 0, 1, axis=0),
    **{f"B.fig.{name}": swap("loss", 0, 1, axis=0) for name in CURVED},
    **{f"B.fig.{name}": swap("steps", 0, 1, axis=0) for name in FITTING},
}  # fmt: skip


AS_PUBLISHED = {"configurations": ["imdb/paper-3"]}


@pytest.mark.parametrize("claim", REAL, ids=lambda claim: claim.id)
def test_a_record_with_the_published_numbers_reproduces_it_and_a_spoiled_one_does_not(claim):
    arrays = copy.deepcopy(RECORDS[claim.experiment])
    assert judge(claim, Evidence(claim.experiment, AS_PUBLISHED, arrays))[0] == "reproduced"
    SPOILED[claim.id](arrays)
    assert judge(claim, Evidence(claim.experiment, AS_PUBLISHED, arrays))[0] == "not reproduced"


@pytest.mark.parametrize(
    "name",
    ["A.tab.imdb", "A.fig.imdb-weights", "A.tab.attention", "A.fig.vit", "A.fig.vit-weights"],
)
def test_smaller_models_are_never_those_that_were_published(name):
    claim = BY_ID[name]
    arrays, settings = RECORDS[claim.experiment], {"configurations": ["imdb/tiny"]}
    assert judge(claim, Evidence(claim.experiment, settings, arrays))[0] == "reproduced differently"


@pytest.mark.parametrize(("row", "verdict"), [(2, "reproduced differently"), (0, "not reproduced")])
def test_trainings_that_did_not_get_there_are_compared_by_how_far_they_got(row, verdict):
    claim = BY_ID["A.tab.imdb-epochs"]
    arrays = copy.deepcopy(RECORDS["imdb"])
    arrays["train"][row] = 98.0
    assert judge(claim, Evidence("imdb", AS_PUBLISHED, arrays))[0] == verdict


def test_two_curves_of_the_same_noise_are_no_faster_than_each_other():
    claim = BY_ID["B.fig.mnli"]
    noise = 0.05 * np.random.default_rng(0).standard_normal((3, 5, 200))
    loss = np.exp(-np.arange(200) / 100) + noise
    arrays = {**CURVES, "step": np.arange(200), "loss": loss}
    assert judge(claim, Evidence("mnli", AS_PUBLISHED, arrays))[0] == "not reproduced"


def judge_fitting(**changes):
    arrays = copy.deepcopy(FITTED) | changes
    return judge(BY_ID["B.fig.mnist"], Evidence("fitted-mnist", AS_PUBLISHED, arrays))


def test_the_lowest_loss_that_sgd_reaches_decides_who_fits_faster():
    steps = FITTED["steps"].copy()
    steps[1, :, 0] = 500  # slower at first
    verdict, note = judge_fitting(steps=steps)
    assert verdict == "reproduced differently"
    assert "until the training loss is 0.5" in note
    steps[:, :, 3] = -1  # neither gets to 0.001
    assert judge_fitting(steps=steps)[0] == "reproduced differently"
    steps[1, :, 2] = -1  # SGD alone gets to 0.01
    verdict, note = judge_fitting(steps=steps)
    assert verdict == "not reproduced"
    assert "until the training loss is 0.01" in note


def test_one_that_gets_there_late_is_told_from_one_that_never_does():
    steps = FITTED["steps"].copy()
    steps[1, :, 3] = 3 * steps[0, :, 3]
    evidence = Evidence("fitted-mnist", AS_PUBLISHED, copy.deepcopy(FITTED) | {"steps": steps})
    assert "300% to 0.001" in BY_ID["B.fig.mnist"].examine(evidence).measured
    steps[1, 0, 3] = -1
    never = len(steps[1]) - 1
    assert f"(there in {never} of {never + 1}) to 0.001" in (
        BY_ID["B.fig.mnist"].examine(evidence).measured
    )


def test_more_seeds_of_two_optimizers_decide_between_them():
    steps = np.array([[200, 600, 1200, 1800], [200, 600, 1200, 1700]])[:, None]
    steps = steps + np.arange(12)[:, None]
    paired = {"paired_steps": steps, "paired_taken": np.full((2, 12), 2000)}
    assert judge_fitting(**paired)[0] == "reproduced differently"
    swapped = paired | {"paired_steps": steps[::-1]}
    assert judge_fitting(**swapped)[0] == "not reproduced"


def test_where_sgd_reaches_no_level_the_last_loss_decides():
    steps, loss = FITTED["steps"].copy(), FITTED["loss"].copy()
    steps[0] = -1
    loss[0] = 0.7
    assert judge_fitting(steps=steps, loss=loss)[0] == "reproduced"
    assert judge_fitting(steps=steps, loss=loss[::-1])[0] == "not reproduced"


def test_maps_sparsify_if_entropy_falls_and_the_largest_weight_rises():
    arrays = copy.deepcopy(FITTED)
    claim = BY_ID["M.maps.mnist"]
    assert judge(claim, Evidence("fitted-mnist", AS_PUBLISHED, arrays))[0] == "reproduced"
    for key in ("entropy", "largest"):
        spoiled = copy.deepcopy(arrays)
        swap(key, 0, 5, axis=2)(spoiled)
        verdict = judge(claim, Evidence("fitted-mnist", AS_PUBLISHED, spoiled))[0]
        assert verdict == "not reproduced"


def test_a_rate_at_the_edge_of_its_grid_is_told():
    arrays = FITTED | {"is_at_edge": np.array([True, False])}
    finding = BY_ID["B.fig.mnist"].examine(Evidence("fitted-mnist", AS_PUBLISHED, arrays))
    assert "that of SGD is at the edge" in finding.remark


@pytest.mark.parametrize(("order", "verdict"), [([0, 1], "reproduced"), ([1, 0], "not reproduced")])
def test_the_adams_are_compared_seed_by_seed_too(order, verdict):
    arrays = RECORDS["token-selection"] | {"optimizer": np.array(["MirrorAdam p=1.05", "AdamW"])}
    arrays["score"] = arrays["score"][order]
    claim = BY_ID["M.attention.imdb"]
    assert judge(claim, Evidence(claim.experiment, AS_PUBLISHED, arrays))[0] == verdict


@pytest.mark.parametrize(
    ("less", "verdict"),
    [
        ((0.1, -0.1, 0.05), "undecided"),
        ((0.1, 0.11, -0.02), "undecided"),
        ((0.02, 0.0, -0.02), "not reproduced"),
    ],
)
def test_an_interval_that_excludes_a_worthwhile_difference_decides(less, verdict):
    arrays = copy.deepcopy(RECORDS["token-selection"])
    arrays["score"] = (
        np.full((2, 3, 5), 0.4) - np.array([[[0.0]], [[1.0]]]) * np.array(less)[:, None]
    )
    evidence = Evidence("token-selection", AS_PUBLISHED, arrays)
    assert judge(BY_ID["A.tab.attention"], evidence)[0] == verdict


def test_the_finding_tells_where_attention_falls():
    kind = np.tile([0.1, 0.4, 0.0, 0.2, 0.3], (2, 3, 1))
    arrays = RECORDS["token-selection"] | {"kind": kind}
    finding = BY_ID["A.tab.attention"].examine(Evidence("token-selection", AS_PUBLISHED, arrays))
    assert "other words 40%, [SEP] 30%, [CLS] 20%" in finding.remark


def test_accuracies_are_compared_only_where_both_have_converged():
    arrays = copy.deepcopy(RECORDS["cifar10-vit"])
    arrays["train"][1, 0] = 80.0
    evidence = Evidence("cifar10-vit", AS_PUBLISHED, arrays)
    assert judge(BY_ID["A.fig.vit"], evidence)[0] == "undecided"


def test_other_accuracies_of_the_same_order_are_reproduced_differently():
    claim = BY_ID["A.tab.imdb"]
    arrays = copy.deepcopy(RECORDS["imdb"]) | {"best_test": ACCURACY - 5}
    assert judge(claim, Evidence("imdb", AS_PUBLISHED, arrays))[0] == "reproduced differently"
