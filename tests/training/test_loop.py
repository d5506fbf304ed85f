"""The training loop: what it learns, keeps, refuses, and leaves alone."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mirrormargin.data import Split, load_data, order_epoch
from mirrormargin.errors import DivergedError, RunError, TrainingError
from mirrormargin.runs import hold_lock
from mirrormargin.training.attention_spread import measure_attention
from mirrormargin.training.building import build_model, load_model
from mirrormargin.training.config import (
    DataConfig,
    ImageModel,
    OptimizerConfig,
    Seeds,
    TextModel,
    TrainingConfig,
)
from mirrormargin.training.evaluation import evaluate
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.pruning import prune
from mirrormargin.training.tensor_files import read_tensors, save_pruned

CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=100),
    model=ImageModel(4, 16, 1, 2, 32, dropout=0.0),
    optimizer=OptimizerConfig("SGD", 0.05),
    epochs=2,
    batch_size=30,
)


class Forbidden:
    """A split that nobody may look at."""

    def __len__(self):
        raise AssertionError("the test split was read")

    inputs = labels = property(__len__)


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


def test_training_is_a_plain_loop(data, tmp_path):
    training = train_model(CONFIG, data, tmp_path)
    model = build_model(CONFIG, data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        losses, right = [], 0
        for batch in order_epoch(0, epoch, 100, 30):
            labels = data.train.labels[batch]
            logits = model(data.train.inputs[batch])
            loss = torch.nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            right += int((logits.argmax(1) == labels).sum())
        row = training.epochs[epoch]
        assert row["train_loss"] == pytest.approx(sum(losses) / 3, abs=1e-5)
        assert row["train_accuracy"] == pytest.approx(100 * right / 90, abs=1e-3)
        loss, accuracy = evaluate(model, data.validation)
        assert row["validation_loss"] == pytest.approx(loss, abs=1e-5)
        assert row["validation_accuracy"] == pytest.approx(accuracy, abs=1e-3)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(training.final[name], weight, rtol=1e-5, atol=1e-6)


def test_folder_holds_what_the_training_returns(data, tmp_path):
    training = train_model(CONFIG, data, tmp_path)
    for name, weights in (("final", training.final), ("selected", training.selected)):
        found, document = read_tensors(tmp_path / f"{name}.safetensors")
        assert TrainingConfig.from_dict(document["config"]) == CONFIG
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], weights[key]) for key in weights)
    rows = TrainingFolder(tmp_path).read_metrics()
    assert [{"kind": "epoch", "step": 3 * row["epoch"], **row} for row in training.epochs] == [
        row for row in rows if row["kind"] == "epoch"
    ]
    assert [row["step"] for row in rows if row["kind"] == "steps"] == [1, 2, 3, 4, 5, 6]


def test_selected_weights_are_those_of_the_best_epoch(data, tmp_path):
    # At this rate the accuracy goes up and down.
    config = replace(CONFIG, epochs=8, optimizer=OptimizerConfig("SGD", 1.0))
    training = train_model(config, data, tmp_path)
    accuracies = [row["validation_accuracy"] for row in training.epochs]
    assert training.selected_epoch == 1 + accuracies.index(max(accuracies))
    model = build_model(config, data)
    model.load_state_dict(training.selected)
    assert evaluate(model, data.validation)[1] == pytest.approx(max(accuracies), abs=1e-3)


def test_each_step_is_reported(data, tmp_path):
    seen = []
    train_model(CONFIG, data, tmp_path, on_step=lambda *known: seen.append(known))
    assert [step for step, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert {num_steps for _, num_steps, _ in seen} == {6}
    assert [known["epoch"] for _, _, known in seen] == [1, 1, 1, 2, 2, 2]
    assert seen[0][2]["validation_accuracy"] is None
    assert seen[-1][2]["validation_accuracy"] is not None


def test_random_numbers_of_the_caller_are_left_alone(data, tmp_path):
    config = replace(CONFIG, augment=True, model=replace(CONFIG.model, dropout=0.1))
    before = torch.get_rng_state()
    train_model(config, data, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_result_does_not_depend_on_the_random_numbers_of_the_caller(data, tmp_path):
    config = replace(CONFIG, augment=True, model=replace(CONFIG.model, dropout=0.1))
    results = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            results.append(train_model(config, data, tmp_path / str(seed)).final)
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_each_seed_changes_its_own_part_only(data, tmp_path):
    config = replace(CONFIG, epochs=1, model=replace(CONFIG.model, dropout=0.3))

    def start(seeds):
        return build_model(replace(config, seeds=seeds), data).state_dict()["head.weight"]

    def first_loss(seeds):
        folder = tmp_path / f"{seeds.init}{seeds.order}{seeds.dropout}"
        train_model(replace(config, seeds=seeds), data, folder)
        return TrainingFolder(folder).read_metrics()[0]["train_loss"]

    base = Seeds(0, 0, 0)
    assert torch.equal(start(Seeds(0, 1, 1)), start(base))
    assert not torch.equal(start(Seeds(1, 0, 0)), start(base))
    losses = {first_loss(s) for s in (base, Seeds(1, 0, 0), Seeds(0, 1, 0), Seeds(0, 0, 1))}
    assert len(losses) == 4
    # Without dropout its seed changes nothing.
    plain = replace(CONFIG, epochs=1)
    one = train_model(plain, data, tmp_path / "one").final
    two = train_model(replace(plain, seeds=Seeds(0, 0, 5)), data, tmp_path / "two").final
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_training_stops_at_the_training_accuracy_that_is_enough(data, tmp_path):
    config = replace(CONFIG, epochs=5, stop_accuracy=0.01)
    assert len(train_model(config, data, tmp_path / "easy").epochs) == 1
    hard = replace(config, epochs=3, stop_accuracy=1.0)
    assert len(train_model(hard, data, tmp_path / "hard").epochs) == 3


def test_training_stops_at_the_training_loss_that_is_enough(data, tmp_path):
    config = replace(CONFIG, epochs=5, stop_loss=100.0)
    assert len(train_model(config, data, tmp_path / "easy").epochs) == 1
    hard = replace(config, epochs=3, stop_loss=1e-6)
    assert len(train_model(hard, data, tmp_path / "hard").epochs) == 3


def test_levels_are_reached_by_the_mean_over_one_epoch_of_batches(data, tmp_path):
    config = replace(CONFIG, epochs=40, optimizer=OptimizerConfig("Adam", 1e-2))
    train_model(config, data, tmp_path)
    rows = TrainingFolder(tmp_path).read_metrics()
    losses = [row["train_loss"] for row in rows if row["kind"] == "steps"]
    assert len(losses) == 120  # each is one batch's
    means = [sum(losses[k - 3 : k]) / 3 for k in range(3, 121)]
    levels = [row for row in rows if row["kind"] == "level"]
    assert [row["train_loss"] for row in levels[:2]] == [0.5, 0.1]
    for row in levels:
        first = next(k for k, mean in enumerate(means, 3) if mean <= row["train_loss"] + 1e-6)
        assert row["step"] == first


def test_validation_size_is_what_epochs_are_evaluated_on(data, tmp_path):
    training = train_model(replace(CONFIG, epochs=1, validation_size=20), data, tmp_path)
    model = build_model(CONFIG, data)
    model.load_state_dict(training.final)
    loss, _ = evaluate(model, data.validation, 20)
    assert training.epochs[0]["validation_loss"] == pytest.approx(loss, abs=1e-5)


def test_attention_is_measured_before_and_after_every_epoch(data, tmp_path):
    config = replace(CONFIG, attention_size=10)
    training = train_model(config, data, tmp_path / "measured")
    rows = [
        row
        for row in TrainingFolder(tmp_path / "measured").read_metrics()
        if row["kind"] == "attention"
    ]
    assert [row["step"] for row in rows] == [0, 3, 6]
    model = build_model(config, data)
    first = measure_attention(model, data.train, 10)
    assert {key: rows[0][key] for key in first} == first
    model.load_state_dict(training.final)
    last = measure_attention(model, data.train, 10)
    assert {key: rows[-1][key] for key in last} == last
    # Looking changes nothing.
    plain = train_model(CONFIG, data, tmp_path / "plain")
    assert all(torch.equal(plain.final[name], training.final[name]) for name in plain.final)


def test_test_split_is_never_read_while_training(data, tmp_path):
    hidden = replace(data, test=Forbidden())
    training = train_model(CONFIG, hidden, tmp_path)
    assert not any("test_accuracy" in row for row in training.epochs)


def test_paper_protocol_evaluates_test_examples_after_every_epoch(data, tmp_path):
    config = replace(CONFIG, paper_protocol=True, protocol_size=60)
    training = train_model(config, data, tmp_path)
    model = build_model(config, data)
    model.load_state_dict(training.final)
    wanted = evaluate(model, data.test, 60)[1]
    assert training.epochs[-1]["test_accuracy"] == pytest.approx(wanted, abs=1e-3)
    assert len([row for row in training.epochs if "test_accuracy" in row]) == 2
    with pytest.raises(AssertionError, match="test split was read"):
        train_model(config, replace(data, test=Forbidden()), tmp_path / "hidden")


@pytest.mark.parametrize("optimizer", ["SGD", "MirrorDescent"])
def test_diverging_training_names_its_learning_rate(data, tmp_path, optimizer):
    config = replace(CONFIG, optimizer=OptimizerConfig(optimizer, 1e30), epochs=20)
    with pytest.raises(DivergedError, match=r"learning rate than 1e\+30"):
        train_model(config, data, tmp_path)


def test_diverging_training_with_p_near_1_names_p_too(data, tmp_path):
    config = replace(CONFIG, optimizer=OptimizerConfig("MirrorDescent", 1e30, p=1.05), epochs=20)
    with pytest.raises(DivergedError, match=r"than 1e\+30, or p nearer to 2 than 1\.05"):
        train_model(config, data, tmp_path)


def test_folder_of_another_training_is_refused_and_the_setting_named(data, tmp_path):
    train_model(CONFIG, data, tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    other = replace(CONFIG, optimizer=OptimizerConfig("SGD", 0.1), clip=1.0)
    with pytest.raises(TrainingError, match=r"different: optimizer\.lr, clip"):
        train_model(other, data, tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before


def test_other_data_in_the_same_folder_is_refused(data, tmp_path):
    train_model(CONFIG, data, tmp_path)
    fewer = replace(data, train=Split(data.train.inputs[:40], data.train.labels[:40]))
    others = replace(data, sha256={"digits.csv.gz": "0" * 64})
    for other in (fewer, others):
        with pytest.raises(TrainingError, match="holds a training on other data"):
            train_model(CONFIG, other, tmp_path)


def test_a_trained_model_is_loaded_with_the_weights_that_are_asked_for(data, tmp_path):
    training = train_model(CONFIG, data, tmp_path / "run")
    for weights, expected in (("selected", training.selected), ("final", training.final)):
        model = load_model(tmp_path / "run", data, weights)
        assert not model.training
        assert all(torch.equal(v, expected[k]) for k, v in model.state_dict().items())
    prune(training.final, 0.9)
    save_pruned(training.final, tmp_path / "pruned.safetensors", "sparse")
    model = load_model(tmp_path / "run", data, str(tmp_path / "pruned.safetensors"))
    assert all(torch.equal(v, training.final[k]) for k, v in model.state_dict().items())
    with pytest.raises(TrainingError, match="does not exist"):
        load_model(tmp_path, data)
    inputs = data.test.inputs[:5]
    expected = load_model(tmp_path / "run", data)(inputs)
    assert torch.equal(load_model(tmp_path / "run")(inputs), expected)
    (tmp_path / "run" / "inputs.json").write_text('{"name": "dig')
    with pytest.raises(TrainingError, match=r"inputs\.json is damaged"):
        load_model(tmp_path / "run")


def test_two_processes_cannot_train_in_one_folder(data, tmp_path):
    code = f"""
