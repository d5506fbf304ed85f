"""``mirrormargin evaluate``: the loss and the accuracy that the library measures."""

import json
import shutil

import pytest

from mirrormargin.cli import main
from mirrormargin.data import load_data
from mirrormargin.training import evaluate, load_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a training that has ended."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    argv = ["train", "digits/tiny", "--epochs", "3", "--optimizer", "AdamW", "--threads", "1"]
    assert main([*argv, "--out", str(folder), "--no-test", "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("weights", ["selected", "final"])
def test_the_numbers_are_those_of_the_library(run, split, weights, capsys):
    argv = ["evaluate", str(run), "--split", split, "--weights", weights]
    assert main([*argv, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    data = load_data("digits")
    part = getattr(data, split)
    loss, accuracy = evaluate(load_model(run, weights=weights), part)
    assert (report["loss"], report["accuracy"]) == (loss, accuracy)
    assert (report["split"], report["weights"], report["examples"]) == (split, weights, len(part))
    assert main(argv) == 0
    head, row, _, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["accuracy", "loss", "examples", "data"]
    assert row.split() == [f"{accuracy:.2f}%", f"{loss:.4f}", f"{len(part):,}", "digits,", split]
    assert weights in last


def test_validation_is_the_default_and_what_training_reported(run, capsys):
    assert main(["evaluate", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    summary = json.loads((run / "summary.json").read_bytes())
    assert report["split"] == "validation"
    assert round(report["accuracy"], 4) == summary["validation"]["selected"]


def test_a_pruned_file_is_evaluated(run, tmp_path, capsys):
    out = tmp_path / "pruned.safetensors"
    argv = ["prune", str(run), "--share", "0.99", "--evaluate", "--out", str(out), "--json"]
    assert main(argv) == 0
    pruned = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(run), "--weights", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert round(report["accuracy"], 4) == pruned["accuracy"]["after"]
    assert main(["evaluate", str(run), "--weights", str(out)]) == 0
    assert capsys.readouterr().out.endswith(f"by the weights in {out}\n")


def test_data_that_has_changed_is_not_evaluated_on(run, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(run, changed)
    document = json.loads((changed / "config.json").read_text())
    document["data"]["sha256"] = dict.fromkeys(document["data"]["sha256"], "0" * 64)
    (changed / "config.json").write_text(json.dumps(document))
    assert main(["evaluate", str(changed)]) == 2
    assert "have changed since this training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "FOLDER is missing"),
        (["nowhere"], "nowhere holds no training on real data"),
        (["begun"], "the training has not ended"),
        (["RUN", "--split", "train"], 'Invalid value "train" for --split. Choose from:'),
        (["RUN", "--weights", "best"], "--weights is 'best': give selected, final"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(run, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/config.json").write_bytes((run / "config.json").read_bytes())
    assert main(["evaluate", *(word.replace("RUN", str(run)) for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
