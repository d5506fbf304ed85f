"""A file of one's own, as a user types it: train, evaluate, prune, predict, resume."""

import gzip
import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mirrormargin.cli import main
from mirrormargin.cli.own_data import describe_texts
from mirrormargin.cli.training_summary import describe_failure
from mirrormargin.data import load_data
from mirrormargin.training.configurations import find_configuration

SMALL = (
    *("--set", "model.width=16", "--set", "model.num_layers=1", "--set", "model.num_heads=1"),
    *("--threads", "1"),
)


def make_texts(count, seed=0):
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        label = ("bad", "good")[number % 2]
        word = rng.choice(("dull", "awful") if label == "bad" else ("lovely", "superb"))
        others = [rng.choice(("the", "film", "plot", "cast", "scene")) for _ in range(8)]
        rows.append((" ".join([*others, f"x{number}", word]), label))
    return rows


def write_csv(path, rows):
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def run(capsys, *argv):
    """Exit code, stdout and stderr of a command line."""
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A machine without any data, and the user's folder."""
    monkeypatch.delenv("MIRRORMARGIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a CSV of 60 texts and a short training on it in runs/a."""
    home = tmp_path_factory.mktemp("own")
    write_csv(home / "mine.csv", make_texts(60))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MIRRORMARGIN_DATA", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        argv = ["train", "sst2/small", "--data", str(home / "mine.csv"), *SMALL, "--lr", "0.01"]
        argv += ["--epochs", "2", "--schedule", "constant", "--warmup", "0"]
        assert main([*argv, "--out", str(home / "a"), "--quiet"]) == 0
    return home


@pytest.mark.parametrize("name", ["imdb/tiny", "imdb/small"])
def test_sizes_of_a_configuration_are_not_those_of_a_file(empty, capsys, name):
    """The configuration has 10,000 examples, batches of 100 and a vocabulary to download."""
    write_csv(empty / "mine.csv", make_texts(500))
    code, out, err = run(capsys, "train", name, "--data", "mine.csv", "--show", "--json")
    assert (code, err) == (0, "")
    config = json.loads(out)
    assert config["data"]["num_train"] is None
    assert config["data"]["vocabulary"] == "words"
    assert config["batch_size"] == 12
    assert config["epochs"] * (400 // config["batch_size"]) >= 300
    argv = ("--num-train", 100, "--batch-size", 50, "--epochs", 3)
    code, out, _ = run(capsys, "train", name, "--data", "mine.csv", "--show", "--json", *argv)
    config = json.loads(out)
    assert (config["data"]["num_train"], config["batch_size"], config["epochs"]) == (100, 50, 3)


def test_what_was_done_to_the_file_is_said(empty, capsys):
    rows = make_texts(100)
    long = [(f"the plot {'of it ' * number}", "good") for number in range(10, 40)]
    write_csv(empty / "mine.csv", [*rows, *long, ("", "bad"), (" ", "good"), rows[0]])
    argv = ("--epochs", 1, "--batch-size", 52, "--precision", "mixed", "--length", 12, *SMALL)
    code, out, err = run(capsys, "train", "imdb/tiny", "--data", "mine.csv", "--out", "a", *argv)
    assert (code, err) == (0, "")
    lines = " ".join(out.split())
    assert "mine.csv: 130 texts: 104 to learn from, 13 to validate, 13 to test; 2 classes" in lines
    assert "dropped 2 empty, 1 repeated" in lines
    assert "23% of texts are cut at 12 words; --length 80 keeps 99% whole" in lines
    assert "precision mixed" in lines
    assert "only 2 steps in all: try a smaller --batch-size, or more --epochs" in lines
    assert "1 epoch of 2 steps" in lines
    assert "has not learnt: always saying the most frequent class gets" in lines
    assert "try another --lr than 0.0008" in lines


@pytest.mark.parametrize(
    ("validation", "training", "says"),
    [(55.0, 52.0, "has not learnt"), (55.0, 99.0, "has learnt its training data"), (90, 95, None)],
)
def test_a_training_that_ended_at_chance_says_so(validation, training, says):
    summary = {
        "chance": {"accuracy": 50.0, "examples": 50},
        "validation": {"selected": validation},
        "epochs": [{"train_accuracy": training}],
        "config": {"optimizer": {"lr": 0.1}},
    }
    lines = describe_failure(summary)
    assert (lines == []) if says is None else lines[0].startswith(says)


def test_a_test_file_and_compressed_files(empty, capsys):
    """A test file is all of the test split, and evaluate reads .gz."""
    rows = make_texts(60)
    packed = gzip.compress(b"text,label\n" + "".join(f"{a},{b}\n" for a, b in rows).encode())
    (empty / "mine.csv.gz").write_bytes(packed)
    write_csv(empty / "held.csv", [*make_texts(21, seed=5)[1:], ("", "good")])
    argv = ("--test-data", "held.csv", "--epochs", 1, "--out", "a", *SMALL)
    code, out, err = run(capsys, "train", "sst2/small", "--data", "mine.csv.gz", *argv)
    assert (code, err) == (0, "")
    assert "mine.csv.gz: 80 texts: 54 to learn from, 6 to validate, 20 to test" in out
    code, out, _ = run(capsys, "evaluate", "a", "--split", "test", "--json")
    split = json.loads(out)
    assert split["examples"] == 20
    code, out, _ = run(capsys, "evaluate", "a", "--data", "held.csv", "--json")
    assert json.loads(out)["accuracy"] == split["accuracy"]
    assert json.loads(out)["empty"] == 1
    assert "left out: 1 without a text" in run(capsys, "evaluate", "a", "--data", "held.csv")[1]
    code, out, _ = run(capsys, "evaluate", "a", "--split", "train", "--json")
    assert (code, json.loads(out)["examples"]) == (0, 54)
    code, out, _ = run(capsys, "evaluate", "a", "--data", "mine.csv.gz", "--json")
    assert (code, json.loads(out)["examples"]) == (0, 60)


def test_predict_reads_files_and_questions_names_of_none(trained, capsys, monkeypatch):
    monkeypatch.chdir(trained)
    rows = [{"review": text, "label": label} for text, label in make_texts(3)]
    (trained / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ("predict", "a", "new.jsonl", "--json")
    code, out, _ = run(capsys, *argv, "--text-column", "review")
    assert code == 0
    assert [one["input"] for one in json.loads(out)["predictions"]] == [
        row["review"] for row in rows
    ]
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "there is no 'text', only 'review', 'label'" in err
    code, _, err = run(capsys, "predict", "a", "nwe.csv")
    assert code == 2
    assert "'nwe.csv' looks like the name of a file, but there is none" in err
    (trained / "notes").write_text("a lovely film\n\na dull film\n")
    code, out, err = run(capsys, "predict", "a", "notes", "--json")
    assert [one["input"] for one in json.loads(out)["predictions"]] == [
        "a lovely film",
        "a dull film",
    ]
    assert "notes is a file: each of its lines is read as a text" in err


def test_words_that_the_model_does_not_know_are_said(trained, capsys):
    code, out, _ = run(capsys, "predict", trained / "a", "zyx wvu", "a lovely film")
    assert code == 0
    assert "1 input has only words that the model does not know" in out
    assert "by the weights of the best epoch on validation data (selected)" in out


def test_prune_names_the_weights_says_a_share_and_runs_twice(trained, capsys):
    code, _, err = run(capsys, "prune", trained / "a")
    assert code == 2
    assert "--share is missing: " in err
    outs = []
    for _ in range(2):
        code, out, err = run(capsys, "prune", trained / "a", "--share", 0.5, "--evaluate")
        assert (code, err) == (0, "")
        outs.append(out)
    assert outs[0] == outs[1]
    assert "by the weights of the best epoch on validation data (selected)" in outs[0]


def test_wanda_reads_the_texts_of_the_training(trained, tmp_path, capsys):
    argv = ["prune", trained / "a", "--share", 0.5, "--criterion", "wanda"]
    code, out, err = run(capsys, *argv, "--out", tmp_path / "pruned", "--evaluate")
    assert (code, err) == (0, "")
    assert "examples of the training data (seed 0)" in out


def test_more_epochs_are_the_training_of_so_many(trained, tmp_path, capsys):
    """Resumed from 2 to 3 epochs, with constant steps, to the bits of 3 in one go."""
    argv = ["train", "sst2/small", "--data", trained / "mine.csv", *SMALL, "--lr", 0.01]
    argv += ["--schedule", "constant", "--warmup", 0, "--vocabulary", "words", "--quiet"]
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    assert main([*map(str, argv), "--epochs", "3", "--out", str(whole)]) == 0
    assert main([*map(str, argv), "--epochs", "2", "--out", str(grown)]) == 0
    capsys.readouterr()
    code, out, err = run(capsys, "train", "--resume", grown, "--epochs", 3, "--threads", 1)
    assert (code, err) == (0, "")
    assert "the training of 2 epochs becomes one of 3" in out
    assert "resumed at step" in out
    for name in ("final.safetensors", "selected.safetensors"):
        assert (grown / name).read_bytes() == (whole / name).read_bytes()
    assert json.loads((grown / "summary.json").read_bytes())["config"]["epochs"] == 3
    code, out, _ = run(capsys, "train", "--resume", grown)
    assert (code, "holds this training already" in out) == (0, True)
    code, _, err = run(capsys, "train", "--resume", grown, "--epochs", 2)
    assert (code, "give as many or more" in err) == (2, True)
    code, _, err = run(capsys, "train", "--resume", grown, "--lr", 0.1)
    assert (code, "--lr and --resume are given" in err) == (2, True)
    # The command that began it does the same, and --overwrite begins again.
    code, _, err = run(capsys, *argv, "--epochs", 4, "--out", grown)
    assert (code, err) == (0, "")
    code, _, err = run(capsys, *argv, "--epochs", 3, "--out", grown)
    assert (code, "different: epochs" in err) == (2, True)
    code, _, err = run(capsys, *argv, "--epochs", 3, "--out", grown, "--overwrite")
    assert (code, err) == (0, "")
    assert (grown / "final.safetensors").read_bytes() == (whole / "final.safetensors").read_bytes()


def test_overwrite_replaces_no_other_things(tmp_path, capsys):
    (tmp_path / "letter.txt").write_text("dear")
    argv = ("--out", tmp_path, "--overwrite", "--quiet")
    code, _, err = run(capsys, "train", "digits/tiny", *argv)
    assert (code, "which are not replaced" in err) == (2, True)
    assert (tmp_path / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(("given", "decay"), [((), 0.01), (("--weight-decay", 0), 0.0)])
def test_adamw_has_its_own_weight_decay(capsys, given, decay):
    argv = ("train", "digits/tiny", "--optimizer", "AdamW", "--show", "--json")
    code, out, _ = run(capsys, *argv, *given)
    assert (code, json.loads(out)["optimizer"]["weight_decay"]) == (0, decay)


def test_standard_input_through_a_pipe(trained):
    process = subprocess.run(
        [sys.executable, "-m", "mirrormargin", "predict", str(trained / "a"), "-"],
        input="a lovely film\na dull film\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.count("film") == 2


def test_predict_says_what_it_left_out_and_cut(trained, capsys):
    file = trained / "gaps.csv"
    write_csv(file, [("a lovely film", "good"), ("", "good"), ("a dull film " * 200, "bad")])
    code, out, err = run(capsys, "predict", trained / "a", file, "--json")
    assert code == 0
    assert "left out: 1 without a text" in err
    answers = json.loads(out)["predictions"]
    assert [(one["row"], one["cut"]) for one in answers] == [(1, False), (3, True)]
    assert "1 input was cut at " in err
    code, _, err = run(capsys, "predict", trained / "a", trained)
    assert code == 2
    assert "is a folder: give the files in it" in err


def test_weights_are_looked_for_in_the_folder_too(trained, capsys):
    argv = ("predict", trained / "a", "a lovely film", "--weights")
    assert run(capsys, "prune", trained / "a", "--share", 0.6)[0] == 0
    code, out, _ = run(capsys, *argv, "pruned-0.6.safetensors")
    assert code == 0
    assert "by the weights in" in out
    code, _, err = run(capsys, *argv, "nothing.safetensors")
    assert code == 2
    assert "'nothing.safetensors', which does not exist" in err


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ("Text,label\na,b\n", "did you mean Text? name the column with --text-column"),
        ("text;label\na;b\n", "separated by semicolons, but must be by a comma"),
        ("text\tlabel\na\tb\n", "separated by tabs, but must be by a comma (a tab in a file .tsv)"),
    ],
)
def test_a_column_that_is_not_there_is_explained(trained, tmp_path, capsys, contents, says):
    (tmp_path / "new.csv").write_text(contents)
    code, _, err = run(capsys, "predict", trained / "a", tmp_path / "new.csv")
    assert code == 2
    assert says in err
    assert "label-column" not in err


def test_a_length_beyond_512_is_kept(empty, capsys):
    texts = [(f"{'word ' * 700}{number}", "ab"[number % 2]) for number in range(20)]
    write_csv(empty / "mine.csv", texts)
    data = load_data("mine.csv", vocabulary="words", length=1000)
    assert data.shape == (703,)
    assert load_data("mine.csv", vocabulary="words").shape == (512,)


def test_a_test_file_that_is_the_same_file_is_refused(empty, capsys):
    write_csv(empty / "mine.csv", make_texts(40))
    argv = ("train", "sst2/small", "--data", "mine.csv", "--test-data", "mine.csv")
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "every text of" in err
    assert "--test-data" in err


def test_a_report_names_trainings_that_have_not_ended(trained, tmp_path, capsys):
    pytest.importorskip("plotly")
    begun = shutil.copytree(trained / "a", tmp_path / "runs" / "begun")
    for name in ("summary.json", "inputs.json", "final.safetensors", "selected.safetensors"):
        (begun / name).unlink()
    says = f"{begun} has not ended: resume it with mirrormargin train --resume {begun}"
    code, _, err = run(capsys, "report", begun, "--out", tmp_path / "page.html")
    assert code == 2
    assert says in err
    shutil.copytree(trained / "a", tmp_path / "runs" / "ended")
    code, _, err = run(capsys, "report", tmp_path / "runs", "--out", tmp_path / "page.html")
    assert code == 0
    assert f"left out: {says}" in err


@pytest.mark.parametrize(
    ("num_longer", "says"),
    [
        (1, "1% of texts are cut at 8 pieces"),
        (3, "3% of texts are cut at 8 pieces; --length 16 keeps 100% whole"),
    ],
)
def test_a_longer_length_is_suggested_where_it_helps(empty, num_longer, says):
    write_csv(empty / "mine.csv", make_texts(20))
    data = load_data("mine.csv", vocabulary="words", length=8)
    counts = torch.tensor([8] * (100 - num_longer) + [9] * num_longer)
    cut = replace(data, shape=(8,), token_counts=counts)
    assert describe_texts(find_configuration("sst2/small"), cut)["cut"] == says
