"""Labels of trainings say where they differ, and no two are alike."""

import copy
from typing import Any

from mirrormargin.training.differences import label_trainings, list_differences

BASE: dict[str, Any] = {
    "optimizer": {"name": "MirrorAdam", "lr": 0.003, "p": 1.1, "weight_decay": 0.0},
    "epochs": 6,
    "sparsifier": None,
    "seeds": {"init": 0, "order": 0, "dropout": 0},
}
L1 = {"kind": "L1Penalty", "strength": 3e-5}


def make(sparsifier: dict[str, Any] | None = None, seed: int = 0, **optimizer: Any) -> dict:
    config = copy.deepcopy(BASE)
    config["optimizer"] |= optimizer
    config["sparsifier"] = sparsifier
    config["seeds"] = dict.fromkeys(config["seeds"], seed)
    return config


def label(*configs: dict) -> list[str]:
    return label_trainings({f"folder-{k}": config for k, config in enumerate(configs)})


ADAMW = {"name": "AdamW", "p": 2.0}


def test_exponents_alone_are_named_alone():
    assert label(make(p=1.05), make(p=1.1)) == ["p = 1.05", "p = 1.1"]


def test_optimizers_are_named_with_their_exponent():
    assert label(make(**ADAMW), make()) == ["AdamW", "MirrorAdam p=1.1"]


def test_a_penalty_is_named_and_its_strength_where_that_differs():
    assert label(make(**ADAMW), make(L1, **ADAMW)) == ["AdamW", "AdamW + L1"]
    strong = {**L1, "strength": 1e-4}
    assert label(make(L1), make(strong)) == ["L1 3e-05", "L1 0.0001"]


def test_what_all_share_is_not_said():
    assert label(make(seed=0), make(seed=1)) == ["seed 0", "seed 1"]
    assert label(make(lr=0.1), make(lr=0.2)) == ["lr 0.1", "lr 0.2"]


def test_only_trainings_that_would_be_called_alike_get_more_words():
    assert label(make(**ADAMW), make(seed=1), make()) == [
        "AdamW",
        "MirrorAdam p=1.1, seed 1",
        "MirrorAdam p=1.1, seed 0",
    ]


def test_the_same_training_twice_is_called_by_its_folder():
    assert label(make(), make()) == ["MirrorAdam, folder-0", "MirrorAdam, folder-1"]


def test_one_training_is_called_by_its_method():
    assert label(make()) == ["MirrorAdam p=1.1"]
    assert label(make(L1, **ADAMW)) == ["AdamW + L1"]


def test_no_two_labels_are_alike():
    configs = [
        make(sparsifier, seed, **optimizer, lr=lr)
        for sparsifier in (None, L1)
        for seed in (0, 1)
        for lr in (0.1, 0.2)
        for optimizer in (ADAMW, {"p": 1.05}, {"p": 1.1})
    ]
    assert len(set(label(*configs))) == len(configs)


def test_differences_are_those_settings_that_differ():
    assert list_differences([make(**ADAMW), make(L1, seed=2)]) == [
        "AdamW, no penalty, seed 0",
        "MirrorAdam, p 1.1, L1 3e-05, seed 2",
    ]
    assert list_differences([make(), make()]) == ["", ""]