import sys
from pathlib import Path
from mirrormargin.runs import hold_lock
with hold_lock(Path({str(tmp_path / ".lock")!r}), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="another command is writing"):
            train_model(CONFIG, data, tmp_path)
        assert not (tmp_path / "metrics.jsonl").exists()
        holder.communicate()
    assert len(train_model(CONFIG, data, tmp_path).epochs) == 2


def test_folder_is_held_while_training_and_free_afterwards(data, tmp_path):
    def look(step, num_steps, known):
        with pytest.raises(RunError), hold_lock(tmp_path / ".lock", wait=False):
            pass

    train_model(CONFIG, data, tmp_path, on_step=look)
    with hold_lock(tmp_path / ".lock", wait=False):
        pass


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "config.json"])
def test_damaged_file_of_a_folder_is_named(data, tmp_path, name):
    train_model(CONFIG, data, tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TrainingError, match=f"{name} is damaged"):
        train_model(CONFIG, data, tmp_path)


def test_checkpoint_of_another_training_is_refused(data, tmp_path):
    train_model(CONFIG, data, tmp_path / "one")
    other = replace(CONFIG, seeds=Seeds(1, 1, 1))
    train_model(other, data, tmp_path / "two")
    (tmp_path / "one" / "checkpoint.safetensors").replace(tmp_path / "two/checkpoint.safetensors")
    with pytest.raises(TrainingError, match="belongs to another training"):
        train_model(other, data, tmp_path / "two")


