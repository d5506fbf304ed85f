"""Trainings whose weights are bfloat16: they learn, are kept as they are, and resume to the bit."""

from dataclasses import replace

import pytest
import torch
from language_texts import make_language_data

from mirrormargin.data import load_data
from mirrormargin.errors import TrainingError
from mirrormargin.training.building import load_model
from mirrormargin.training.config import (
    DataConfig,
    ImageModel,
    LanguageModel,
    OptimizerConfig,
    TrainingConfig,
)
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.loop import train_model

DIGITS = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits"),
    model=ImageModel(2, 32, 1, 4, 64, dropout=0.0, init_std=0.1),
    optimizer=OptimizerConfig("MirrorAdam", 3e-3, p=1.1),
    epochs=6,
    batch_size=50,
    precision="bfloat16",
)
LANGUAGE = TrainingConfig(
    name="shakespeare/char",
    data=DataConfig("shakespeare", length=16),
    model=LanguageModel(16, 1, 2),
    optimizer=OptimizerConfig("AdamW", 1e-2),
    epochs=1,
    epoch_steps=60,
    precision="bfloat16",
)


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def test_weights_are_bfloat16_and_digits_are_learnt(digits, tmp_path):
    training = train_model(DIGITS, digits, tmp_path)
    assert {weight.dtype for weight in training.final.values()} == {torch.bfloat16}
    assert training.epochs[-1]["validation_accuracy"] > 80


def test_a_loaded_model_is_what_was_evaluated(digits, tmp_path):
    training = train_model(replace(DIGITS, epochs=2), digits, tmp_path)
    loss, accuracy = evaluate(load_model(tmp_path, weights="final"), digits.validation)
    assert round(loss, 6) == training.epochs[-1]["validation_loss"]
    assert round(accuracy, 4) == training.epochs[-1]["validation_accuracy"]


@pytest.mark.parametrize("state", [None, "bfloat16"])
def test_an_interrupted_training_resumes_to_the_bit(digits, tmp_path, state):
    config = replace(DIGITS, epochs=2, optimizer=replace(DIGITS.optimizer, state_dtype=state))
    whole = train_model(config, digits, tmp_path / "whole")

    def interrupt(step, num_steps, row):
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_model(config, digits, tmp_path / "parts", on_step=interrupt)
    resumed = train_model(config, digits, tmp_path / "parts")
    for name, weight in whole.final.items():
        assert torch.equal(resumed.final[name], weight)


def test_language_models_learn_in_bfloat16(tmp_path):
    data = make_language_data()
    training = train_model(LANGUAGE, data, tmp_path)
    first = train_model(replace(LANGUAGE, epoch_steps=1), data, tmp_path / "first")
    assert training.epochs[-1]["validation_loss"] < 0.8 * first.epochs[-1]["validation_loss"]


def test_states_of_torchs_optimizers_cannot_be_chosen(tmp_path):
    config = replace(LANGUAGE, optimizer=replace(LANGUAGE.optimizer, state_dtype="bfloat16"))
    with pytest.raises(TrainingError, match="AdamW has no state_dtype"):
        train_model(config, make_language_data(), tmp_path)
