"""Training a language model: it learns, resumes to the same bits, and is judged by its loss."""

import math
from dataclasses import replace

import pytest
import torch
from language_texts import make_language_data

from mirrormargin.cli.language_models import measure_unigram_loss
from mirrormargin.data.language_sets import IGNORED
from mirrormargin.errors import TrainingError
from mirrormargin.models import LanguageTransformer
from mirrormargin.training import evaluate, load_model, train_model
from mirrormargin.training.building import build_model, build_optimizer, find_factor
from mirrormargin.training.config import (
    DataConfig,
    LanguageModel,
    OptimizerConfig,
    TextModel,
    TrainingConfig,
)
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.evaluation import compute_loss, compute_perplexity
from mirrormargin.training.summary import summarize_training
from mirrormargin.training.tasks import CLASSIFICATION, LANGUAGE, read_task

CONFIG = TrainingConfig(
    name="made up/tiny",
    data=DataConfig("made up", length=16),
    model=LanguageModel(16, 2, 2),
    optimizer=OptimizerConfig("AdamW", 1e-2, beta2=0.99),
    epochs=3,
    batch_size=8,
    schedule="cosine",
    warmup=0.1,
    final_rate=0.1,
    clip=1.0,
    epoch_steps=20,
)


@pytest.fixture(scope="module")
def data():
    return make_language_data()


@pytest.fixture(scope="module")
def training(data, tmp_path_factory):
    return train_model(CONFIG, data, tmp_path_factory.mktemp("training"))


def test_a_short_training_beats_the_frequencies_of_tokens(training, data):
    unigram, losses = (
        measure_unigram_loss(data),
        [row["validation_loss"] for row in training.epochs],
    )
    assert losses[-1] < unigram - 0.3
    assert losses == sorted(losses, reverse=True)
    assert unigram < math.log(len(data.vocabulary))


def test_the_loss_of_frequencies_is_their_cross_entropy(data):
    """Up to the last tokens of the training text, which windows side by side leave out."""
    learnt = torch.cat([data.train.labels[:, 0], data.train.labels[-1, 1:]])
    shares = torch.tensor(
        [(int((learnt == number).sum()) + 1) for number in range(len(data.vocabulary))]
    ).double()
    shares /= shares.sum()
    held = data.validation.labels.flatten()
    total = -sum(math.log(shares[number]) for number in held.tolist() if number != IGNORED)
    expected = total / int((held != IGNORED).sum())
    assert measure_unigram_loss(data) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("config", [CONFIG, find_configuration("shakespeare/char")])
def test_a_training_that_was_stopped_ends_at_the_same_bits(config, data, tmp_path):
    changes = {"epochs": 2, "epoch_steps": 6, "batch_size": 4, "model": CONFIG.model}
    config = replace(config, **changes)
    whole = train_model(config, data, tmp_path / "whole")

    def stop(step, steps, known):
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_model(config, data, tmp_path / "part", on_step=stop)
    resumed = train_model(config, data, tmp_path / "part")
    assert resumed.epochs == whole.epochs
    for name, weight in whole.final.items():
        assert weight.equal(resumed.final[name]), name


def test_an_epoch_has_the_steps_it_was_given(training):
    rows = training.folder.read_metrics("epoch")
    assert [row["step"] for row in rows] == [20, 40, 60]


def test_the_epoch_of_least_loss_is_selected(data, tmp_path):
    # A learning rate that rises until it is far too large: later epochs are worse.
    config = replace(CONFIG, optimizer=OptimizerConfig("AdamW", 0.5), warmup=1.0)
    found = train_model(config, data, tmp_path)
    losses = [row["validation_loss"] for row in found.epochs]
    assert found.selected_epoch == 1 + losses.index(min(losses))
    assert found.selected_epoch < len(losses)
    model = load_model(tmp_path, weights="selected")
    assert evaluate(model, data.validation).loss == pytest.approx(min(losses), abs=1e-5)


def compute_total_loss_slowly(model, tokens, length, first):
    """Token by token, each from those before it in its window."""
    total, before = 0.0, [first, *tokens.tolist()]
    num_whole = len(tokens) // length * length
    for index, token in enumerate(tokens.tolist()):
        start = index // length * length
        if index >= num_whole:  # the last window is as long as the others
            start = len(tokens) - length
        logits = model(torch.tensor([before[start : index + 1]]))[0, -1].double()
        total -= float(logits.log_softmax(0)[token])
    return total


@torch.no_grad()
def test_perplexity_per_word_is_that_of_its_definition(training):
    num_words = 321
    data = make_language_data(num_words=num_words)
    model = build_model(CONFIG, data).eval()
    model.load_state_dict(training.final)
    labels = data.validation.labels
    tokens = labels[labels != IGNORED]
    first = data.vocabulary.index("\n")
    assert len(tokens) % 16  # there is a last window that overlaps
    total = compute_total_loss_slowly(model, tokens, 16, first)
    loss = evaluate(model, data.validation).loss
    assert loss == pytest.approx(total / len(tokens), rel=1e-5)
    found = compute_perplexity(loss, data.validation)
    assert found.per_word == pytest.approx(math.exp(total / num_words), rel=1e-4)
    assert found.per_token == pytest.approx(math.exp(total / len(tokens)), rel=1e-5)


