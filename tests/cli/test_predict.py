"""``mirrormargin predict``: the answers are those of the trained model."""

import io
import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from mirrormargin.cli import main
from mirrormargin.data import load_data
from mirrormargin.training.building import load_model
from mirrormargin.training.evaluation import evaluate

Image = pytest.importorskip("PIL.Image")

TRAIN = ["--threads", "1", "--no-test", "--quiet"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of a training on images, and files of test images with their classes."""
    folder = tmp_path_factory.mktemp("predict")
    argv = ["train", "digits/tiny", "--optimizer", "AdamW", "--epochs", "3", *TRAIN]
    assert main([*argv, "--out", str(folder / "run")]) == 0
    test = load_data("digits").test
    for number in range(40):
        Image.fromarray(test.inputs[number, 0].numpy()).save(folder / f"{number}.png")
    return folder / "run", [str(folder / f"{number}.png") for number in range(40)]


@pytest.fixture
def reviews(data_dir, tmp_path, capsys):
    """The folder of a training on texts of one's own."""
    words = ("bad", "good", "dull", "great")
    rows = [f"the plot was{' x' * k} {words[k % 4]}!,{('no', 'yes')[k % 2]}" for k in range(80)]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    argv = ["train", "sst2/small", "--data", str(path), "--out", str(tmp_path / "run")]
    assert main([*argv, *TRAIN, "--epochs", "25", "--batch-size", "8"]) == 0
    capsys.readouterr()
    return tmp_path / "run"


def ask(*argv, capsys):
    assert main(["predict", *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["predictions"]


def test_images_get_the_classes_of_the_model(digits, capsys):
    run, paths = digits
    answers = ask(run, *paths, capsys=capsys)
    data = load_data("digits")
    model = load_model(run, data)
    with torch.no_grad():
        logits = model(data.test.inputs[:40])
    assert [answer["input"] for answer in answers] == paths
    assert [answer["class"] for answer in answers] == [
        data.classes[k] for k in logits.argmax(dim=1)
    ]
    right = sum(
        answer["class"] == str(int(label))
        for answer, label in zip(answers, data.test.labels[:40], strict=True)
    )
    assert 100 * right / 40 == pytest.approx(evaluate(model, data.test, 40)[1])
    shares = torch.tensor([list(answer["probabilities"].values()) for answer in answers])
    torch.testing.assert_close(shares, logits.softmax(dim=1), rtol=0, atol=2e-6)


def test_a_pruned_file_answers_for_itself(digits, tmp_path, capsys):
    run, paths = digits
    out = tmp_path / "pruned.safetensors"
    argv = ["prune", str(run), "--share", "0.995", "--format", "sparse", "--out", str(out)]
    assert main([*argv, "--quiet"]) == 0
    capsys.readouterr()
    whole = ask(run, *paths[:5], "--weights", "final", capsys=capsys)
    pruned = ask(run, *paths[:5], "--weights", out, capsys=capsys)
    model = load_model(run, weights=str(out))
    with torch.no_grad():
        shares = model(load_data("digits").test.inputs[:5]).softmax(dim=1)
    found = torch.tensor([list(answer["probabilities"].values()) for answer in pruned])
    torch.testing.assert_close(found, shares, rtol=0, atol=2e-6)
    assert pruned != whole


def test_texts_of_arguments_files_and_stdin(reviews, tmp_path, capsys, monkeypatch):
    lines = "the plot was good!\r\nthe plot \x85 was dull!\n\n  the film was x great\n"
    (tmp_path / "more.txt").write_bytes(lines.encode("utf-8-sig"))
    answers = ask(reviews, "--lines", tmp_path / "more.txt", "--attention", capsys=capsys)
    assert [answer["class"] for answer in answers] == ["yes", "no", "yes"]
    for answer in answers:
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert answer["probability"] == max(answer["probabilities"].values())
        assert answer["probability"] == answer["probabilities"][answer["class"]]
        assert sum(weight for _, weight in answer["attention"]) == pytest.approx(1, abs=1e-4)
    tokens = [token for token, _ in answers[1]["attention"]]
    assert tokens == ["[CLS]", "the", "plot", "was", "dull", "!", "[SEP]"]

    for argv in (["--lines", "-"], ["-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the plot was good!\n")))
        (answer,) = ask(reviews, *argv, "--attention", capsys=capsys)
        assert answer == answers[0]
    assert ask(reviews, "--attention", "the plot was good!", capsys=capsys) == [answer]


def test_a_model_answers_without_the_data_it_was_trained_on(reviews, tmp_path, capsys, monkeypatch):
    before = ask(reviews, "the plot was good!", capsys=capsys)
    (tmp_path / "reviews.csv").unlink()
    shutil.rmtree(tmp_path / "data")
    monkeypatch.delenv("MIRRORMARGIN_DATA")
    assert ask(reviews, "the plot was good!", capsys=capsys) == before


def test_the_table_shows_what_is_attended_to(reviews, capsys):
    text = "the plot was good!" + " x" * 40
    (answer,) = ask(reviews, text, "--attention", capsys=capsys)
    assert main(["predict", str(reviews), text, "--attention"]) == 0
    head, row, _, last = capsys.readouterr().out.splitlines()
    assert last == "by the weights of the best epoch on validation data (selected)"
    assert head.split() == ["class", "probability", "attends", "to", "input"]
    words = [pair for pair in answer["attention"] if pair[0] not in ("[CLS]", "[SEP]")]
    best = max(words, key=lambda pair: pair[1])
    cells = row.split()
    assert cells[:4] == [answer["class"], f"{answer['probability']:.1%}", best[0], f"{best[1]:.2f}"]
    assert row.endswith("x ... x x x x x x x x x x x x x x")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere", "x"], "nowhere holds no training on real data"),
        (["begun", "x"], "the training has not ended"),
        (["x" * 500, "x"], "xxx holds no training on real data"),
        (["RUN"], "INPUT is missing"),
        (["RUN", "IMAGE", "--atention"], "no option --atention: did you mean --attention?"),
        (["RUN", "--lines", "empty.txt"], "empty.txt: there is nothing in it to predict"),
        (["RUN", "--lines", "none.txt"], "'none.txt' cannot be read: No such file"),
        (["RUN", "--lines", "damaged.txt"], "damaged.txt is no text in UTF-8"),
        (["RUN", "IMAGE", "--weights", "other"], "other holds no weights of the model in"),
        (["RUN", "none.png"], "none.png cannot be read as an image"),
        (["RUN", "IMAGE", "--weights", "best"], "--weights is 'best', which does not exist"),
        (["RUN", "IMAGE", "--attention"], "--attention shows tokens of texts"),
        (["damaged", "IMAGE"], "inputs.json is damaged"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(digits, argv, message, tmp_path, monkeypatch, capsys):
    run, paths = digits
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.txt").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "empty.txt").write_text("\n \n")
    save_file({"weight": torch.zeros(2)}, tmp_path / "other")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/config.json").write_bytes((run / "config.json").read_bytes())
    shutil.copytree(run, tmp_path / "damaged")
    (tmp_path / "damaged/inputs.json").write_text("[]")
    names = {"RUN": str(run), "IMAGE": paths[0]}
    assert main(["predict", *(names.get(word, word) for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
