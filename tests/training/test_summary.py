"""What a training came to: accuracies, frontiers, and no look at test data unless wanted."""

import json
from dataclasses import replace

import pytest

from mirrormargin.data import load_data
from mirrormargin.training.building import build_model
from mirrormargin.training.config import DataConfig, ImageModel, OptimizerConfig, TrainingConfig
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.loop import train_model
from mirrormargin.training.pruning import prune
from mirrormargin.training.summary import SHARES, summarize_training

CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=200),
    model=ImageModel(4, 16, 1, 2, 32, dropout=0.0, init_std=0.1),
    optimizer=OptimizerConfig("AdamW", 1e-2),
    epochs=3,
    batch_size=20,
    paper_protocol=True,
    protocol_size=100,
    frontier_size=80,
)


class Forbidden:
    def __len__(self):
        raise AssertionError("the test split was read")

    inputs = labels = property(__len__)


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=200)


@pytest.fixture(scope="module")
def training(data, tmp_path_factory):
    return train_model(CONFIG, data, tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def summary(training, data):
    return summarize_training(training, data)


def test_accuracies_are_those_of_final_and_selected_weights(training, data, summary):
    model = build_model(CONFIG, data)
    for part, split in (("validation", data.validation), ("test", data.test)):
        for key, weights in (("last", training.final), ("selected", training.selected)):
            model.load_state_dict(weights)
            wanted = evaluate(model, split)[1]
            assert summary[part][key] == pytest.approx(wanted, abs=1e-3)


def test_best_is_the_best_test_accuracy_of_any_epoch(training, summary):
    assert summary["test"]["best"] == max(row["test_accuracy"] for row in training.epochs)
    assert "best" not in summary["validation"]


@pytest.mark.parametrize(
    ("part", "matrices"), [("validation", "blocks"), ("test", "blocks"), ("test", "attention")]
)
def test_frontier_is_the_accuracy_of_pruned_weights(training, data, summary, part, matrices):
    split = getattr(data, part)
    found = summary[part]["frontier"][matrices]
    assert len(found) == len(SHARES)
    for share in (0.5, 0.9, 0.998):
        model = build_model(CONFIG, data)
        model.load_state_dict(training.final)
        prune(model, share, matrices)
        wanted = evaluate(model, split, CONFIG.frontier_size)[1]
        assert found[SHARES.index(share)] == pytest.approx(wanted, abs=1e-3)


def test_pruned_test_accuracies_are_compared_with_the_same_examples(training, data, summary):
    model = build_model(CONFIG, data)
    model.load_state_dict(training.final)
    wanted = evaluate(model, data.test, 80)[1]
    assert summary["test"]["unpruned"] == pytest.approx(wanted, abs=1e-3)


def test_test_data_is_not_read_while_something_is_chosen(training, data, summary):
    hidden = replace(data, test=Forbidden())
    found = summarize_training(training, hidden, with_test=False)
    assert "test" not in found
    assert found["validation"] == summary["validation"]
    with pytest.raises(AssertionError, match="test split was read"):
        summarize_training(training, hidden)


def test_weights_are_counted(summary, training):
    weights = summary["weights"]
    assert weights["blocks"]["entries"] == 4 * 16**2 + 2 * 16 * 32
    for row in (weights["key"], weights["query"], weights["value"], weights["blocks"]):
        assert sum(row["histogram"]) + row["beyond"] == row["entries"]
        assert not row["histogram"] or row["histogram"][-1] > 0
    assert weights["underflowed"] == training.underflowed == 0


def test_summary_is_json(summary, training):
    # Options of groups are tuples, which JSON knows as lists.
    assert json.loads(json.dumps(summary, allow_nan=False)).keys() == summary.keys()
    assert summary["digest"] == training.config.digest()
    assert summary["command"].startswith("mirrormargin train digits/tiny")
    assert summary["epochs"] == training.epochs
    assert summary["selected_epoch"] == training.selected_epoch
    assert "selection" not in summary