def test_perplexity_of_a_uniform_model_is_the_size_of_the_vocabulary(data):
    model = build_model(CONFIG, data)
    torch.nn.init.zeros_(model.get_parameter("embedding.weight"))
    loss = evaluate(model, data.validation).loss
    assert compute_perplexity(loss, data.validation).per_token == pytest.approx(
        len(data.vocabulary), rel=1e-5
    )
    assert compute_perplexity(loss, data.validation).per_word is None


def test_a_summary_has_losses_and_perplexities(training, data):
    summary = summarize_training(training, data)
    part = summary["validation"]
    assert part["selected"] == pytest.approx(training.epochs[-1]["validation_loss"], abs=1e-5)
    assert part["perplexity"] == pytest.approx(math.exp(part["selected"]), rel=1e-4)
    assert part["word_perplexity"] is None
    curve = part["frontier"]["blocks"]
    assert len(curve) == len(summary["shares"])
    assert curve[0] < curve[-1]  # a loss, which grows with what is removed
    assert "attention" in summary["test"]["frontier"]
    assert "has_test" not in summary
    without = summarize_training(training, replace(data, test=replace_empty(data)))
    assert "test" not in without
    assert without["has_test"] is False


def replace_empty(data):
    return type(data.test)(data.test.inputs[:0], data.test.labels[:0])


def test_an_empty_split_is_refused(training, data):
    model = build_model(CONFIG, data)
    with pytest.raises(TrainingError, match="split is empty"):
        evaluate(model, replace_empty(data))


def test_labels_that_are_left_out_change_nothing():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, IGNORED, 2], [3, 4, IGNORED]])
    kept = labels != IGNORED
    expected = compute_loss(logits[kept], labels[kept])
    torch.testing.assert_close(compute_loss(logits, labels), expected)


def test_only_block_matrices_have_the_geometry_of_p(data):
    config = find_configuration("shakespeare/char", {"optimizer.p": 1.5})
    model = build_model(config, data)
    assert isinstance(model, LanguageTransformer)
    optimizer = build_optimizer(config.optimizer, model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    exponents = {
        names[id(parameter)]: group["p"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, p in exponents.items():
        is_matrix = name.startswith("blocks.") and "norm" not in name
        assert p == (1.5 if is_matrix else 2.0), name
    assert all(group["betas"] == (0.9, 0.99) for group in optimizer.param_groups)


def test_a_cosine_ends_at_the_final_rate():
    factors = [find_factor("cosine", 0.05, step, 2000, 0.1) for step in range(2000)]
    assert factors[99] == pytest.approx(1.0)
    assert factors[0] == pytest.approx(0.01)
    assert factors[-1] == pytest.approx(0.1, abs=1e-5)
    assert min(factors[100:]) >= 0.1
    middle = (100 + 2000) // 2
    assert factors[middle] == pytest.approx(0.55)


def test_the_recipe_is_that_of_nanogpt():
    config = find_configuration("shakespeare/char")
    assert config.model == LanguageModel(128, 4, 4, dropout=0.0)
    assert (config.data.length, config.batch_size) == (64, 12)
    assert config.epochs * (config.epoch_steps or 0) == 2000
    assert (config.warmup, config.final_rate, config.clip) == (0.05, 0.1, 1.0)
    assert config.optimizer.beta2 == 0.99


def test_a_task_is_read_from_a_configuration():
    assert CONFIG.task is LANGUAGE
    assert read_task(CONFIG.as_dict()) is LANGUAGE
    digits = find_configuration("digits/tiny")
    assert digits.task is read_task(digits.as_dict()) is CLASSIFICATION


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_size": 3}, "attention_size is not supported for language"),
        ({"paper_protocol": True}, "paper_protocol is not supported"),
        ({"augment": True}, "augment is not supported"),
    ],
)
def test_settings_for_classifiers_are_refused(changes, message):
    with pytest.raises(TrainingError, match=message):
        replace(CONFIG, **changes)


def test_beta2_is_for_adaptive_optimizers(data, tmp_path):
    config = replace(CONFIG, optimizer=OptimizerConfig("SGD", 0.1, beta2=0.9))
    with pytest.raises(TrainingError, match=r"SGD has no beta2, got 0\.9"):
        train_model(config, data, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_classifier_takes_no_text_to_continue(data):
    config = replace(CONFIG, model=TextModel(16, 1, 2))
    with pytest.raises(TrainingError, match="a model for texts, but made up holds a text to"):
        build_model(config, data)
