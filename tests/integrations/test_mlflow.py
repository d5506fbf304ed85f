"""MLflow keeps every setting and every row of a training, once, however often it is resumed."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import pytest
from tracked_training import CONFIG, interrupt_at, list_values, train_until_killed

from mirrormargin.data import load_data
from mirrormargin.errors import TrainingError
from mirrormargin.training import TrainingFolder, train_model

WHY = "mlflow is not installed: make test-integrations installs and tests it"
pytest.importorskip("mlflow", reason=WHY)

from mlflow.tracking import MlflowClient  # noqa: E402

from mirrormargin.integrations.mlflow import MLflowTracker  # noqa: E402


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # what it calls its store in files
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)


@pytest.fixture
def uri(tmp_path):
    return (tmp_path / "store").as_uri()


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


def read_run(uri, run_id):
    """The run, and name, step and value of each of its metrics."""
    client = MlflowClient(uri)
    run = client.get_run(run_id)
    rows = Counter(
        (name, one.step, one.value)
        for name in run.data.metrics
        for one in client.get_metric_history(run_id, name)
    )
    return run, rows


def list_runs(uri, experiment="mirrormargin"):
    client = MlflowClient(uri)
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def check(uri, tracker, folder, status="FINISHED"):
    run, rows = read_run(uri, tracker.run_id)
    assert rows == Counter(list_values(folder))
    assert run.info.status == status
    return run


def test_a_run_has_the_settings_and_every_row(uri, data, tmp_path):
    tracker = MLflowTracker(uri, experiment="digits")
    train_model(CONFIG, data, tmp_path / "mine", trackers=[tracker])
    run = check(uri, tracker, tmp_path / "mine")
    assert run.info.run_name == "mine"
    assert run.data.params["optimizer.lr"] == "0.05"
    assert run.data.params["configuration"] == "digits/tiny"
    assert run.data.params["clip"] == "null"
    assert [one.info.run_id for one in list_runs(uri, "digits")] == [tracker.run_id]


@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy
def test_the_store_that_mlflow_has_by_default_works_too(data, tmp_path):
    pytest.importorskip("sqlalchemy", reason=WHY)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = MLflowTracker(uri)
    train_model(CONFIG, data, tmp_path / "mine", trackers=[tracker])
    check(uri, tracker, tmp_path / "mine")


def test_a_training_that_is_resumed_continues_its_run(uri, data, tmp_path):
    home, copy = tmp_path / "mine", tmp_path / "copy"
    tracker = MLflowTracker(uri)
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, home, trackers=[tracker], on_step=interrupt_at(4))
    check(uri, tracker, home, status="KILLED")
    shutil.copytree(home, copy)
    for folder in (home, copy):  # the copy sends rows again, as one does that was killed
        again = MLflowTracker(uri)
        train_model(CONFIG, data, folder, trackers=[again])
        assert again.run_id == tracker.run_id
        check(uri, again, folder)
    assert len(list_runs(uri)) == 1


def test_a_training_that_was_killed_has_every_row_once(uri, data, tmp_path):
    train_until_killed(
        tmp_path / "mine",
        f"MLflowTracker({uri!r})",
        last=5,
        imports="from mirrormargin.integrations.mlflow import MLflowTracker",
    )
    tracker = MLflowTracker(uri)
    train_model(CONFIG, data, tmp_path / "mine", trackers=[tracker])
    check(uri, tracker, tmp_path / "mine")
    assert len(list_runs(uri)) == 1


def test_a_training_that_becomes_longer_keeps_its_run_and_says_so(uri, data, tmp_path):
    tracker = MLflowTracker(uri)
    train_model(CONFIG, data, tmp_path / "mine", trackers=[tracker])
    train_model(replace(CONFIG, epochs=3), data, tmp_path / "mine", trackers=[MLflowTracker(uri)])
    run = check(uri, tracker, tmp_path / "mine")
    assert (run.data.params["epochs"], run.data.tags["epochs"]) == ("2", "3")


def test_a_run_that_was_deleted_or_belongs_to_another_store_begins_again(uri, data, tmp_path):
    home, first = tmp_path / "mine", MLflowTracker(uri)
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, home, trackers=[first], on_step=interrupt_at(4))
    MlflowClient(uri).delete_run(first.run_id)
    second = MLflowTracker(uri)
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, home, trackers=[second], on_step=interrupt_at(5))
    assert second.run_id != first.run_id
    check(uri, second, home, status="KILLED")
    elsewhere = (tmp_path / "elsewhere").as_uri()
    third = MLflowTracker(elsewhere)
    train_model(CONFIG, data, home, trackers=[third])
    check(elsewhere, third, home)


def test_a_training_that_is_replaced_gets_a_run_of_its_own(uri, data, tmp_path):
    for _ in range(2):
        TrainingFolder(tmp_path / "mine").clear()
        train_model(CONFIG, data, tmp_path / "mine", trackers=[MLflowTracker(uri)])
    assert len(list_runs(uri)) == 2


def test_a_server_that_is_not_there_is_told_before_the_first_step(data, tmp_path):
    tracker = MLflowTracker("http://127.0.0.1:9")
    with pytest.raises(TrainingError, match=r"MLflow cannot keep this training: .*127\.0\.0\.1"):
        train_model(CONFIG, data, tmp_path, trackers=[tracker])
    assert TrainingFolder(tmp_path).status == "begun"
    train_model(CONFIG, data, tmp_path)
