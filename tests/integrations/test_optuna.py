"""A trial of Optuna is a training, which its pruner may end."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from tracked_training import CONFIG

from mirrormargin.data import load_data
from mirrormargin.errors import TrainingError
from mirrormargin.training import TrainingFolder, train_model

WHY = "optuna is not installed: make test-integrations installs and tests it"
optuna = pytest.importorskip("optuna", reason=WHY)

from mirrormargin.integrations.optuna import train_trial  # noqa: E402

LONG = replace(CONFIG, epochs=4, optimizer=replace(CONFIG.optimizer, lr=0.2))


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


def search(objective, direction="maximize", **options):
    study = optuna.create_study(direction=direction, **options)
    study.optimize(objective, n_trials=1)
    return study.trials[0]


def test_a_trial_reports_its_epochs_and_returns_the_best(data, tmp_path):
    trial = search(lambda trial: train_trial(trial, LONG, data, tmp_path))
    rows = TrainingFolder(tmp_path).read_metrics("epoch")
    reached = list(accumulate((row["validation_accuracy"] for row in rows), max))
    assert trial.state.name == "COMPLETE"
    assert trial.value == reached[-1]
    assert trial.intermediate_values == {1: reached[0], 2: reached[1], 3: reached[2]}
    assert trial.user_attrs["folder"] == str(tmp_path)


def test_a_hopeless_trial_ends_and_can_be_resumed(data, tmp_path):
    pruner = optuna.pruners.ThresholdPruner(lower=101, n_warmup_steps=2)
    trial = search(lambda trial: train_trial(trial, LONG, data, tmp_path / "trial"), pruner=pruner)
    assert trial.state.name == "PRUNED"
    assert len(TrainingFolder(tmp_path / "trial").read_metrics("epoch")) == 2
    steps = []
    whole = train_model(LONG, data, tmp_path / "whole", on_step=lambda *a: steps.append(a[0]))
    # The same suggestions come again, and the training goes on where it was pruned.
    value = train_trial(optuna.trial.FixedTrial({}), LONG, data, tmp_path / "trial")
    assert value == max(row["validation_accuracy"] for row in whole.epochs)
    found = [tmp_path / name / "final.safetensors" for name in ("trial", "whole")]
    assert found[0].read_bytes() == found[1].read_bytes()


def test_a_trial_that_diverges_is_pruned(data, tmp_path):
    config = replace(CONFIG, optimizer=replace(CONFIG.optimizer, lr=1e30))
    trial = search(lambda trial: train_trial(trial, config, data, tmp_path))
    assert trial.state.name == "PRUNED"


def test_a_study_in_the_wrong_direction_is_refused(data, tmp_path):
    with pytest.raises(TrainingError, match=r'judged by accuracy.*direction="maximize"'):
        search(lambda trial: train_trial(trial, CONFIG, data, tmp_path), direction="minimize")
    assert TrainingFolder(tmp_path).status == "empty"
