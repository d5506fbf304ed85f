"""``mirrormargin train``: the library's training, kept, resumed, printed."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from mirrormargin.cli import main
from mirrormargin.training.building import load_training_data
from mirrormargin.training.config import OptimizerConfig, Seeds
from mirrormargin.training.configurations import CONFIGURATIONS, find_configuration
from mirrormargin.training.loop import train_model

BASE = find_configuration("digits/tiny")
SHORT = ["--epochs", "2", "--num-train", "300", "--threads", "1"]
INTEGRATION = "mirrormargin.integrations.mlflow"
WEIGHTS = ("final.safetensors", "selected.safetensors")


def train(*argv):
    return main(["train", "digits/tiny", *SHORT, *map(str, argv)])


def read_weights(folder):
    return [(folder / name).read_bytes() for name in WEIGHTS]


def read_config(folder):
    return json.loads((folder / "config.json").read_bytes())["config"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a short training that has ended."""
    folder = tmp_path_factory.mktemp("real") / "run"
    assert train("--out", folder, "--json") == 0
    return folder


def test_the_training_is_that_of_the_library(finished, tmp_path):
    config = replace(BASE, epochs=2, data=replace(BASE.data, num_train=300))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train_model(config, load_training_data(config), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    assert read_weights(finished) == read_weights(tmp_path / "run")


def test_trackers_change_nothing(finished, tmp_path):
    pytest.importorskip("tensorboard")
    options = ("--tracker", "tensorboard", "--tensorboard", "--json", "--no-test")
    assert train("--out", tmp_path / "run", *options) == 0
    assert read_weights(tmp_path / "run") == read_weights(finished)
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def test_a_tracker_without_its_library_is_told_of_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for name in [one for one in sys.modules if one.startswith(("mlflow.", INTEGRATION))]:
        monkeypatch.delitem(sys.modules, name)
    assert train("--out", tmp_path / "run", "--tracker", "mlflow") == 2
    assert "pip install 'mirrormargin[mlflow]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_options_are_settings(tmp_path, capsys):
    argv = "--optimizer SGD --lr 0.05 --momentum 0.9 --weight-decay 0.01 --epochs 1 --batch-size 60"
    argv += " --schedule constant --warmup 0.1 --seed 3 --seed-order 4 --stop-accuracy 0.9"
    argv += " --paper-protocol --precision mixed --set frontier_size=50 --set clip=1.0 --json"
    argv = ["train", "digits/tiny", *argv.split(), "--num-train", "120", "--out", str(tmp_path)]
    assert main(argv) == 0
    expected = replace(
        BASE,
        data=replace(BASE.data, num_train=120),
        optimizer=OptimizerConfig("SGD", 0.05, momentum=0.9, weight_decay=0.01),
        epochs=1,
        batch_size=60,
        schedule="constant",
        warmup=0.1,
        seeds=Seeds(3, 4, 3),
        stop_accuracy=0.9,
        paper_protocol=True,
        precision="mixed",
        frontier_size=50,
        clip=1.0,
    )
    assert read_config(tmp_path) == json.loads(json.dumps(expected.as_dict()))
    report = json.loads(capsys.readouterr().out)
    assert report["digest"] == expected.digest()
    assert report["test"]["best"] == report["epochs"][0]["test_accuracy"]


def test_the_table_has_the_numbers_of_the_summary(finished, capsys):
    summary = json.loads((finished / "summary.json").read_bytes())
    assert train("--out", finished) == 0
    out = capsys.readouterr().out
    assert f"{finished} holds this training already" in out
    for part in ("validation", "test"):
        line = next(line for line in out.splitlines() if line.startswith(f"{part} "))
        numbers = [f"{summary[part][key]:.2f}%" for key in ("last", "selected")]
        assert line.split()[1:] == numbers
        for curve in summary[part]["frontier"].values():
            assert f"{curve[-1]:.2f}%" in out
    blocks = summary["weights"]["blocks"]
    line = next(line for line in out.splitlines() if line.startswith("all matrices of the blocks"))
    assert line.split()[5:7] == [f"{blocks['entries']:,}", f"{blocks['l1_l2']:.3f}"]
    assert "removed, last epoch" in out
    assert "has not learnt" in out
    assert f"mirrormargin predict {finished} INPUT" in out
    assert "mirrormargin prune" not in out


def test_settings_and_a_line_for_each_epoch_are_printed(tmp_path, capsys):
    assert train("--out", tmp_path / "run", "--no-test") == 0
    out = capsys.readouterr().out
    assert out.startswith("digits/tiny\n  data       digits: 300 to learn from")
    assert "  optimizer  MirrorAdam lr 0.003, p 1.1\n" in out
    summary = json.loads((tmp_path / "run/summary.json").read_bytes())
    lines = [line for line in out.splitlines() if line.startswith("epoch ")]
    assert lines == [
        f"epoch {row['epoch']}/2  loss {row['train_loss']:.4f}  accuracy"
        f" {row['train_accuracy']:.2f}%  validation {row['validation_accuracy']:.2f}%"
        for row in summary["epochs"]
    ]
    assert len(lines) == 2


def test_test_data_is_left_alone_until_it_is_asked_for(tmp_path, capsys):
    assert train("--out", tmp_path / "run", "--no-test", "--json") == 0
    assert "test" not in json.loads(capsys.readouterr().out)
    weights = read_weights(tmp_path / "run")
    assert train("--out", tmp_path / "run", "--json") == 0
    assert "last" in json.loads(capsys.readouterr().out)["test"]
    assert read_weights(tmp_path / "run") == weights


def test_the_folder_is_named_by_the_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train("--quiet") == 0
    config = replace(BASE, epochs=2, data=replace(BASE.data, num_train=300))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [
        f"digits-tiny-{config.digest()[:8]}"
    ]
    assert capsys.readouterr().out.startswith("accuracy")


START = "import sys; from mirrormargin.cli import main; sys.exit(main(sys.argv[1:]))"


def start(folder):
    argv = ["train", "digits/tiny", *SHORT, "--out", str(folder), "--checkpoint-every", "0"]
    return subprocess.Popen(
        [sys.executable, "-c", START, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(folder, count):
    """Until so many checkpoints have been seen to replace each other, or the training ended."""
    seen = set()
    end = time.monotonic() + 300
    path = folder / "checkpoint.safetensors"
    while len(seen) < count and not (folder / "summary.json").exists():
        assert time.monotonic() < end, "there never was a checkpoint"
        if path.exists():
            seen.add(path.stat().st_mtime_ns)
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_training_is_resumed_to_the_same_bits(finished, tmp_path, capsys):
    # Two kills at random moments, then one call to the end.
    generator = random.Random(0)
    folder = tmp_path / "run"
    for _ in range(2):
        process = start(folder)
        wait_for_checkpoint(folder, generator.randint(1, 3))
        process.kill()
        process.communicate(timeout=120)
    assert not (folder / "summary.json").exists(), "it ended before it was killed"
    assert train("--out", folder) == 0
    found = re.search(r"^resumed at step (\d+) of 12$", capsys.readouterr().out, re.MULTILINE)
    assert found is not None
    assert 1 <= int(found[1]) < 12
    assert read_weights(folder) == read_weights(finished)
    summary, expected = (
        json.loads((path / "summary.json").read_bytes()) for path in (folder, finished)
    )
    for document in (summary, expected):
        del document["seconds"], document["environment"], document["checksum"]
    assert summary == expected


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts are different")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="int"),
        pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_says_how_to_continue(tmp_path, number):
    folder = tmp_path / "run"
    argv = ["train", "digits/tiny", "--epochs", "100000", "--threads", "1", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", START, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_checkpoint(folder, 1)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    first, second = errors.splitlines()
    assert re.fullmatch(
        rf"mirrormargin: the same command with --out {re.escape(str(folder))} continues at step"
        r" [\d,]+",
        first,
    )
    word = "terminated" if number == signal.SIGTERM else "interrupted"
    assert second == f"mirrormargin: {word}"


def test_own_images_are_trained_on_and_a_change_of_them_is_noticed(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    generator = random.Random(0)
    for name, low in (("dark", 0), ("light", 128)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for k in range(30):
            picture = image.new("L", (8, 8))
            picture.putdata([generator.randint(low, low + 127) for _ in range(64)])
            picture.save(tmp_path / "images" / name / f"{k}.png")
    argv = ["train", "digits/tiny", "--epochs", "1", "--batch-size", "10", "--json"]
    argv += ["--data", str(tmp_path / "images"), "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["config"]["data"]["name"] == str((tmp_path / "images").resolve())
    (tmp_path / "run/summary.json").unlink()
    (tmp_path / "images/dark/0.png").write_bytes((tmp_path / "images/dark/1.png").read_bytes())
    assert main(argv) == 2
    assert "holds a training on other data, or its files have changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["digits/tin"], "there is no configuration 'digits/tin': there are imdb/"),
        (["digits"], "there is no configuration 'digits'"),
        (["digits/tin"], "; did you mean digits/tiny?"),
        (["nothing"], f"no configuration 'nothing': there are {next(iter(CONFIGURATIONS))}"),
        (["unit_sphere"], "a problem of the lab: train it with mirrormargin lab train unit_sphere"),
        (["problem.npz"], "a problem of the lab: train it with mirrormargin lab train problem.npz"),
        ([], "CONFIGURATION is missing"),
        (["digits/tiny", "--steps", "3"], "Unknown option: --steps"),
        (["digits/tiny", "--joint"], "Unknown option: --joint"),
        (["digits/tiny", "--epcohs", "3"], "Unknown option: --epcohs. Did you mean --epochs?"),
        (["digits/tiny", "--p", "1.1", "2"], "'2' is more than this command takes"),
        (["digits/tiny", "--p", "1"], "--p: p is 1.0: give a number above 1 and below inf"),
        (["digits/tiny", "--seed", "1-3"], "--seed: the value is '1-3': give an integer >= 0"),
        (["digits/tiny", "--set", "optimizer.rate=1"], "no setting 'optimizer.rate': there are"),
        (["digits/tiny", "--set", "epochs"], "a setting is given as name=value"),
        (["digits/tiny", "--set", "optimizer.lr=fast"], "optimizer.lr is 'fast': give float"),
        (["digits/tiny", "--set", "compile=1"], "compile is 1: give bool"),
        (
            ["digits/tiny", "--set", "clip=abc"],
            "clip is the largest norm of a gradient, above 0, got 'abc'",
        ),
        (["digits/tiny", "--lr", "1", "--set", "optimizer.lr=1"], "optimizer.lr is given twice"),
        (
            ["digits/tiny", "--optimizer", "Lion"],
            'Invalid value "Lion" for --optimizer. Choose from: "MirrorDescent"',
        ),
        (["digits/tiny", "--optimizer", "AdamW", "--p", "3"], "AdamW has no p"),
        (["digits/tiny", "--warmup", "2"], "warmup is a share in [0, 1], got 2.0"),
        (["digits/tiny", "--data", "nowhere.csv"], "the file nowhere.csv does not exist"),
        (["digits/tiny", "--set", "name=foo"], "name cannot be set"),
        (["digits/tiny", "--set", "optimizer=3"], "change them one by one, optimizer."),
        (["digits/tiny", "--set", "sparsifier=L1Penalty"], '{"kind": "L1Penalty", "strength"'),
        (["digits/tiny", "--set", "optimizer.groups=3"], '[["blocks.*", {"p": 1.1}]]'),
        (["digits/tiny", "--set", "model.patch=0"], "patch is a whole number, at least 1"),
        (["digits/tiny", "--set", "model.init_std=-1"], "init_std is a standard deviation"),
        (["digits/tiny", "--set", "model.dropout=1"], "dropout is a rate of dropout"),
        (["digits/tiny", "--set", "frontier_size=0"], "frontier_size is a whole number"),
        (["digits/tiny", "--seed", str(2**70)], "seeds.init is a whole number, 0 to 2^63 - 1"),
        (["digits/tiny", "--optimizer", "SGD"], "--optimizer SGD needs a learning rate"),
        (["digits/tiny", "--paper-protocol", "--no-test"], "leave out one"),
        (["digits/tiny", "--text-column", "review"], "--text-column is for a file of your own"),
        (
            ["sst2/small", "--data", "nofile.csv", "--text-column", "review"],
            "--data: the file nofile.csv does not exist",
        ),
        (
            ["sst2/small", "--data", "other/notes.txt"],
            "--data is other/notes.txt: give .csv, .tsv or .jsonl (also .gz, .xz)",
        ),
        (["sst2/small", "--data", "ssst2", "--text-column", "review"], "there is no data set"),
        (["digits/tiny", "--out", "other"], "other holds other things than a training"),
        (["digits/tiny", "--out", "file/run"], "cannot be written"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("")
    (tmp_path / "file").write_text("")
    assert main(["train", *argv, *["--quiet"]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_another_training_in_the_folder_is_refused_and_left_alone(finished, capsys):
    before = {path: path.read_bytes() for path in finished.iterdir()}
    assert train("--out", finished, "--lr", "0.1", "--quiet") == 2
    assert "holds another training (different: optimizer.lr)" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in finished.iterdir()} == before


def test_a_cuda_device_that_is_not_there_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert train("--out", tmp_path / "run", "--device", "cuda") == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_show_lists_every_setting_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["train", "digits/tiny", "--lr", "0.01", "--set", "model.dropout=0.5", "--show"]
    assert main(argv) == 0
    name, *lines = capsys.readouterr().out.splitlines()
    assert name == "digits/tiny"
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert (shown["optimizer.lr"], shown["model.dropout"]) == ("0.01", "0.5")
    assert main([*argv, "--json"]) == 0
    expected = replace(
        BASE,
        optimizer=replace(BASE.optimizer, lr=0.01),
        model=replace(BASE.model, dropout=0.5),
    )
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.as_dict()))
    # Each of them can be given back.
    for setting, value in shown.items():
        if not setting.endswith("_column"):  # of a file
            assert main(["train", "digits/tiny", "--set", f"{setting}={value}", "--show"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_help_lists_all_configurations(capsys):
    assert main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert [name for name in CONFIGURATIONS if name not in out] == []


def test_the_lab_names_the_command_that_resumes_it(tmp_path, capsys):
    folder = tmp_path / "my run"
    argv = ["train", "digits/tiny", "--epochs", "1", "--lr", "0.002", "--no-test", "--quiet"]
    assert main([*argv, "--out", str(folder)]) == 0
    capsys.readouterr()
    assert main(["lab", "train", "--resume", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "holds a training on real data; resume it with mirrormargin train digits/tiny" in error
    command = error.rsplit("resume it with ", 1)[1].strip()
    assert main([*shlex.split(command)[1:], "--no-test", "--quiet"]) == 0
