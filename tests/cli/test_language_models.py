"""Language models on the command line: train, evaluate, prune, continue, report."""

import json
import math

import pytest
from language_texts import make_text

from mirrormargin.cli import main
from mirrormargin.data.files import Source
from mirrormargin.data.published import LAYOUTS
from mirrormargin.report.contents import arrange_contents, read_sources
from mirrormargin.training.figures import draw_trainings

SMALL = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "epoch_steps=20"]
SMALL += ["batch_size=8", "optimizer.lr=0.01", "frontier_size=20"]
SHORT = ["--epochs", "2", *(part for one in SMALL for part in ("--set", one)), "--length", "16"]


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def run(tmp_path_factory, patch):
    """A training on a small text in place of Shakespeare's."""
    folder = tmp_path_factory.mktemp("language")
    text = folder / "data" / "tinyshakespeare" / "input.txt"
    text.parent.mkdir(parents=True)
    text.write_text(make_text(1500))
    patch.setitem(LAYOUTS, "shakespeare", ((Source("tinyshakespeare/input.txt"),),))
    patch.setenv("MIRRORMARGIN_DATA", str(folder / "data"))
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    command = ["train", "shakespeare/char", *SHORT, "--optimizer", "AdamW"]
    assert main([*command, "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def read(capsys, command):
    assert main([str(part) for part in command]) == 0
    return json.loads(capsys.readouterr().out)


def test_training_shows_losses_and_no_accuracies(run, tmp_path, capsys):
    command = ["train", "shakespeare/char", *SHORT, "--optimizer", "AdamW"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    row = summary["epochs"][0]
    assert f"loss {row['train_loss']:.4f}  validation {row['validation_loss']:.4f}\n" in out
    assert f"perplexity {summary['validation']['perplexity']:.3f} per token" in out
    assert "characters" in out
    assert "accuracy" not in out
    assert f"mirrormargin predict {tmp_path / 'run'} --text TEXT" in " ".join(out.split())
    # Without a test part there is nothing more to find out.
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert "holds this training already" in capsys.readouterr().out


def test_evaluate_gives_the_loss_of_the_training(run, capsys):
    found = read(capsys, ["evaluate", run, "--json"])
    summary = json.loads((run / "summary.json").read_text())
    assert found["loss"] == pytest.approx(summary["validation"]["selected"], abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["words"] is found["word_perplexity"] is None
    text = make_text(1500)
    assert found["tokens"] == len(text) - int(0.9 * len(text))
    learnt = read(capsys, ["evaluate", run, "--split", "train", "--json"])
    assert learnt["tokens"] == pytest.approx(0.9 * len(text), abs=32)
    assert main(["evaluate", str(run)]) == 0
    assert f"{found['loss']:.4f}" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--split", "test"]) == 2
    assert "shakespeare has no test part" in capsys.readouterr().err


def test_a_text_of_your_own_is_evaluated(run, tmp_path, capsys):
    path = tmp_path / "own.txt"
    path.write_text("ann sees the cat\n")
    learnt = read(capsys, ["evaluate", run, "--data", path, "--json"])
    path.write_text("tac eht sees nna\n")
    assert learnt["loss"] < read(capsys, ["evaluate", run, "--data", path, "--json"])["loss"]
    assert learnt["tokens"] == 17
    assert main(["evaluate", str(run), "--data", str(path), "--text-column", "a"]) == 2
    assert "--text-column is for a model that gives a class" in capsys.readouterr().err


def test_pruning_is_measured_by_the_loss(run, tmp_path, capsys):
    command = ["prune", run, "--share", "0.95", "--evaluate", "--out", tmp_path / "pruned"]
    found = read(capsys, [*command, "--json"])
    assert found["loss"]["before"] < found["loss"]["after"]
    assert "accuracy" not in found
    assert main([str(part) for part in command]) == 0
    assert f"{found['loss']['after']:.4f}" in capsys.readouterr().out
    assert main(["prune", str(run)]) == 2
    assert "nats" in capsys.readouterr().err
    again = read(capsys, ["evaluate", run, "--weights", tmp_path / "pruned", "--json"])
    assert again["loss"] == pytest.approx(found["loss"]["after"], abs=1e-4)


def test_wanda_prunes_blocks_by_windows_of_the_training_text(run, tmp_path, capsys):
    command = ["prune", run, "--share", "0.5", "--criterion", "wanda", "--calibration", "9"]
    found = read(capsys, [*command, "--evaluate", "--out", tmp_path / "pruned", "--json"])
    assert found["calibration"] == 9
    assert found["zeros"] == found["entries"] // 2
    assert found["others"] == ["embedding.weight", "position.weight"]
    assert found["loss"]["before"] < found["loss"]["after"]
    refused = [*command, "--matrices", "embedding", "--out", tmp_path / "no"]
    assert main([str(part) for part in refused]) == 2
    assert "nothing is known to go through embedding.weight" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_smaller_model_continues_texts(run, tmp_path, capsys):
    small = tmp_path / "small"
    options = ["--heads", "0.5", "--units", "0.5", "--batch", "2", "--evaluate"]
    assert main(["shrink", str(run), *options, "--length", "17", "--out", str(small)]) == 2
    assert "length is 17: give an integer from 1 to 16" in capsys.readouterr().err
    found = read(capsys, ["shrink", run, *options, "--out", small, "--json"])
    assert found["loss"]["before"] < found["loss"]["after"]
    assert found["speed"]["batch"] == [2, 16]
    again = read(capsys, ["evaluate", small, "--json"])
    assert again["loss"] == pytest.approx(found["loss"]["after"], abs=1e-4)
    assert main(["predict", str(small), "--text", "ann sees", "--tokens", "4"]) == 0
    assert "by a model that was shrunk from the selected weights" in capsys.readouterr().out


def test_the_same_seed_continues_a_text_in_the_same_way(run, capsys):
    command = ["predict", run, "--text", "ann sees", "--tokens", "40", "--json"]
    first, second = (read(capsys, [*command, "--seed", "3"]) for _ in range(2))
    assert first == second
    other = read(capsys, [*command, "--seed", "4"])
    assert first["continuations"] != other["continuations"]
    text = first["continuations"][0]
    assert (text["text"], len(text["continuation"])) == ("ann sees", 40)
    assert main(["predict", str(run), "--text", "ann sees", "--tokens", "40", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith(f"ann sees{text['continuation']}\n\nby the weights")


def test_a_text_may_be_empty_or_an_input_and_longer_than_the_context(run, capsys):
    texts = ["", "ann sees the cat and then bob hears the dog"]
    found = read(capsys, ["predict", run, *texts, "--tokens", "5", "--temperature", "0", "--json"])
    assert [row["text"] for row in found["continuations"]] == texts
    assert all(len(row["continuation"]) == 5 for row in found["continuations"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is no text to continue"),
        (["--text", "ann€"], "'€' does not occur"),
        (["--text", "a", "--attention"], "--attention is for a model that gives a class"),
        (["--text", "a", "--lines"], "--lines is for a model that gives a class"),
        (["--text", "a", "--temperature", "-1"], "--temperature is -1"),
        (["--text", "a", "--tokens", "0"], "give an integer >= 1"),
    ],
)
def test_senseless_requests_are_refused(run, capsys, options, message):
    assert main(["predict", str(run), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_classifier_continues_no_text(tmp_path, capsys):
    short = ["--epochs", "1", "--num-train", "100", "--quiet", "--out", str(tmp_path / "digits")]
    assert main(["train", "digits/tiny", *short]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "digits"), "--text", "ROMEO:"]) == 2
    assert "--text is for a language model" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "digits")]) == 2
    assert "INPUT is missing" in capsys.readouterr().err


def test_the_page_shows_losses(run):
    curves, pruning, weights = arrange_contents(read_sources([run])).figures
    summary = json.loads((run / "summary.json").read_text())
    assert [panel.title for panel in curves.panels] == ["training loss", "validation loss"]
    line = curves.panels[1].series[0]
    assert line.y.tolist() == [row["validation_loss"] for row in summary["epochs"]]
    assert curves.table is not None
    cells = dict(zip(curves.table.columns, curves.table.rows[0], strict=True))
    assert cells["perplexity"] == f"{summary['validation']['perplexity']:.3f}"
    assert (cells["test"], cells["of a word"]) == ("–", "–")
    assert pruning.title.startswith("Loss when")
    assert pruning.panels[0].y.label == "loss, nats per token"
    assert weights.name == "language-trainings-weights"


def test_classifiers_and_language_models_have_their_own_figures(run):
    summary = json.loads((run / "summary.json").read_text())
    other = json.loads(json.dumps(summary))
    other["config"]["model"] = {"kind": "TextModel"}
    names = [figure.name for figure in draw_trainings({"one": summary, "two": other})]
    assert names[:3] == ["trainings", "trainings-pruning", "trainings-weights"]
    assert names[3:] == [f"language-{name}" for name in names[:3]]


@pytest.mark.parametrize(
    "argv",
    [
        ["delta", "RUN", "--keep", "5"],
        ["evaluate", "RUN", "--delta", "a.safetensors"],
        ["predict", "RUN", "--text", "ann", "--delta", "a.safetensors"],
    ],
)
def test_language_models_have_no_deltas(run, argv, capsys):
    assert main([str(run) if word == "RUN" else word for word in argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "delta" in line
    assert "continues a text" in line or "trained a model from the start" in line
