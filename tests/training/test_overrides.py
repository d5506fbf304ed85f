"""Settings by dotted name: parsing, applying, and the command that makes the same training."""

import shlex
from dataclasses import replace

import pytest

from mirrormargin.claims.campaign.methods import METHODS
from mirrormargin.errors import TrainingError
from mirrormargin.training.config import GradualPruning, L1Penalty, Powerpropagation, Seeds
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration
from mirrormargin.training.overrides import (
    apply_overrides,
    format_command,
    list_overrides,
    parse_override,
)

BASE = find_configuration("digits/tiny")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=0.001", 0.001),
        ("a=3", 3),
        ("a=true", True),
        ("a=null", None),
        ("a=[1, 2]", [1, 2]),
        ("a=rms", "rms"),
        ('a="3"', "3"),
        ("a=", ""),
        ("a=b=c", "b=c"),
    ],
)
def test_value_is_json_or_else_text(text, value):
    assert parse_override(text) == ("a", value)


def test_setting_without_a_value_is_refused():
    with pytest.raises(TrainingError, match="name=value, got 'epochs'"):
        parse_override("epochs")


def test_settings_are_changed_where_their_names_say():
    changed = apply_overrides(BASE, {"epochs": 3, "optimizer.lr": 0.5, "seeds.order": 9})
    assert changed == replace(
        BASE, epochs=3, optimizer=replace(BASE.optimizer, lr=0.5), seeds=Seeds(0, 9, 0)
    )


@pytest.mark.parametrize("name", ["epoch", "optimizer.rate", "model.blocks.width", "sparsifier.x"])
def test_unknown_setting_lists_the_known_ones(name):
    with pytest.raises(TrainingError, match=rf"'{name}': there are .*optimizer\.lr, .*epochs"):
        apply_overrides(BASE, {name: 1})


@pytest.mark.parametrize(
    "changes", [{"epochs": 0}, {"epochs": "many"}, {"schedule": "step"}, {"model": {"kind": "X"}}]
)
def test_value_that_a_setting_does_not_take_is_refused(changes):
    with pytest.raises(TrainingError):
        apply_overrides(BASE, changes)


def run_command(command):
    """What the command line would train, by the options in the command."""
    program, verb, name, *options = shlex.split(command)
    assert (program, verb) == ("mirrormargin", "train")
    assert options[::2] == ["--set"] * (len(options) // 2)
    changes = dict(parse_override(text) for text in options[1::2])
    return apply_overrides(find_configuration(name), changes)


GROUPS = (("blocks.*.query.weight", {"p": 1.1}), ("it's [odd]*", {"lr": 0.1}))
VARIANTS = {
    "as it is": BASE,
    "numbers": replace(BASE, epochs=3, clip=0.1, stop_accuracy=0.995, augment=True),
    "parts": replace(
        BASE,
        model=replace(BASE.model, dropout=0.3, init_std=None),
        optimizer=replace(BASE.optimizer, scale="rms", lr=1e-7),
        seeds=Seeds(1, 2, 3),
    ),
    "groups": replace(BASE, optimizer=replace(BASE.optimizer, groups=GROUPS)),
    "l1": replace(BASE, sparsifier=L1Penalty(3e-6)),
    "powers": replace(BASE, sparsifier=Powerpropagation(2.0)),
    "pruning": replace(BASE, sparsifier=GradualPruning(0.9)),
    "other model": replace(BASE, model=find_configuration("mnli-subset/minilm").model),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_command_makes_the_same_training(name):
    made = run_command(format_command(VARIANTS[name]))
    assert made == VARIANTS[name]
    assert made.digest() == VARIANTS[name].digest()


def test_commands_of_the_campaign_make_its_trainings():
    for method in METHODS:
        for config in method.grid.values():
            assert run_command(format_command(config)).digest() == config.digest()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_of_its_name_needs_no_option(name):
    assert list_overrides(CONFIGURATIONS[name]) == {}
    assert format_command(CONFIGURATIONS[name]) == f"mirrormargin train {name}"
