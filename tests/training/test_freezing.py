"""Which parameters are trained, and groups of them with rates of their own."""

import json
from dataclasses import replace

import pytest
import torch

from mirrormargin.data import load_data, order_epoch
from mirrormargin.errors import TrainingError
from mirrormargin.training.building import build_model, build_optimizer, find_factor
from mirrormargin.training.config import (
    DataConfig,
    GradualPruning,
    ImageModel,
    L1Penalty,
    OptimizerConfig,
    TrainingConfig,
)
from mirrormargin.training.loop import train_model
from mirrormargin.training.sparsity import select_matrices

CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=100),
    model=ImageModel(4, 16, 1, 2, 32, dropout=0.0),
    optimizer=OptimizerConfig("AdamW", 0.01, weight_decay=0.01),
    epochs=2,
    batch_size=30,
)


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


def list_trained(model):
    return {name for name, param in model.named_parameters() if param.requires_grad}


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "MirrorAdam"])
def test_frozen_parameters_keep_their_bits_and_others_move(data, tmp_path, optimizer):
    config = replace(
        CONFIG, trainable=("*.bias", "head.*"), optimizer=OptimizerConfig(optimizer, 0.01)
    )
    before = build_model(config, data).state_dict()
    training = train_model(config, data, tmp_path)
    moved = {name for name, weight in training.final.items() if not weight.equal(before[name])}
    chosen = {name for name in before if name.endswith(".bias") or name.startswith("head.")}
    assert moved == chosen & list_trained(build_model(config, data))
    assert "head.weight" in moved


def test_blocks_are_all_block_matrices_and_nothing_else(data):
    model = build_model(replace(CONFIG, trainable=("blocks", "head.*")), data)
    assert list_trained(model) == {*select_matrices(model, "blocks"), "head.weight", "head.bias"}


def test_everything_is_trained_by_default(data):
    model = build_model(CONFIG, data)
    assert list_trained(model) == dict(model.named_parameters()).keys()


@pytest.mark.parametrize(
    ("trainable", "message"),
    [(("blocks", "haed.*"), r"'haed\.\*', which matches no parameter"), ((), "empty list")],
)
def test_patterns_that_choose_nothing_are_refused(data, trainable, message):
    with pytest.raises(TrainingError, match=message):
        build_model(replace(CONFIG, trainable=trainable), data)


def test_a_group_of_frozen_parameters_is_refused(data):
    config = replace(CONFIG, trainable=("head.*",))
    optimizer = replace(CONFIG.optimizer, groups=(("blocks.*", {"lr": 0.1}),))
    with pytest.raises(ValueError, match=r"'blocks\.\*' gives an empty group"):
        build_optimizer(optimizer, build_model(config, data))


def test_what_is_trained_survives_json_and_changes_the_digest():
    config = replace(CONFIG, trainable=("blocks", "head.*"))
    document = json.loads(json.dumps(config.as_dict()))
    assert TrainingConfig.from_dict(document) == config
    assert config.digest() != CONFIG.digest() == replace(config, trainable=None).digest()


def test_pruning_of_frozen_matrices_is_refused():
    with pytest.raises(TrainingError, match="leave out trainable"):
        replace(CONFIG, trainable=("head.*",), sparsifier=GradualPruning(0.5))


def test_a_penalty_leaves_frozen_matrices_alone(data, tmp_path):
    model = build_model(CONFIG, data)
    first, *others = select_matrices(model, "blocks")
    config = replace(CONFIG, trainable=(first, "head.*"), sparsifier=L1Penalty(1e-3))
    training = train_model(config, data, tmp_path)
    before = model.state_dict()
    assert not training.final[first].equal(before[first])
    assert all(training.final[name].equal(before[name]) for name in others)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_rates_of_groups_follow_the_schedule_with_their_own_decay(data, tmp_path, schedule):
    groups = (("head.*", {"lr": 0.05, "weight_decay": 0.5}), ("blocks.*", {"lr": 0.002}))
    config = replace(
        CONFIG,
        schedule=schedule,
        warmup=0.3,
        optimizer=replace(CONFIG.optimizer, groups=groups),
    )
    training = train_model(config, data, tmp_path)
    model = build_model(config, data)
    parts = {"head.": (0.05, 0.5), "blocks.": (0.002, 0.01), "": (0.01, 0.01)}
    members: dict[str, list[torch.nn.Parameter]] = {prefix: [] for prefix in parts}
    for name, param in model.named_parameters():
        members[next(prefix for prefix in parts if name.startswith(prefix))].append(param)
    optimizer = torch.optim.AdamW(
        [
            {"params": members[prefix], "lr": lr, "weight_decay": decay}
            for prefix, (lr, decay) in parts.items()
        ],
        fused=True,
    )
    batches = [batch for epoch in range(2) for batch in order_epoch(0, epoch, 100, 30)]
    for step, batch in enumerate(batches):
        factor = find_factor(schedule, 0.3, step, len(batches))
        for group, (lr, _) in zip(optimizer.param_groups, parts.values(), strict=True):
            group["lr"] = lr * factor
        optimizer.zero_grad()
        logits = model(data.train.inputs[batch])
        torch.nn.functional.cross_entropy(logits, data.train.labels[batch]).backward()
        optimizer.step()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(training.final[name], weight, rtol=0, atol=0, msg=name)


def test_a_resumed_training_of_groups_ends_at_the_same_bits(data, tmp_path):
    groups = (("head.*", {"lr": 0.05}),)
    config = replace(
        CONFIG,
        schedule="linear",
        warmup=0.3,
        trainable=("blocks", "head.*"),
        optimizer=replace(CONFIG.optimizer, groups=groups),
    )
    whole = train_model(config, data, tmp_path / "whole")

    def stop(step, *_):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_model(config, data, tmp_path / "parts", on_step=stop)
    resumed = train_model(config, data, tmp_path / "parts")
    assert all(weight.equal(whole.final[name]) for name, weight in resumed.final.items())
