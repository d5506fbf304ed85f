"""``train --center``, ``delta``, and what ``predict`` and ``evaluate`` make of a delta."""

import csv
import json

import pytest
import torch
from encoder_checkpoints import save_checkpoint

from mirrormargin import SparseDelta
from mirrormargin.cli import main
from mirrormargin.training.building import load_model
from mirrormargin.training.fine_tuning import apply_delta, load_base
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.sparsity import select_matrices

pytest.importorskip("transformers")

TEXTS = ("a dull film", "the plot was good", "nothing follows from a cast")
ALL = 10_000_000  # more changes than there are


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small gain nothing from more
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a pretrained encoder, texts of one's own, and a fine-tuning by few changes."""
    folder = tmp_path_factory.mktemp("delta")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        save_checkpoint("Bert", folder / "bert")
        write_texts(folder / "mine.csv", ("no", "yes"))
        assert train(folder, "--center") == 0
        yield folder


def write_texts(path, classes, num=80):
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = [
            (f"the film {k} was {('dull', 'good')[k % 2]}", classes[k % len(classes)])
            for k in range(num)
        ]
        csv.writer(file).writerows([("text", "label"), *rows])


def train(place, *more, run="run", data="mine.csv", checkpoint="bert", epochs=3):
    settings = [f"model.pretrained={json.dumps(str(place / checkpoint))}", "model.dropout=0"]
    argv = ["train", "sst2/minilm", "--data", str(place / data), "--out", str(place / run)]
    argv += [word for setting in settings for word in ("--set", setting)]
    options = {"--epochs": epochs, "--length": 16, "--batch-size": 8, "--threads": 1}
    if "--center" in more:
        options["--lr"] = 0.05
    argv += [str(word) for pair in options.items() for word in pair]
    return main([*argv, "--quiet", *map(str, more)])


