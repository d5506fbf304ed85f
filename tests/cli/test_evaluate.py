"""``mirrormargin evaluate``: the loss and the accuracy that the library measures."""

import json
import math
import shutil

import pytest

from mirrormargin.cli import main
from mirrormargin.data import load_data
from mirrormargin.runs import seal
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


@pytest.fixture
def reviews(data_dir, tmp_path, capsys):
    """The folder of a training on texts of one's own, and the file."""
    words = ("bad", "good", "dull", "great")
    rows = [f"the plot was{' x' * k} {words[k % 4]}!,{('no', 'yes')[k % 2]}" for k in range(80)]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    argv = ["train", "sst2/small", "--data", str(path), "--out", str(tmp_path / "run"), "--quiet"]
    argv += ["--threads", "1", "--no-test", "--epochs", "2", "--batch-size", "8"]
    assert main(argv) == 0
    capsys.readouterr()
    return tmp_path / "run"


def test_a_labelled_file_is_scored_row_by_row(reviews, tmp_path, capsys):
    texts = ["the plot was good!", "the plot was dull!", "a great film", "a bad film"]
    assert main(["predict", str(reviews), *texts, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["predictions"]
    labels = ["yes", "no", "yes", "yes"]
    right = sum(answer["class"] == label for answer, label in zip(answers, labels, strict=True))
    loss = -sum(
        math.log(answer["probabilities"][label])
        for answer, label in zip(answers, labels, strict=True)
    )
    pairs = list(zip(texts, labels, strict=True))
    table = "\n".join(["review\tverdict", *("\t".join(pair) for pair in pairs)])
    lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in pairs)
    (tmp_path / "more.tsv").write_text(table)
    (tmp_path / "more.jsonl").write_text(lines)
    columns = ["--text-column", "review", "--label-column", "verdict"]
    for argv in ([tmp_path / "more.tsv", *columns], [tmp_path / "more.jsonl"]):
        assert main(["evaluate", str(reviews), "--data", *map(str, argv), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["accuracy"], report["examples"]) == (25 * right, 4)
        assert report["loss"] == pytest.approx(loss / 4, rel=1e-4)


def test_a_folder_of_images_is_scored(run, tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    data = load_data("digits")
    for number in range(30):
        name = data.classes[int(data.test.labels[number])]
        (tmp_path / "images" / name).mkdir(parents=True, exist_ok=True)
        picture = image.fromarray(data.test.inputs[number, 0].numpy())
        picture.save(tmp_path / "images" / name / f"{number}.png")
    argv = ["evaluate", str(run), "--data", str(tmp_path / "images")]
    assert main([*argv, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    loss, accuracy = evaluate(load_model(run), data.test, 30)
    assert (report["examples"], report["split"]) == (30, None)
    assert report["loss"] == pytest.approx(loss, rel=1e-5)
    assert report["accuracy"] == pytest.approx(accuracy)
    assert main(argv) == 0
    assert f"30  {tmp_path / 'images'}" in capsys.readouterr().out
    (tmp_path / "images" / "0").rename(tmp_path / "images" / "zero")
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "'zero' is no class of the model: give one of 0, 1, 2" in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\ngood,maybe\n", "line 2: 'maybe' is no class of the model: give one of no, y"),
        ("text,label\n", "holds no rows: there is nothing to evaluate"),
        ("text,verdict\ngood,yes\n", "line 2: there is no 'label', only 'text', 'verdict'"),
        ("text,label\n...,yes\n", None),
    ],
)
def test_a_file_that_cannot_be_scored_is_one_line(reviews, tmp_path, content, message, capsys):
    path = tmp_path / "more.csv"
    path.write_text(content)
    code = main(["evaluate", str(reviews), "--data", str(path)])
    assert code == (0 if message is None else 2)
    error = capsys.readouterr().err
    assert error == "" if message is None else message in error


def test_data_that_has_changed_is_not_evaluated_on(run, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(run, changed)
    document = json.loads((changed / "config.json").read_text())
    document["data"]["sha256"] = dict.fromkeys(document["data"]["sha256"], "0" * 64)
    (changed / "config.json").write_text(json.dumps(seal(document)))
    assert main(["evaluate", str(changed)]) == 2
    assert "have changed since this training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "FOLDER is missing"),
        (["nowhere"], "nowhere holds no training on real data"),
        (["begun"], "the training has not ended"),
        (["RUN", "--split", "all"], 'Invalid value "all" for --split. Choose from:'),
        (["RUN", "--weights", "best"], "--weights is 'best', which does not exist"),
        (["RUN", "--data", "nowhere"], "nowhere is no folder: give one with a folder of images"),
        (["RUN", "--data", "begun", "--split", "test"], "--split and --data are both given"),
        (["RUN", "--text-column", "a"], "--text-column and --label-column are for --data"),
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
