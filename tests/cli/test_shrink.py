"""``mirrormargin shrink``: what is written is the library's smaller model, and is used like any."""

import json
import re
import shutil

import pytest
import torch

from mirrormargin.cli import main
from mirrormargin.runs import seal
from mirrormargin.training.building import load_model
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.shrinking import shrink

SHORT = ["--epochs", "4", "--lr", "0.003", "--p", "1.5", "--threads", "1", "--no-test", "--quiet"]
FAST = ["--batch", "2"]


def train(folder, *options):
    argv = ["train", "digits/tiny", "--optimizer", "MirrorAdam", *SHORT, *options]
    assert main([*argv, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training that ended with half of its hidden units at zero."""
    folder = tmp_path_factory.mktemp("shrink") / "run"
    return train(folder, "--sparsity", "0.5", "--groups", "units")


def call(*argv):
    return main(["shrink", *map(str, argv), *FAST])


def read(capsys, *argv):
    assert main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_training_has_removed_is_cut_out_and_the_answers_stay(run, tmp_path, capsys):
    small = tmp_path / "small"
    report = read(capsys, "shrink", run, "--evaluate", "--out", small, *FAST)
    assert sum(layer["before"] for layer in report["units"]) == 128
    assert sum(layer["after"] for layer in report["units"]) == 64
    assert [layer["removed"] for layer in report["heads"]] == [[], []]
    whole, smaller = load_model(run), load_model(small)
    inputs = torch.randint(0, 256, (20, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(smaller(inputs), whole(inputs), rtol=1e-5, atol=1e-5)
    counts = [sum(one.numel() for one in model.parameters()) for model in (whole, smaller)]
    assert list(report["parameters"].values()) == counts
    sizes = [folder / "selected.safetensors" for folder in (run, small)]
    assert list(report["bytes"].values()) == [path.stat().st_size for path in sizes]
    assert report["accuracy"]["before"] == report["accuracy"]["after"]
    assert report["loss"]["before"] == pytest.approx(report["loss"]["after"], abs=2e-4)
    speed = report["speed"]
    assert speed["batch"] == [2, 1, 8, 8]
    assert speed["ratio"] > 0
    for when, seconds in speed["seconds"].items():
        assert speed["examples_per_second"][when] == pytest.approx(2 / seconds)
    assert "tokens_per_second" not in speed


@pytest.mark.parametrize("weights", ["selected", "final"])
def test_the_smaller_model_is_the_library_s_and_used_like_any_other(run, tmp_path, weights, capsys):
    small = tmp_path / "small"
    options = ["--heads", "0.5", "--units", "0.7", "--scope", "layer", "--weights", weights]
    assert call(run, *options, "--out", small) == 0
    capsys.readouterr()
    expected = shrink(load_model(run, weights=weights), 0.5, 0.7, scope="layer").model
    state = load_model(small).state_dict()
    assert state.keys() == expected.state_dict().keys()
    assert all(state[name].equal(one) for name, one in expected.state_dict().items())

    found = read(capsys, "evaluate", small)
    assert main(["evaluate", str(small)]) == 0
    line = f"by a model that was shrunk from the {weights} weights of {run}"
    assert capsys.readouterr().out.splitlines()[-1] == line
    pruned = read(capsys, "prune", small, "--share", "0.5", "--evaluate")
    assert pruned["accuracy"]["before"] == pytest.approx(found["accuracy"], abs=1e-4)
    again = read(capsys, "evaluate", small, "--weights", "pruned-0.5.safetensors")
    assert again["accuracy"] == pytest.approx(pruned["accuracy"]["after"], abs=1e-4)
    twice = read(capsys, "shrink", small, "--units", "0.5", "--out", tmp_path / "twice", *FAST)
    assert twice["parameters"]["before"] == sum(one.numel() for one in expected.parameters())
    assert sum(layer["after"] for layer in twice["units"]) == 20  # of 40, of 128
    assert main(["evaluate", str(small), "--weights", "final"]) == 2
    assert "there are selected weights alone: use those" in capsys.readouterr().err


def test_the_table_says_what_is_left_and_the_default_folder_lies_beside(run, capsys):
    assert call(run, "--units", "0.75", "--evaluate") == 0
    out = capsys.readouterr().out
    rows = {line.rsplit(None, 2)[0]: line.split()[-2:] for line in out.splitlines() if line}
    assert rows["attention heads"] == ["8", "8"]
    assert rows["hidden units"] == ["128", "32"]
    assert rows["selected weights"] == ["before", "after"]
    assert re.search(r"\d\.\d\d times as fast \[\d+\.\d\d, \d+\.\d\d\]: median of 15 rounds", out)
    assert "batches of 2 x 1 x 8 x 8, " in out
    small = run.parent / "run-shrunk-units0.75"
    assert out.splitlines()[-1] == f"wrote {small}, for evaluate, predict and prune"
    assert TrainingFolder(small).status == "shrunk"
    assert call(run, "--units", "0.75") == 2
    assert "holds a shrunk model already: add --overwrite" in capsys.readouterr().err
    before = (small / "selected.safetensors").read_bytes()
    assert call(run, "--units", "0.75", "--overwrite", "--quiet") == 0
    assert (small / "selected.safetensors").read_bytes() == before
    assert "wrote" not in capsys.readouterr().out


def test_a_shrunk_model_is_not_trained_and_not_reported_as_unfinished(run, tmp_path, capsys):
    small = tmp_path / "runs" / "small"
    assert call(run, "--out", small) == 0
    for argv in (["train", "--resume", small], ["train", "digits/tiny", "--out", small, *SHORT]):
        capsys.readouterr()
        assert main([*map(str, argv)]) == 2
        assert "but a model that was shrunk from the selected weights" in capsys.readouterr().err
    assert load_model(small) is not None
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 2
    assert "has not ended" not in capsys.readouterr().err


def test_a_shrinking_that_was_stopped_is_done_again(run, tmp_path, capsys):
    small = tmp_path / "small"
    assert call(run, "--out", small) == 0
    (small / "selected.safetensors").unlink()
    capsys.readouterr()
    assert main(["evaluate", str(small)]) == 2
    assert "mirrormargin shrink was stopped: call it again" in capsys.readouterr().err
    assert call(run, "--out", small) == 0
    assert main(["evaluate", str(small)]) == 0


def test_the_training_and_other_folders_are_left_alone(run, tmp_path, capsys):
    before = {path: path.read_bytes() for path in run.iterdir()}
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("")
    (tmp_path / "a file").write_text("")
    for out, message in (
        (run, "is the folder to shrink"),
        (other, "holds other things than a shrunk model, which are not replaced"),
        (tmp_path / "foreign", "holds other things than a shrunk model"),
        (tmp_path / "a file" / "small", "cannot be written"),
    ):
        capsys.readouterr()
        assert call(run, "--out", out, "--overwrite") == 2
        assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.iterdir()} == before
    assert {path.name for path in other.iterdir()} == {path.name for path in run.iterdir()}


def test_a_file_that_says_other_sizes_is_refused(run, tmp_path, capsys):
    from mirrormargin.training.tensor_files import read_tensors, write_tensors

    small = tmp_path / "small"
    assert call(run, "--out", small) == 0
    tensors, document = read_tensors(small / "selected.safetensors")
    document["architecture"]["sizes"]["hidden"][0] = 10**9
    write_tensors(small / "selected.safetensors", tensors, document)
    capsys.readouterr()
    assert main(["evaluate", str(small)]) == 2
    assert "restore a copy of the weights" in capsys.readouterr().err


def test_nothing_to_remove_is_said_with_what_to_do(run, tmp_path, capsys):
    plain = train(tmp_path / "plain")
    capsys.readouterr()
    assert call(plain) == 2
    said = capsys.readouterr().err
    assert "it has no zero heads to remove and it has no zero units to remove" in said
    assert "such as --units 0.5, or train with --sparsity 0.5 --groups units" in said
    assert call(plain, "--heads", "0.01") == 2
    said = capsys.readouterr().err
    assert "--heads 0.01 is less than one of them and it has no zero units to remove" in said
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_data_that_has_changed_is_not_evaluated_on_and_nothing_is_written(run, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(run, changed)
    document = json.loads((changed / "config.json").read_text())
    document["data"]["sha256"] = dict.fromkeys(document["data"]["sha256"], "0" * 64)
    (changed / "config.json").write_text(json.dumps(seal(document)))
    assert call(changed, "--evaluate") == 2
    assert "have changed since this training" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "FOLDER is missing"),
        (["RUN", "--heads", "1"], "--heads is 1: give a share below 1, such as 0.5"),
        (["RUN", "--units", "-0.5"], "--units is -0.5: give a share below 1"),
        (["RUN", "--heads", "0.9"], "which leaves 1 of 8, but each of 2 layers keeps one at least"),
        (["RUN", "--length", "8"], "a length is for texts, but digits has images"),
        (["nowhere"], "nowhere holds no training on real data"),
        (["begun"], "the training has not ended"),
        (["RUN", "--weights", "best"], 'Invalid value "best" for --weights'),
        (["RUN", "--scope", "tensor"], 'Invalid value "tensor" for --scope'),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(run, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/config.json").write_bytes((run / "config.json").read_bytes())
    assert main(["shrink", *(word.replace("RUN", str(run)) for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_groups_are_named_with_a_share_and_training_says_what_to_do(tmp_path, capsys):
    assert main(["train", "digits/tiny", "--groups", "heads"]) == 2
    assert "--groups heads says what --sparsity removes: add --sparsity" in capsys.readouterr().err
    argv = ["train", "digits/tiny", "--sparsity", "0.25", "--groups", "heads"]
    argv += ["--optimizer", "MirrorAdam", "--lr", "0.003"]
    assert main([*argv, "--show", "--json"]) == 0
    sparsifier = json.loads(capsys.readouterr().out)["sparsifier"]
    assert (sparsifier["share"], sparsifier["groups"]) == (0.25, "heads")
    short = ["--epochs", "4", "--threads", "1", "--no-test", "--out", str(tmp_path / "run")]
    assert main([*argv, *short]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"  mirrormargin shrink {tmp_path / 'run'}"
    report = read(capsys, "shrink", tmp_path / "run", *FAST)
    assert sum(len(layer["removed"]) for layer in report["heads"]) == 2  # of 8
