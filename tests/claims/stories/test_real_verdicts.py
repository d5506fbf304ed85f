"""Claims on real data: records with the published numbers hold, and spoiled ones do not."""

import copy

import numpy as np
import pytest

from mirrormargin.claims.claim import decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import CLAIMS, STORIES
from mirrormargin.claims.stories.pruning import BASELINES
from mirrormargin.training.pruning import find_needed

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
CURVED = ("mnli", "civil", "cifar10")
FITTED = {
    "optimizer": np.array(["SGD", "SNGD"]),
    "is_at_edge": np.array([False, False]),
    "steps": np.array([[200, 600, 1200, 1800], [120, 360, 720, 1080]])[:, None]
    + np.arange(3)[:, None],
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
        "p": np.array([1.1, 2.0]),
        "score": np.array([[[0.4387]], [[0.3122]]]) + np.linspace(-0.01, 0.01, 15).reshape(3, 5),
        "untrained": np.full(3, 0.5),
    },
    "cifar10-vit": {
        "optimizer": np.array(["Adam", "MD p=1.1"]),
        "epoch": np.array([100, 1000]),
        "accuracy": np.array([[79.0, 80.0], [78.0, 80.0]]),
        "test": np.array([81.5, 81.0]),
        "near_zero": np.array([[104e3, 107e3, 110e3], [236e3, 240e3, 250e3]]),
        "largest": np.ones((2, 3)),
    },
    **dict.fromkeys(CURVED, CURVES),
    "fitted-mnist": FITTED,
}
SPOILED = {
    "A.tab.imdb": swap("selected_test", 0, 1, axis=0),
    "A.tab.imdb-epochs": swap("epochs", 0, 2, axis=0),
    "A.fig.imdb-weights": swap("above", 0, 1, axis=0),
    "A.tab.attention": swap("score", 0, 1, axis=0),
    "A.fig.vit": lambda arrays: arrays["test"].__setitem__(1, 70.0),
    "A.fig.vit-weights": swap("near_zero", 0, 1, axis=0),
    **{f"B.fig.{name}": swap("loss", 0, 1, axis=0) for name in CURVED},
    "B.fig.mnist": swap("steps", 0, 1, axis=0),
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


def test_other_accuracies_of_the_same_order_are_reproduced_differently():
    claim = BY_ID["A.tab.imdb"]
    arrays = copy.deepcopy(RECORDS["imdb"]) | {"best_test": ACCURACY - 5}
    assert judge(claim, Evidence("imdb", AS_PUBLISHED, arrays))[0] == "reproduced differently"


# What this library adds, on made-up arrays.
SHARES = np.array([0.5, 0.9, 0.95, 0.98, 0.99])


def judge_own(name, arrays):
    claim = BY_ID[name]
    return judge(claim, Evidence(claim.experiment, {}, arrays))[0]


def make_pruning():
    names = ["MirrorAdam for pruning", *BASELINES]
    curves = np.array(
        [
            [85, 85, 85, 84.9, 84.8],
            [85, 84.9, 75, 60, 50],
            [85, 85, 80, 60, 50],
            *[[84, 84, 84, 84, 60]] * (len(BASELINES) - 2),
        ]
    )
    return add_needed(
        {
            "optimizer": np.array(names),
            "share": SHARES,
            "accuracy": curves[:, None] + np.array([-0.1, 0.0, 0.1])[:, None],
            "unpruned": np.full((len(names), 3), 85.0),
        }
    )


def add_needed(arrays):
    needed = [[find_needed(SHARES, curve, 85.0) for curve in group] for group in arrays["accuracy"]]
    return arrays | {"needed": np.array(needed)}


def test_pruning_holds_where_a_third_of_the_weights_is_enough():
    assert judge_own("M.pruning.imdb", make_pruning()) == "reproduced"


@pytest.mark.parametrize("name", ["AdamW", "AdamW for pruning"])
def test_pruning_fails_against_either_adamw(name):
    arrays = make_pruning()
    k = arrays["optimizer"].tolist().index(name)
    arrays["accuracy"][k] = arrays["accuracy"][0]
    assert judge_own("M.pruning.imdb", add_needed(arrays)) == "not reproduced"


def test_pruning_fails_against_a_better_baseline_at_95_percent():
    arrays = make_pruning()
    arrays["accuracy"][3] = 86.0
    assert judge_own("M.pruning.imdb", add_needed(arrays)) == "not reproduced"


def test_the_method_tuned_for_pruning_is_the_one_that_is_compared():
    arrays = make_pruning()
    more = {key: np.concatenate([value, value[:1]]) for key, value in arrays.items()}
    more["optimizer"][-1], more["share"] = "MirrorAdam p=1.1", SHARES
    more["accuracy"][-1] = 50.0
    assert judge_own("M.pruning.imdb", add_needed(more)) == "reproduced"
    more["accuracy"][[0, -1]] = more["accuracy"][[-1, 0]]
    assert judge_own("M.pruning.imdb", add_needed(more)) == "not reproduced"


def test_the_plain_rule_must_need_fewer_weights_at_smaller_p():
    names = np.array([f"MirrorDescent p={p}" for p in (1.1, 2, 3)])
    needed = np.array([[0.1, 0.1, 0.3], [0.2, 0.2, 0.2], [0.5, 0.6, 0.7]])
    assert judge_own("M.pruning.plain", {"optimizer": names, "needed": needed}) == "reproduced"
    for order, verdict in (([1, 0, 2], "undecided"), ([0, 2, 1], "not reproduced")):
        arrays = {"optimizer": names, "needed": needed[order]}
        assert judge_own("M.pruning.plain", arrays) == verdict


def make_sparsest():
    arrays = make_pruning()
    more = {key: np.concatenate([value, value[:1]]) for key, value in arrays.items()}
    more["optimizer"] = np.array([*arrays["optimizer"], "MirrorAdam + L1"])
    more["share"] = np.array([0.5, 0.9, 0.95, 0.99, 0.998])
    more["accuracy"][:-1, :, -1] = 80.0
    return more


def test_the_sparsest_loses_little_and_is_the_best():
    arrays = make_sparsest()
    assert judge_own("M.sparsest.imdb", arrays) == "reproduced"
    arrays["accuracy"][3, :, -1] = 86.0
    assert judge_own("M.sparsest.imdb", arrays) == "not reproduced"
    arrays = make_sparsest()
    arrays["accuracy"][-1, :, -1] = 83.0
    assert judge_own("M.sparsest.imdb", arrays) == "not reproduced"


def make_accuracies():
    return {
        "optimizer": np.array(["AdamW", "MirrorAdam p=1.1", "MirrorAdam p=3"]),
        "selected_test": np.array([[85.0, 84.8, 84.9], [84.9, 84.9, 84.9], [70.0, 70.0, 70.0]]),
    }


def test_accuracy_is_that_of_one_method_each_named_before():
    assert judge_own("M.accuracy.imdb", make_accuracies()) == "reproduced"
    arrays = make_accuracies()
    arrays["selected_test"][1] = 83.6
    arrays["selected_test"][2] = 90.0  # another one does not help
    assert judge_own("M.accuracy.imdb", arrays) == "not reproduced"


def test_two_seeds_are_too_few_for_more_than_differently():
    few = {
        key: value[..., :2] if value.ndim == 2 else value
        for key, value in make_accuracies().items()
    }
    assert judge_own("M.accuracy.imdb", few) == "reproduced differently"


def test_accuracy_below_the_published_one_is_not_enough():
    arrays = make_accuracies()
    arrays["selected_test"] -= 3
    assert judge_own("M.accuracy.imdb", arrays) == "not reproduced"


def make_digits():
    return {
        "optimizer": np.array(["MirrorAdam p=1.5 + L1", "AdamW + L1"]),
        "share": np.array([0.5, 0.9]),
        "unpruned": np.full((2, 3), 96.0),
        "needed": np.array([[0.1] * 3, [0.2] * 3]),
        "accuracy": np.array([[[96.0, 94.0]] * 3, [[96.0, 84.0]] * 3]),
    }


def test_digits_are_judged_by_the_weights_that_are_needed_and_by_what_is_kept():
    assert judge_own("M.pruning.digits", make_digits()) == "reproduced"
    for key in ("accuracy", "needed"):
        spoiled = make_digits() | {key: make_digits()[key][::-1]}
        assert judge_own("M.pruning.digits", spoiled) == "not reproduced"


@pytest.mark.parametrize("k", [0, 1])
def test_on_digits_both_optimizers_must_have_learnt_the_task(k):
    arrays = make_digits()
    arrays["unpruned"][k] = 85.0
    assert judge_own("M.pruning.digits", arrays) == "not reproduced"


def test_the_finding_on_digits_tells_the_accuracy_of_both_and_what_was_tuned():
    arrays = make_digits()
    arrays["unpruned"][1] = 97.5
    finding = BY_ID["M.pruning.digits"].examine(Evidence("digits", {}, arrays))
    assert finding.measured == (
        "MirrorAdam p=1.5 + L1: 10% of the weights needed, 96.0% right, 94.0% with 90% removed;"
        " AdamW + L1: 20% of the weights needed, 97.5% right, 84.0% with 90% removed"
    )
    assert "validation data" in finding.remark


def make_curves(decay=0.03):
    steps = np.arange(1, 101)
    rates = np.array([0.01, 0.012, decay])[:, None, None]
    return {
        "optimizer": np.array(["SGD", "SNGD", "SNGD per tensor"]),
        "step": steps,
        "loss": np.exp(-rates * steps) * np.array([1.0, 1.1, 1.2])[None, :, None],
    }


def test_speed_asks_for_half_of_the_steps():
    assert judge_own("M.speed.mnist", make_curves()) == "reproduced"
    assert judge_own("M.speed.mnist", make_curves(decay=0.015)) == "not reproduced"
    never = make_curves(decay=0.005)
    assert judge_own("M.speed.mnist", never) == "not reproduced"
    measured = BY_ID["M.speed.mnist"].examine(Evidence("mnist", {}, never)).measured
    assert measured == "SNGD 85%; SNGD per tensor gets there in 0 of 3"


def test_speed_of_one_seed_is_an_anecdote():
    one = make_curves()
    one["loss"] = one["loss"][:, :1]
    assert judge_own("M.speed.mnist", one) == "reproduced differently"
