"""``mirrormargin prune``: what is written is the library's pruned model."""

import json
import shutil
from typing import Any

import pytest
import torch

from mirrormargin.cli import main
from mirrormargin.cli.prune import find_share
from mirrormargin.runs import seal
from mirrormargin.training.building import load_model, load_training_data
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.input_norms import draw_calibration
from mirrormargin.training.pruning import prune
from mirrormargin.training.sparsity import select_matrices
from mirrormargin.training.tensor_files import load_pruned, read_tensors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a training that has ended."""
    folder = tmp_path_factory.mktemp("prune") / "run"
    argv = ["train", "digits/tiny", "--epochs", "3", "--optimizer", "AdamW", "--threads", "1"]
    assert main([*argv, "--out", str(folder), "--no-test", "--quiet"]) == 0
    return folder


def call(*argv):
    return main(["prune", *map(str, argv)])


@pytest.mark.parametrize("format", ["safetensors", "sparse"])
@pytest.mark.parametrize(
    ("weights", "matrices", "ranking"),
    [
        ("final", "blocks", "global"),
        ("selected", "attention", "matrix"),
        ("final", r"blocks\.0\.", "global"),
    ],
)
def test_the_file_is_the_pruned_model(run, tmp_path, format, weights, matrices, ranking, capsys):
    out = tmp_path / "pruned.safetensors"
    options = ["--weights", weights, "--matrices", matrices, "--ranking", ranking]
    argv = [run, "--share", "0.9", *options, "--format", format, "--out", out, "--json"]
    assert call(*argv) == 0
    report = json.loads(capsys.readouterr().out)
    expected, _ = read_tensors(run / f"{weights}.safetensors")
    chosen = select_matrices(expected, matrices)
    zeros = prune(expected, 0.9, matrices, ranking)
    found = load_pruned(out)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert report["matrices"] == list(chosen)
    assert report["zeros"] == zeros
    assert report["bytes_written"] == out.stat().st_size
    assert report["bytes"]["dense" if format == "safetensors" else "sparse"] == out.stat().st_size


@pytest.mark.parametrize(
    ("matrices", "ranking", "options"),
    [
        ("blocks", None, {"size": 128, "seed": 0}),
        ("attention", "matrix", {"size": 5, "seed": 3}),
        (r"blocks|head|embedding\.", "global", {"size": 10_000, "seed": 1}),
    ],
)
def test_wanda_prunes_by_examples_of_the_training_data(
    run, tmp_path, matrices, ranking, options, capsys
):
    out = tmp_path / "pruned.safetensors"
    argv = [run, "--share", "0.8", "--criterion", "wanda", "--matrices", matrices, "--out", out]
    argv += [] if ranking is None else ["--ranking", ranking]
    if options != {"size": 128, "seed": 0}:
        argv += ["--calibration", options["size"], "--seed", options["seed"]]
    assert call(*argv, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    model = load_model(run)
    data = load_training_data(TrainingFolder(run).read_config())
    examples = draw_calibration(data.train, **options)
    wanted = {"criterion": "wanda", "calibration": examples}
    report_of_library = prune(model, 0.8, matrices, ranking, **wanted)
    found = load_pruned(out)
    assert all(torch.equal(found[name], one) for name, one in model.state_dict().items())
    assert report["zeros"] == report_of_library
    assert (report["calibration"], report["seed"]) == (len(examples), options["seed"])
    assert call(*argv, "--evaluate") == 0  # again: the same file
    shown = capsys.readouterr().out
    assert f"over {len(examples):,} examples of the training data (seed " in shown
    assert "validation" in shown


def test_all_matrices_can_be_pruned(run, tmp_path, capsys):
    out = tmp_path / "pruned.safetensors"
    assert call(run, "--share", "0.5", "--matrices", "all", "--out", out) == 0
    assert capsys.readouterr().out.startswith("all: 15 of 15 matrices, 17,376 of 17,376 entries\n")
    zeros = sum(int((one == 0).sum()) for one in load_pruned(out).values() if one.ndim == 2)
    assert zeros == 17_376 // 2
    assert call(run, "--share", "0.5", "--matrices", "all", "--quiet", "--overwrite") == 0
    assert "--matrices" not in capsys.readouterr().out
    (run / "pruned-0.5.safetensors").unlink()


def test_data_that_has_changed_is_not_evaluated_on_and_nothing_is_written(run, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(run, changed)
    document = json.loads((changed / "config.json").read_text())
    document["data"]["sha256"] = dict.fromkeys(document["data"]["sha256"], "0" * 64)
    (changed / "config.json").write_text(json.dumps(seal(document)))
    out = tmp_path / "pruned.safetensors"
    assert call(changed, "--share", "0.5", "--evaluate", "--out", out) == 2
    assert "have changed since this training" in capsys.readouterr().err
    assert not out.exists()


def test_the_training_is_left_alone(run, tmp_path):
    before = {path: path.read_bytes() for path in run.iterdir()}
    assert call(run, "--share", "0.5", "--out", tmp_path / "pruned.safetensors", "--quiet") == 0
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_evaluation_is_of_the_file_and_sizes_are_said(run, tmp_path, capsys):
    out = tmp_path / "pruned.safetensors"
    argv = [run, "--share", "0.99", "--format", "sparse", "--evaluate", "--out", out]
    argv += ["--weights", "final"]
    assert call(*argv, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    summary = json.loads((run / "summary.json").read_bytes())
    assert report["accuracy"]["before"] == summary["validation"]["last"]
    from mirrormargin.training.summary import SHARES

    curve = summary["validation"]["frontier"]["blocks"]
    assert report["accuracy"]["after"] == curve[SHARES.index(0.99)]
    assert report["bytes"]["sparse"] < report["bytes"]["dense"]

    assert call(*argv, "--overwrite") == 0
    lines = capsys.readouterr().out.splitlines()
    entries, zeros = report["entries"], report["zeros"]
    assert lines.pop(0) == (
        "blocks: 12 of 15 matrices, 16,384 of 17,376 entries; embedding.weight, head.weight,"
        " position keep their 992 entries: --matrices all prunes them too"
    )
    assert lines[0].startswith(f"{zeros:,} of {entries:,} entries of 12 matrices are zero (99.0")
    assert lines[3].split() == [
        "after",
        f"{report['bytes']['dense']:,}",
        f"{report['bytes']['sparse']:,}",
        f"{report['accuracy']['after']:.2f}%",
    ]
    assert lines[4] == f"wrote {out}, {out.stat().st_size:,} bytes"


def test_the_default_file_is_in_the_folder(run, capsys):
    assert call(run, "--share", "0.95", "--format", "sparse") == 0
    path = run / "pruned-0.95.sparse.safetensors"
    *_, written, weights = capsys.readouterr().out.splitlines()
    assert written.startswith(f"wrote {path}, ")
    assert weights == "by the weights of the best epoch on validation data (selected)"
    before = load_pruned(path)
    # Again, with an evaluation this time: nothing is lost.
    assert call(run, "--share", "0.95", "--format", "sparse", "--evaluate") == 0
    capsys.readouterr()
    other = ["--share", "0.95", "--format", "sparse", "--matrices", "attention"]
    assert call(run, *other) == 2
    assert "exists already and holds something else: add --over" in capsys.readouterr().err
    found = load_pruned(path)
    assert all(found[name].equal(tensor) for name, tensor in before.items())
    path.write_text("mine")
    assert call(run, *other) == 2
    assert path.read_text() == "mine"
    assert call(run, *other, "--overwrite") == 0
    path.unlink()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["RUN"], "--share is missing"),
        (["RUN", "--share", "0"], "--share is 0: give a number between 0 and 1"),
        (["RUN", "--share", "1"], "--share is 1: give a number between 0 and 1"),
        (["RUN", "--share", "95"], "--share is 95: give a number between 0 and 1"),
        (["nowhere", "--share", "0.5"], "nowhere holds no training on real data"),
        (["empty", "--share", "0.5"], "empty holds no training on real data"),
        (["begun", "--share", "0.5"], "the training has not ended"),
        (["RUN", "--share", "0.5", "--matrices", "nothing"], "'nothing' matches no matrix"),
        (["RUN", "--share", "0.5", "--matrices", "("], "'(' is no regular expression"),
        (["RUN", "--share", "0.5", "--calibration", "9"], "--calibration is for --criterion wanda"),
        (["RUN", "--share", "0.5", "--seed", "0"], "--seed is for --criterion wanda"),
        (
            ["RUN", "--share", "0.5", "--matrices", "all", "--criterion", "wanda"],
            "nothing is known to go through position: only nn.Linear layers",
        ),
        (["RUN", "--share", "0.5", "--out", "RUN/final.safetensors"], "belongs to the training"),
        (["RUN", "--share", "0.5", "--out", "no/file"], "there is no folder no"),
        (["RUN", "--share", "0.5", "--out", "empty"], "it is a folder"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(run, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/config.json").write_bytes((run / "config.json").read_bytes())
    before = {path: path.read_bytes() for path in run.iterdir()}
    assert main(["prune", *(word.replace("RUN", str(run)) for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def summarize(selected_epoch: int, accuracy: float = 90.0) -> dict[str, Any]:
    """A training of two epochs that loses a point at 0.9 and ten at 0.95."""
    return {
        "chance": {"accuracy": 50.0, "examples": 500},
        "config": {"optimizer": {"lr": 0.1}},
        "epochs": [{"train_accuracy": 95.0}, {"train_accuracy": 95.0}],
        "selected_epoch": selected_epoch,
        "shares": [0.5, 0.9, 0.95],
        "validation": {
            "last": accuracy,
            "selected": accuracy,
            "unpruned": accuracy,
            "frontier": {"blocks": [accuracy, accuracy - 1, accuracy - 10]},
        },
    }


def test_the_suggested_share_is_for_the_weights_it_was_measured_on(run, tmp_path, capsys):
    copy = TrainingFolder(shutil.copytree(run, tmp_path / "run"))
    for epoch, weights, says in [
        (2, "selected", "--share 0.9 keeps 89.00% of 90.00% on validation data, more costs"),
        (1, "final", "--share 0.9 keeps 89.00% of 90.00% on validation data, more costs"),
        (1, "selected", "use it with --weights final"),
    ]:
        copy.write_summary(summarize(epoch))
        assert call(copy.path, "--weights", weights) == 2
        assert says in capsys.readouterr().err
    copy.write_summary(summarize(1, accuracy=51.0))
    assert call(copy.path) == 2
    assert "nothing that helps with others" in capsys.readouterr().err
    assert find_share(summarize(1, accuracy=51.0)) is None
    assert find_share(summarize(1)) == (0.9, 89.0)
