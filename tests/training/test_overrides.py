"""Settings by dotted name: parsing, applying, and the command that makes the same training."""

import shlex
from dataclasses import replace

import pytest

from mirrormargin.claims.campaign.compared_methods import METHODS
from mirrormargin.errors import TrainingError
from mirrormargin.training.config import GradualPruning, L1Penalty, Powerpropagation, Seeds
from mirrormargin.training.configurations import (
    CONFIGURATIONS,
    find_configuration,
    format_command,
    list_overrides,
)
from mirrormargin.training.settings import override, parse_override

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
    changed = override(BASE, {"epochs": 3, "optimizer.lr": 0.5, "seeds.order": 9})
    assert changed == replace(
        BASE, epochs=3, optimizer=replace(BASE.optimizer, lr=0.5), seeds=Seeds(0, 9, 0)
    )


@pytest.mark.parametrize("name", ["epoch", "optimizer.rate", "model.blocks.width", "sparsifier.x"])
def test_unknown_setting_lists_the_known_ones(name):
    with pytest.raises(TrainingError, match=rf"'{name}': there are .*optimizer\.lr, .*epochs"):
        override(BASE, {name: 1})


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("optimizer.lt=1", "optimizer.lr"),
        ("epoch=3", "epochs"),
        ("optimiser.momentum=0.9", "optimizer.momentum"),
        ("model.drop_out=0", "model.dropout"),
    ],
)
def test_unknown_setting_suggests_the_nearest(text, nearest):
    with pytest.raises(TrainingError, match=rf"did you mean {nearest}\?$"):
        override(BASE, [text])


def test_settings_are_given_as_texts_or_by_name():
    texts = ["optimizer.lr=1e-3", "optimizer.scale=rms", "augment=true", "clip=1"]
    values = {"optimizer.lr": 1e-3, "optimizer.scale": "rms", "augment": True, "clip": 1.0}
    assert override(BASE, texts) == override(BASE, values)
    assert find_configuration("digits/tiny", texts) == override(BASE, values)
    assert override(BASE, []) == BASE


def test_a_setting_that_is_given_twice_is_refused():
    with pytest.raises(TrainingError, match="epochs is given twice"):
        override(BASE, ["epochs=1", "epochs=1"])
    with pytest.raises(TrainingError, match="a list or a dictionary, got 'epochs=1'"):
        override(BASE, "epochs=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.lr=fast", "optimizer.lr is 'fast': give float"),
        ("optimizer.lr=true", "optimizer.lr is True: give float"),
        ("optimizer.max_lr=[1]", r"optimizer.max_lr is \[1\]: give float or null"),
        ("compile=1", "compile is 1: give bool"),
        ("epochs=2.5", "epochs is a whole number, at least 1, got 2.5"),
        ("epochs=true", "epochs is a whole number, at least 1, got True"),
        ("seeds.order=-1", r"seeds.order is a whole number, 0 to 2\^63 - 1, got -1"),
        ("model.dropout=nan", r"model.dropout is a rate of dropout, in \[0, 1\), got 'nan'"),
        ("schedule=step", "schedule is one of constant, cosine, linear, got 'step'"),
        ("data.name=3", "data.name is 3: give str"),
        ("optimizer.groups=[1]", r"optimizer.groups is a list such as .*, got \[1\]"),
        ('sparsifier={"kind": "L1"}', 'sparsifier is null, or one of {"kind": "Schedule"'),
        ('sparsifier={"kind": "L1Penalty"}', "there is no sparsifier.strength"),
        (
            'sparsifier={"kind": "L1Penalty", "strength": -1}',
            "sparsifier.strength is a number, at least 0, got -1",
        ),
        ("seeds=null", "seeds is None: give Seeds"),
        ("name=imdb/small", "name cannot be set"),
        ("model.kind=TextModel", "model.kind cannot be set"),
    ],
)
def test_an_error_names_the_setting_and_what_it_may_be(text, message):
    with pytest.raises(TrainingError, match=f"^{message}"):
        override(BASE, [text])


@pytest.mark.parametrize(
    "changes", [{"epochs": 0}, {"epochs": "many"}, {"schedule": "step"}, {"model": {"kind": "X"}}]
)
def test_value_that_a_setting_does_not_take_is_refused(changes):
    with pytest.raises(TrainingError):
        override(BASE, changes)


def run_command(command):
    """What the command line would train, by the options in the command."""
    program, verb, name, *options = shlex.split(command)
    assert (program, verb) == ("mirrormargin", "train")
    assert options[::2] == ["--set"] * (len(options) // 2)
    changes = dict(parse_override(text) for text in options[1::2])
    return override(find_configuration(name), changes)


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