def ask(command, *argv, capsys):
    capsys.readouterr()
    assert main([command, *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refuse(*argv, capsys):
    """The one line that is said of what is refused."""
    capsys.readouterr()
    assert main([*map(str, argv)]) == 2
    said = capsys.readouterr()
    assert not said.out
    (line,) = said.err.splitlines()
    return line


def test_a_centred_training_changes_block_matrices_and_the_head_alone(place):
    run = place / "run"
    base, trained = load_base(run).state_dict(), load_model(run, weights="final").state_dict()
    blocks = set(select_matrices(base, "blocks"))
    assert len(blocks) == 2 * 6
    moved = {name for name in base if not torch.equal(base[name], trained[name])}
    assert moved == blocks | {"head.weight", "head.bias"}


def test_a_centred_training_says_how_to_keep_its_changes(place, capsys):
    capsys.readouterr()
    settings = f"model.pretrained={json.dumps(str(place / 'bert'))}"
    argv = ["train", "sst2/minilm", "--data", place / "mine.csv", "--set", settings, "--center"]
    argv += ["--epochs", 1, "--length", 16, "--threads", 1, "--out", place / "told"]
    assert main([*map(str, argv)]) == 0
    out = capsys.readouterr().out
    assert f"mirrormargin delta {place / 'told'} --tolerance 1 --evaluate" in " ".join(out.split())
    assert "mirrormargin prune" not in out


def test_a_delta_of_all_changes_answers_as_the_trained_model_does(place, tmp_path, capsys):
    run, file = place / "run", tmp_path / "all.safetensors"
    report = ask("delta", run, "--keep", ALL, "--out", file, capsys=capsys)
    assert report["file"] == str(file)
    assert report["bytes_written"] == file.stat().st_size
    assert report["numbers"] == SparseDelta.load(file).num_values <= report["of"]
    assert report["weights"] == "selected"
    whole = ask("predict", run, *TEXTS, capsys=capsys)
    sparse = ask("predict", run, *TEXTS, "--delta", file, capsys=capsys)
    assert sparse["weights"] == str(file)
    for one, other in zip(whole["predictions"], sparse["predictions"], strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-3)
        assert one["class"] == other["class"]
    trained, found = load_model(run).state_dict(), apply_delta(run, file).state_dict()
    for name, one in trained.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-6)


def test_the_number_is_kept_named_and_measured(place, tmp_path, capsys):
    run = place / "run"
    report = ask("delta", run, "--keep", 50, "--evaluate", capsys=capsys)
    file = run / "delta-50.safetensors"
    assert (report["numbers"], report["file"]) == (50, str(file))
    assert report["split"] == "validation"
    assert report["all"].keys() == report["kept"].keys() == {"accuracy"}
    for key, options in (("all", []), ("kept", ["--delta", file])):
        found = ask("evaluate", run, *options, capsys=capsys)
        found = found["deltas"][0] if options else found
        assert report[key] == pytest.approx({k: found[k] for k in report[key]}, abs=1e-4)
    delta = SparseDelta.load(file)
    assert delta.info["classes"] == ["no", "yes"]
    assert delta.whole.keys() == {"head.weight", "head.bias"}

    assert "exists already: add --overwrite" in refuse("delta", run, "--keep", 50, capsys=capsys)
    again = ask("delta", run, "--keep", 50, "--overwrite", "--evaluate", "--split", "test",
                capsys=capsys)  # fmt: skip
    assert again["split"] == "test"
    assert SparseDelta.load(file).num_values == 50

    share = ask("delta", run, "--share", 0.01, "--out", tmp_path / "a", capsys=capsys)
    assert share["numbers"] == int(0.01 * share["of"])
    nothing = ask("delta", run, "--share", 1e-6, "--out", tmp_path / "b", capsys=capsys)
    assert (nothing["numbers"], nothing["bytes_per_number"]) == (0, None)


def test_as_few_changes_are_kept_as_a_tolerance_allows(place, tmp_path, capsys):
    run = place / "run"
    numbers = []
    for points in (0, 100):
        out = tmp_path / f"{points}"
        report = ask("delta", run, "--tolerance", points, "--out", out, "--evaluate", capsys=capsys)
        numbers.append(report["numbers"])
        assert report["kept"]["accuracy"] >= report["all"]["accuracy"] - points
    assert numbers[1] == 0 <= numbers[0]


def test_what_people_read(place, tmp_path, capsys):
    run, file = place / "run", tmp_path / "some.safetensors"
    capsys.readouterr()
    assert main(["delta", str(run), "--keep", "40", "--evaluate", "--out", str(file)]) == 0
    first, head, every, kept, wrote, by = capsys.readouterr().out.splitlines()
    assert first.startswith("40 of ")
    assert first.endswith(f"{file.stat().st_size:,} bytes with the head")
    assert head.split() == ["validation", "accuracy"]
    assert every.startswith("all changes")
    assert kept.startswith("those in the file")
    assert wrote == f"wrote {file}"
    assert by.endswith("(selected)")
    assert main(["predict", str(run), TEXTS[0], "--delta", str(file)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"by the pretrained model with the changes in {file}"


def test_several_deltas_are_measured_one_after_another(place, tmp_path, capsys):
    run, files = place / "run", [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for keep, file in zip((1, ALL), files, strict=True):
        ask("delta", run, "--keep", keep, "--out", file, capsys=capsys)
    report = ask("evaluate", run, "--delta", *files, "--split", "train", capsys=capsys)
    assert [one["file"] for one in report["deltas"]] == [str(file) for file in files]
    assert "accuracy" not in report
    whole = ask("evaluate", run, "--split", "train", capsys=capsys)
    assert report["deltas"][1]["loss"] == pytest.approx(whole["loss"], abs=1e-4)
    assert report["deltas"][0]["loss"] != report["deltas"][1]["loss"]

    assert main(["evaluate", str(run), "--delta", *map(str, files)]) == 0
    head, *rows, _, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["delta", "accuracy", "loss", "examples", "data"]
    assert [row.split()[0] for row in rows] == ["a.safetensors", "b.safetensors"]
    assert last == "by the pretrained model with the changes in each file"
    own = ask("evaluate", run, "--delta", files[1], "--data", place / "mine.csv", capsys=capsys)
    assert own["examples"] == 80


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give one of --keep NUMBER, --share SHARE and --tolerance POINTS"),
        (["--keep", 5, "--share", 0.1], "give one of --keep NUMBER"),
        (["--keep", 0], "--keep"),
        (["--tolerance", -1], "tolerance"),
        (["--keep", 5, "--out", "RUN/final.safetensors"], "belongs to the training itself"),
        (["--keep", 5, "--out", "RUN/nowhere/a.safetensors"], "nowhere"),
        (["--keep", 5, "--weights", "best"], "--weights is 'best', which does not exist"),
        (["--keep", 5, "--split", "test"], "--split is for --evaluate"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(place, argv, message, capsys):
    run = place / "run"
    argv = [str(one).replace("RUN", str(run)) for one in argv]
    assert message in refuse("delta", run, *argv, capsys=capsys)


def test_a_file_that_exists_is_refused_before_anything_is_computed(place, tmp_path, capsys):
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    argv = ["delta", place / "run", "--tolerance", 0, "--out", file]
    assert "exists already" in refuse(*argv, "--data-dir", tmp_path / "none", capsys=capsys)
    assert file.read_text() == "mine"


def test_only_a_fine_tuning_that_has_ended_has_a_delta(place, tmp_path, capsys):
    assert "holds no training" in refuse("delta", tmp_path, "--keep", 5, capsys=capsys)
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.json").write_bytes((place / "run" / "config.json").read_bytes())
    assert "has not ended" in refuse("delta", begun, "--keep", 5, capsys=capsys)


def test_a_model_trained_from_the_start_has_none(place, tmp_path, capsys):
    pytest.importorskip("sklearn")
    argv = ["train", "digits/tiny", "--epochs", "1", "--no-test", "--quiet", "--threads", "1"]
    assert main([*argv, "--out", str(tmp_path / "digits")]) == 0
    file = tmp_path / "a.safetensors"
    ask("delta", place / "run", "--keep", 5, "--out", file, capsys=capsys)
    for command in (
        ["delta", tmp_path / "digits", "--keep", 5],
        ["delta", tmp_path / "digits", "--tolerance", 1],
        ["evaluate", tmp_path / "digits", "--delta", file],
    ):
        assert "trained a model from the start" in refuse(*command, capsys=capsys)
    said = refuse("train", "digits/tiny", "--center", "--out", tmp_path / "x", capsys=capsys)
    assert "nothing to centre its weights at: choose a configuration that fine-tunes" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_a_centre_is_refused_with_optimizers_that_have_none(place, name, capsys):
    said = refuse(
        "train", "sst2/minilm", "--center", "--optimizer", name, "--lr", 0.1, "--show",
        capsys=capsys,
    )  # fmt: skip
    assert f"--center and --optimizer {name}" in said


def test_settings_of_a_centred_training_may_be_chosen(capsys):
    found = ask("train", "sst2/minilm", "--center", "--p", 1.05, "--lr", 0.02, "--weight-decay",
                1.2, "--schedule", "constant", "--show", capsys=capsys)  # fmt: skip
    optimizer = found["optimizer"]
    assert (optimizer["name"], optimizer["center"], optimizer["p"]) == ("MirrorAdam", True, 1.05)
    assert (optimizer["lr"], optimizer["weight_decay"]) == (0.02, 1.2)
    assert optimizer["groups"][0][1]["center"] is False
    assert found["trainable"] == ["blocks", "head.*"]
    assert found["schedule"] == "constant"


def test_deltas_that_do_not_fit_are_one_line_and_exit_2(place, tmp_path, capsys):
    run, file = place / "run", tmp_path / "a.safetensors"
    ask("delta", run, "--keep", 20, "--out", file, capsys=capsys)
    contents = file.read_bytes()
    middle = len(contents) // 2
    flipped = contents[:middle] + bytes([contents[middle] ^ 4]) + contents[middle + 1 :]
    for damaged in (contents[:-10], flipped, b"", b"mine"):
        (tmp_path / "damaged").write_bytes(damaged)
        for command in (["predict", run, TEXTS[0]], ["evaluate", run]):
            said = refuse(*command, "--delta", tmp_path / "damaged", capsys=capsys)
            assert "damaged" in said
    for command in (["predict", run, TEXTS[0]], ["evaluate", run]):
        assert "none" in refuse(*command, "--delta", tmp_path / "none", capsys=capsys)
        both = ["--delta", file, "--weights", "final"]
        assert "--weights and --delta are both given" in refuse(*command, *both, capsys=capsys)


def test_a_delta_belongs_to_its_base_and_its_classes(place, tmp_path, capsys):
    file = tmp_path / "a.safetensors"
    ask("delta", place / "run", "--keep", 20, "--out", file, capsys=capsys)
    write_texts(place / "three.csv", ("no", "yes", "perhaps"))
    assert train(place, "--center", run="three", data="three.csv", epochs=1) == 0
    said = refuse("evaluate", place / "three", "--delta", file, capsys=capsys)
    assert "answers with ['no', 'yes'], the training in" in said
    assert "with ['no', 'perhaps', 'yes']" in said

    from transformers import BertModel

    save_checkpoint("Bert", place / "other")
    other = BertModel.from_pretrained(place / "other")
    with torch.no_grad():
        other.encoder.layer[0].output.dense.weight.add_(0.1)
    other.save_pretrained(place / "other")
    assert train(place, run="elsewhere", checkpoint="other", epochs=1) == 0
    said = refuse("predict", place / "elsewhere", TEXTS[0], "--delta", file, capsys=capsys)
    assert "not the base of this delta" in said

    # Another training from the same base, of the same classes, takes it: the head is in the file.
    assert train(place, "--seed", 5, run="again", epochs=1) == 0
    answers = [
        ask("predict", place / run, *TEXTS, "--delta", file, capsys=capsys)["predictions"]
        for run in ("run", "again")
    ]
    assert answers[0] == answers[1]


def test_a_fine_tuning_of_all_weights_has_a_delta_too(place, capsys):
    assert train(place, run="whole", epochs=1) == 0
    report = ask("delta", place / "whole", "--keep", 100, "--weights", "final", capsys=capsys)
    assert (report["numbers"], report["weights"]) == (100, "final")
    names = load_base(place / "whole").state_dict()
    assert report["of"] == sum(
        one.numel() for name, one in names.items() if not name.startswith("head.")
    )


def test_a_training_that_is_replaced_leaves_no_delta_of_its_own(place, capsys):
    for seed in (1, 2):
        more = ["--overwrite"] if seed == 2 else []
        assert train(place, "--center", "--seed", seed, *more, run="replaced", epochs=1) == 0
        ask("delta", place / "replaced", "--keep", 10, capsys=capsys)


def test_a_centred_training_resumes_to_the_same_bits(place):
    from mirrormargin.training.loop import train_model

    config = TrainingFolder(place / "run").read_config()

    def stop(step, num_steps, known):
        if step == 5:
            raise KeyboardInterrupt

    folder = place / "resumed"
    with pytest.raises(KeyboardInterrupt):
        train_model(config, folder=folder, on_step=stop, checkpoint_every=0.0)
    train_model(config, folder=folder)
    for name in ("final", "selected"):
        whole, resumed = (load_model(one, weights=name) for one in (place / "run", folder))
        pairs = zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
