"""The folder of a training: what it says of itself, what it keeps, and whom it refuses."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mirrormargin.data import load_data
from mirrormargin.errors import RunError, TrainingError
from mirrormargin.training.config import DataConfig, ImageModel, OptimizerConfig, TrainingConfig
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model

CONFIG = TrainingConfig(
    name="digits/tiny",
    data=DataConfig("digits", num_train=60),
    model=ImageModel(4, 8, 1, 2, 8, dropout=0.0),
    optimizer=OptimizerConfig("SGD", 0.05),
    epochs=2,
    batch_size=20,
)


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=60)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    folder = TrainingFolder(tmp_path_factory.mktemp("finished") / "run")
    train_model(CONFIG, data, folder)
    return folder


def stop_at_2(step, *_):
    if step == 2:
        raise KeyboardInterrupt


def test_the_status_says_how_far_a_training_is(data, tmp_path):
    folder = TrainingFolder(tmp_path / "run")
    assert folder.status == "empty"
    with folder.hold():
        assert folder.status == "empty"
        folder.claim(CONFIG, data)
        assert folder.status == "begun"
    assert folder.read_step() is None
    with pytest.raises(KeyboardInterrupt):
        train_model(CONFIG, data, folder, on_step=stop_at_2)
    assert folder.status == "resumable"
    assert not folder.is_finished
    assert folder.read_step() == 2
    train_model(CONFIG, data, folder)
    assert folder.status == "finished"
    assert folder.is_finished
    assert folder.read_step() == 6


@pytest.mark.filterwarnings("ignore:.*has no checksum")
def test_other_things_and_damage_are_told_apart(data, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("")
    foreign = TrainingFolder(tmp_path / "foreign")
    assert foreign.status == "foreign"
    with pytest.raises(TrainingError, match="holds other things than a training"):
        foreign.claim(CONFIG, data)
    for number, text in enumerate(("", "[]", "{}", '{"config": {}}', '{"config": 3}')):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(text)
        assert TrainingFolder(folder).status == "damaged"
        with pytest.raises(TrainingError, match=r"config\.json is damaged"):
            TrainingFolder(folder).read_config()
        with pytest.raises(TrainingError, match="choose another folder, or remove this one"):
            TrainingFolder(folder).claim(CONFIG, data)


@pytest.mark.parametrize("name", ["", "nowhere", "x" * 500, "a file"])
def test_what_is_no_folder_is_empty_and_read_as_nothing(tmp_path, name):
    (tmp_path / "a file").write_text("")
    folder = TrainingFolder(tmp_path / name / "run")
    assert folder.status == "empty"
    assert folder.read_summary() is None
    with pytest.raises(TrainingError, match="holds no training on real data"):
        folder.read_config()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "a file").write_text("")
    with (
        pytest.raises(TrainingError, match="cannot be made: Not a directory"),
        TrainingFolder(tmp_path / "a file" / "run").hold(),
    ):
        pass


def test_a_folder_is_held_by_one_thread(tmp_path):
    folder = TrainingFolder(tmp_path)

    def hold_elsewhere():
        with pytest.raises(RunError, match="another command"), folder.hold():
            pass

    with folder.hold(), folder.hold(), ThreadPoolExecutor(1) as pool:
        pool.submit(hold_elsewhere).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(folder.clear).result()


def test_what_is_written_is_read_back(finished, data):
    assert finished.read_config() == CONFIG
    assert finished.knows(data)
    assert not finished.knows(replace(data, sha256={"digits": "0"}))
    assert finished.read_inputs().classes == data.classes
    for name in ("final", "selected"):
        weights, config = finished.read_weights(name)
        assert config == CONFIG
        assert "head.weight" in weights
    kinds = [row["kind"] for row in finished.read_metrics()]
    assert kinds.count("epoch") == len(finished.read_metrics("epoch")) == 2
    parts, document = finished.read_checkpoint()
    assert {"model", "selected", "random"} <= parts.keys()
    assert document["digest"] == CONFIG.digest()


def test_a_summary_is_whole_or_absent(finished):
    assert finished.read_summary() is None
    finished.write_summary({"seconds": 1.5})
    assert finished.read_summary() == {"seconds": 1.5}
    with pytest.raises(ValueError, match="JSON compliant"):
        finished.write_summary({"seconds": float("nan")})
    assert finished.read_summary() == {"seconds": 1.5}
    path = finished.path / "summary.json"
    path.write_text('{"seconds": 1')
    with pytest.raises(TrainingError, match=r"summary\.json is damaged"):
        finished.read_summary()
    path.unlink()


def test_what_a_training_has_not_written_yet_is_named(tmp_path, data):
    folder = TrainingFolder(tmp_path / "run")
    with folder.hold():
        folder.claim(CONFIG, data)
    assert folder.read_checkpoint() is None
    for read in (folder.read_weights, folder.read_inputs):
        with pytest.raises(TrainingError, match="the training has not ended"):
            read()
    with pytest.raises(TrainingError, match=r"metrics\.jsonl cannot be read"):
        folder.read_metrics()


def test_own_files_are_known_and_pruned_ones_are_not_own(finished):
    for path in finished.path.iterdir():
        assert finished.owns(path)
    pruned = finished.name_pruned(0.95, "sparse")
    assert pruned.name == "pruned-0.95.sparse.safetensors"
    assert not finished.owns(pruned)
    assert finished.owns(finished.path / "sub" / ".." / "final.safetensors")


def test_the_name_of_a_folder_tells_configurations_apart():
    name = TrainingFolder.choose(CONFIG).path.as_posix()
    assert name == f"runs/digits-tiny-{CONFIG.digest()[:8]}"
    assert TrainingFolder.choose(replace(CONFIG, epochs=3)).path.as_posix() != name


def test_a_folder_is_a_path(finished):
    assert Path(finished) == finished.path
    assert TrainingFolder(finished).path == finished.path
    assert json.loads((Path(finished) / "config.json").read_bytes())["digest"] == CONFIG.digest()
