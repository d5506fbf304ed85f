"""Claims of this library on real data, judged on made-up arrays, right ones and spoiled ones."""

import numpy as np
import pytest
from training_arrays import make_deltas

from mirrormargin.claims.claim import decide
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import CLAIMS
from mirrormargin.claims.stories.deltas import make_story
from mirrormargin.claims.stories.pruning import BASELINES
from mirrormargin.training.pruning import find_needed

BY_ID = {claim.id: claim for claim in CLAIMS}


def judge(claim, evidence):
    return decide(claim.examine(evidence).checks)


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


(DELTAS,) = make_story("sst2", "SST-2").claims


def judge_deltas(**changes):
    arrays = make_deltas(seed=30)
    for method, points in changes.items():
        rows = arrays["method"] == method.replace("_", " ")
        arrays["score"][rows] += points
    return judge(DELTAS, Evidence(DELTAS.experiment, {}, arrays))


def test_ten_thousand_numbers_are_ahead_of_other_methods_with_as_many():
    assert judge_deltas()[0] == "reproduced"
    for changes in (
        {"centred_MirrorAdam": -1.0},  # more than a point behind all weights
        {"head_alone": 17.0},  # there is nothing to learn
        {"Fisher_mask": 5.0},  # as many numbers, and better
        {"LoRA": 4.0},
    ):
        assert judge_deltas(**changes)[0] == "not reproduced", changes


def test_more_numbers_than_ten_thousand_decide_nothing():
    arrays = make_deltas(seed=30)
    arrays["score"][arrays["numbers"] == 50_000] = 80.0
    verdict, note = judge(DELTAS, Evidence(DELTAS.experiment, {}, arrays))
    assert verdict == "reproduced differently"
    assert "at most 50,000 numbers" in note


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