def test_config_file_has_the_digest(data, tmp_path):
    train_model(CONFIG, data, tmp_path)
    document = json.loads((tmp_path / "config.json").read_bytes())
    assert document["digest"] == CONFIG.digest()
    assert TrainingConfig.from_dict(document["config"]) == CONFIG


def test_model_for_other_data_is_refused(data, tmp_path):
    config = replace(CONFIG, model=TextModel(16, 1, 2))
    with pytest.raises(TrainingError, match="model for texts, but digits holds images"):
        train_model(config, data, tmp_path)


def test_digits_are_learnt(tmp_path):
    from mirrormargin.training.configurations import find_configuration

    config = replace(find_configuration("digits/tiny"), epochs=5)
    training = train_model(config, load_data("digits"), tmp_path)
    assert training.epochs[-1]["validation_accuracy"] > 50  # chance is 10
    losses = [row["train_loss"] for row in training.epochs]
    assert losses == sorted(losses, reverse=True)


def test_weights_that_blow_up_in_the_last_step_are_noticed(data, tmp_path):
    config = replace(
        CONFIG, epochs=1, batch_size=100, optimizer=OptimizerConfig("SGD", float("1e38"))
    )
    with pytest.raises(DivergedError, match=r"in step 1: .* than 1e\+38"):
        train_model(config, data, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": OptimizerConfig("MirrorAdam", -1.0)},
        {"optimizer": OptimizerConfig("MirrorAdam", 1e-3, momentum=0.9)},
        {"model": replace(CONFIG.model, patch=3)},
    ],
)
def test_settings_that_do_not_fit_leave_no_folder_behind(data, tmp_path, wrong):
    with pytest.raises(ValueError):
        train_model(replace(CONFIG, **wrong), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
