"""Configurations: JSON and back, digests that name the training, values that are refused."""

import json
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest

from mirrormargin.errors import TrainingError
from mirrormargin.optim.masks import REMOVED
from mirrormargin.training.config import (
    DataConfig,
    EncoderModel,
    GradualPruning,
    ImageModel,
    L1Penalty,
    OptimizerConfig,
    Powerpropagation,
    Schedule,
    Seeds,
    TrainingConfig,
)
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration
from mirrormargin.training.settings import list_changes

BASE = find_configuration("digits/tiny")
# One other value for every setting of a training; that none is forgotten is tested below.
OTHERS = {
    "name": "mnist/small",
    "data": DataConfig("mnist"),
    "model": ImageModel(4, 32, 2, 4, 64),
    "optimizer": OptimizerConfig("AdamW", 1e-3),
    "epochs": 7,
    "batch_size": 7,
    "reduction": "sum",
    "schedule": "constant",
    "warmup": 0.5,
    "stop_accuracy": 0.5,
    "stop_loss": 0.5,
    "clip": 1.0,
    "augment": True,
    "sparsifier": L1Penalty(0.1),
    "protocol_size": 7,
    "validation_size": 7,
    "frontier_size": 7,
    "attention_size": 7,
    "paper_protocol": True,
    "precision": "mixed",
    "compile": True,
    "seeds": Seeds(1, 2, 3),
    "final_rate": 0.1,
    "epoch_steps": 7,
    "trainable": ("head.*",),
    "by_length": True,
    "proximal_l1": 0.1,
}
ALONE = {"by_length": {"model": EncoderModel()}}  # what a setting needs beside it


def test_every_setting_is_tested():
    assert OTHERS.keys() == {item.name for item in fields(TrainingConfig)}


def through_json(config):
    return TrainingConfig.from_dict(json.loads(json.dumps(config.as_dict())))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_survives_json(name):
    config = CONFIGURATIONS[name]
    assert through_json(config) == config
    assert through_json(config).digest() == config.digest()


@pytest.mark.parametrize(
    "sparsifier",
    [
        L1Penalty(1e-5),
        Powerpropagation(2.0),
        GradualPruning(0.9, 0.1, 0.7),
        Schedule(0.5, 0.1, 0.9, removed="kept", pattern="2:4"),
        Schedule(0.5, groups="heads"),
    ],
)
def test_sparsifier_and_groups_survive_json(sparsifier):
    groups = (("blocks.*", {"p": 1.1}), ("head.*", {"lr": 0.1, "p": 3.0}))
    config = replace(BASE, sparsifier=sparsifier, optimizer=replace(BASE.optimizer, groups=groups))
    assert through_json(config) == config
    assert through_json(config).digest() == config.digest()


def list_variants():
    """BASE with one setting changed, down to those of its parts."""
    for name, value in OTHERS.items():
        yield name, replace(BASE, **ALONE.get(name, {}), **{name: value})
    for part in ("data", "model", "optimizer", "seeds"):
        inner = getattr(BASE, part)
        for item in fields(inner):
            old = getattr(inner, item.name)
            new = (("head.*", {"p": 3.0}),) if item.name == "groups" else _change(old)
            if part == "model" and "dropout" in item.name:
                new = 0.25
            others = {"test_data": "held.csv", "vocabulary": "words", "beta2": 0.99}
            others |= {"state_dtype": "bfloat16"}
            new = others.get(item.name, new)
            yield f"{part}.{item.name}", replace(BASE, **{part: replace(inner, **{item.name: new})})


def _change(value):
    if value is None:
        return 3
    if isinstance(value, bool):
        return not value
    return value + "x" if isinstance(value, str) else value + 1


def test_digest_differs_for_every_changed_setting():
    digests = [BASE.digest(), *(config.digest() for _, config in list_variants())]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)


def test_digest_is_the_same_for_equal_configurations():
    assert replace(BASE, epochs=BASE.epochs).digest() == BASE.digest()


def test_changed_settings_are_named():
    for name, config in list_variants():
        if name in ("data", "model", "optimizer", "seeds"):
            assert all(change.startswith(f"{name}.") for change in list_changes(BASE, config))
        else:
            found = list_changes(BASE, config)
            assert [one for one in found if name not in ALONE or one == name] == [name]
    assert list_changes(BASE, BASE) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduction": "median"}, "reduction is one of mean, sum, got 'median'"),
        ({"schedule": "step"}, "schedule is one of constant, cosine"),
        ({"precision": "int8"}, "precision is one of float32, mixed"),
        ({"epochs": 0}, "epochs is a whole number, at least 1, got 0"),
        ({"batch_size": 0}, "batch_size is a whole number, at least 1, got 0"),
        ({"epochs": "three"}, "epochs is a whole number, at least 1, got 'three'"),
        ({"warmup": 1.5}, "warmup is a share in .*1.5"),
        ({"stop_accuracy": 99.5}, "stop_accuracy is a share in .*99.5"),
        ({"clip": 0.0}, "clip is the largest norm"),
        ({"stop_loss": 0.0}, "stop_loss is the training loss, above 0, got 0.0"),
        ({"attention_size": 0}, "attention_size is a whole number, at least 1"),
        ({"optimizer": OptimizerConfig("Polyak", 1.0), "clip": 1.0}, "leave out clip"),
        ({"sparsifier": GradualPruning(0.9), "stop_accuracy": 0.9}, "leave out stop_accuracy"),
        ({"sparsifier": GradualPruning(0.9), "stop_loss": 0.9}, "and stop_loss"),
        (
            {"sparsifier": Schedule(0.9), "optimizer": OptimizerConfig("AdamW", 1e-3)},
            "and not for AdamW",
        ),
    ],
)
def test_value_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(TrainingError, match=message):
        replace(BASE, **change)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("epochs"),
        lambda d: d.pop("optimizer"),
        lambda d: d.update(depth=3),
        lambda d: d["model"].update(kind="Perceptron"),
        lambda d: d["model"].pop("kind"),
        lambda d: d["optimizer"].update(speed=1),
        lambda d: d.update(seeds=None),
    ],
)
def test_document_that_is_no_configuration_is_refused(damage):
    document = json.loads(json.dumps(BASE.as_dict()))
    damage(document)
    with pytest.raises(TrainingError, match="no training configuration"):
        TrainingConfig.from_dict(document)


def test_equal_settings_have_equal_digests():
    whole = replace(BASE, optimizer=OptimizerConfig("AdamW", 1), warmup=0, clip=1)
    parts = replace(BASE, optimizer=OptimizerConfig("AdamW", 1.0), warmup=0.0, clip=1.0)
    assert whole == parts
    assert whole.digest() == parts.digest()
    one, two = (OptimizerConfig("MirrorAdam", 1.0, groups=(("b*", {"p": p}),)) for p in (2, 2.0))
    assert replace(BASE, optimizer=one).digest() == replace(BASE, optimizer=two).digest()


@pytest.mark.parametrize("course", [(1.0, 0.2, 0.8), (0.9, 0.5, 0.5), (0.9, 0.2, 1.1)])
def test_a_course_of_pruning_that_cannot_be_gone_is_refused(course):
    for kind, name in ((GradualPruning, "gradual pruning"), (Schedule, "a schedule")):
        with pytest.raises(TrainingError, match=f"{name} needs"):
            kind(*course)


def test_a_schedule_in_a_configuration_takes_what_the_optimizers_know():
    """The configuration names the choices itself, so that ``--help`` needs no torch."""
    assert get_args(get_type_hints(Schedule)["removed"]) == REMOVED
