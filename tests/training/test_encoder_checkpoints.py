"""Encoders of four kinds with tokenizers of their own: read, trained, evaluated, asked."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch
from encoder_checkpoints import KINDS, save_checkpoint
from part_models import zero_parts

from mirrormargin.cli import main
from mirrormargin.data import load_data
from mirrormargin.data.encoder_tokens import parse_tokenizer
from mirrormargin.data.encoding import encode_texts, make_encoder
from mirrormargin.errors import DataError, ModelError
from mirrormargin.models import PretrainedEncoder
from mirrormargin.models.checkpoints import read_tokenizer
from mirrormargin.optim.parts import find_parts
from mirrormargin.training.building import build_model, load_model, load_training_data
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.folder import TrainingFolder
from mirrormargin.training.loop import train_model
from mirrormargin.training.sparsity import select_matrices
from mirrormargin.training.summary import summarize_training

transformers = pytest.importorskip("transformers")

ONE, OTHER = "A dull film, with a good cast.", "The plot was good"


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    if not hasattr(transformers, f"{request.param}Model"):
        pytest.skip(f"transformers {transformers.__version__} has no {request.param}")
    return request.param


@pytest.fixture(scope="module")
def checkpoint(kind, tmp_path_factory):
    return save_checkpoint(kind, tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """RTE in small."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "glue" / "rte").mkdir(parents=True)
    for part, count in (("train", 90), ("dev", 12)):
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for k in range(count):
            label = ("entailment", "not_entailment")[k % 2]
            lines.append(f"{k}\tfilm {part} {k} was {label[:3]}\tthe film {part} {k}\t{label}")
        text = "".join(f"{line}\n" for line in lines)
        (folder / "glue" / "rte" / f"{part}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small gain nothing from more
    yield
    torch.set_num_threads(threads)


def configure(checkpoint, **changes):
    return find_configuration(
        "rte/minilm",
        {
            "model.pretrained": str(checkpoint),
            "model.dropout": 0.0,
            "data.length": 32,
            "epochs": 1,
            "epoch_steps": 3,
            "batch_size": 8,
            "optimizer.lr": 1e-3,
            **changes,
        },
    )


def test_rows_are_what_the_checkpoints_tokenizer_makes_of_texts_and_pairs(checkpoint, data_dir):
    data = load_training_data(configure(checkpoint), data_dir=data_dir)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    for form, texts in ((data, (ONE, OTHER)), (replace(data, num_texts=1), (ONE,))):
        expected = tokenizer(*texts)["input_ids"]
        (row,) = encode_texts(["\t".join(texts)], form).tolist()
        assert row[: len(expected)] == expected
        assert set(row[len(expected) :]) <= {tokenizer.pad_token_id}


def test_logits_are_those_of_transformers(checkpoint, data_dir):
    data = load_training_data(configure(checkpoint), data_dir=data_dir)
    model = build_model(configure(checkpoint), data).eval()
    assert isinstance(model, PretrainedEncoder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    backbone = transformers.AutoModel.from_pretrained(checkpoint).eval()
    pairs = [(ONE, OTHER), (OTHER, "good")]
    batch = tokenizer(
        *map(list, zip(*pairs, strict=True)),
        padding=True,
        return_tensors="pt",
        return_token_type_ids=model.backbone.config.model_type == "bert",
    )
    with torch.no_grad():
        hidden = backbone(**batch).last_hidden_state
        expected = hidden[:, 0] @ model.head.weight.T + model.head.bias
        logits = model(encode_texts(["\t".join(pair) for pair in pairs], data))
    torch.testing.assert_close(logits, expected)


def test_token_types_are_for_encoders_whose_tokenizer_has_them(kind, checkpoint, data_dir):
    data = load_training_data(configure(checkpoint), data_dir=data_dir)
    model = build_model(configure(checkpoint), data)
    assert isinstance(model, PretrainedEncoder)
    inputs = model._inputs(data.train.inputs[:2])
    assert ("token_type_ids" in inputs) == (kind == "Bert")


def test_a_special_token_that_is_written_out_is_a_word(checkpoint, data_dir):
    data = load_training_data(configure(checkpoint), data_dir=data_dir)
    assert data.encoder_tokenizer is not None
    framing = parse_tokenizer(data.encoder_tokenizer).framing
    for written in ("[PAD]", "<pad>", "[SEP]", "</s>"):
        row = encode_texts([f"film {written} good\tthe film"], data)[0].tolist()
        text = row[: len(row) - row[::-1].count(framing.padding)]
        assert framing.padding not in text
        marks = len(framing.between) + len(framing.after)
        assert text.count(framing.after[0]) == marks


def test_as_many_tokens_as_there_are_positions_can_be_read(kind, checkpoint, data_dir):
    most = 40 - 2 * (kind == "Roberta")  # which begins to count at 2
    config = configure(checkpoint, **{"data.length": 48})
    data = load_training_data(config, data_dir=data_dir)
    model = build_model(config, data)
    row = encode_texts([f"{'film ' * 60}\tgood"], data)
    assert model(row[:, :most]).isfinite().all()
    if kind != "ModernBert":  # it turns positions into angles, and has no table of them
        with pytest.raises(ModelError, match=f"{most + 1} tokens .* {most} positions"):
            model(row[:, : most + 1])


def test_the_folder_of_a_training_is_all_that_is_needed(
    checkpoint, data_dir, tmp_path, capsys, monkeypatch
):
    here = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, here)
    config, run = configure(here), tmp_path / "run"
    data = load_training_data(config, data_dir=data_dir)
    training = train_model(config, data, run)
    before = build_model(config, data).state_dict()
    moved = [name for name, weight in training.final.items() if not weight.equal(before[name])]
    assert any("head" in name for name in moved)
    assert any("backbone" in name for name in moved)
    summary = summarize_training(training, data)
    assert summary["weights"]["all"]["entries"] == 3 * 2 * 16 * 16
    TrainingFolder(run).write_summary(summary)
    shutil.rmtree(here)

    text = f"{ONE}\t{OTHER}"
    assert main(["predict", str(run), text, "--attention", "--json", "--weights", "final"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["predictions"]
    model = load_model(run, weights="final")
    shares = model(encode_texts([text], TrainingFolder(run).read_inputs())).softmax(1)[0]
    assert list(answer["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-6)
    assert sum(weight for _, weight in answer["attention"]) == pytest.approx(1, abs=1e-3)
    assert not answer["unknown"]
    assert not answer["cut"]
    assert str(tmp_path) not in json.dumps(TrainingFolder(run).read_architecture())

    monkeypatch.setenv("MIRRORMARGIN_DATA", str(data_dir))
    assert main(["evaluate", str(run), "--split", "test", "--weights", "final", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == pytest.approx(summary["test"]["last"], abs=1e-3)
    assert main(["prune", str(run), "--share", "0.5", "--evaluate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["zeros"] > 0
    assert main(["predict", str(run), text]) == 0
    assert ONE[:20] in capsys.readouterr().out


def test_an_encoder_that_was_shrunk_is_all_that_is_needed(
    checkpoint, data_dir, tmp_path, capsys, monkeypatch
):
    here, run, small = tmp_path / "checkpoint", tmp_path / "run", tmp_path / "small"
    shutil.copytree(checkpoint, here)
    data = load_training_data(configure(here), data_dir=data_dir)
    train_model(configure(here), data, run)
    shutil.rmtree(here)
    command = ["shrink", str(run), "--heads", "0.5", "--units", "0.3", "--out", str(small)]
    assert main([*command, "--batch", "2", "--length", "8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    whole, smaller = load_model(run), load_model(small)
    for kind in ("heads", "units"):
        parts = find_parts(whole, kind)
        gone = [torch.zeros(one["before"], dtype=torch.bool) for one in report[kind]]
        for its, one in zip(gone, report[kind], strict=True):
            its[one["removed"]] = True
        zero_parts(parts, gone)
    rows = data.validation.inputs[:4]
    with torch.no_grad():
        torch.testing.assert_close(smaller(rows), whole(rows), rtol=1e-4, atol=1e-5)

    monkeypatch.setenv("MIRRORMARGIN_DATA", str(data_dir))
    assert main(["predict", str(small), f"{ONE}\t{OTHER}", "--attention"]) == 0
    assert f"shrunk from the selected weights of {run}" in capsys.readouterr().out
    assert main(["evaluate", str(small), "--json"]) == 0
    capsys.readouterr()
    assert main(["prune", str(small), "--share", "0.5", "--evaluate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == count_entries(smaller)
    assert main(["delta", str(small), "--keep", "3"]) == 2
    assert "holds no training, but a model that was shrunk" in capsys.readouterr().err


def count_entries(model):
    return sum(matrix.numel() for matrix in select_matrices(model, "blocks").values())


def test_texts_of_ones_own_are_read_by_the_encoders_tokenizer(checkpoint, tmp_path, capsys):
    path = tmp_path / "mine.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = [(f"film {k} was {'good' if k % 2 else 'dull'}", k % 2) for k in range(40)]
        csv.writer(file).writerows([("text", "label"), *rows])
    command = ["train", "rte/minilm", "--data", str(path), "--out", str(tmp_path / "run")]
    settings = (f"model.pretrained={json.dumps(str(checkpoint))}", "epoch_steps=3")
    options = [option for setting in settings for option in ("--set", setting)]
    more = ["--epochs", "1", "--length", "24", "--batch-size", "8", "--quiet"]
    assert main([*command, *options, *more]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(path)]) == 0
    assert "40" in capsys.readouterr().out
    form = TrainingFolder(tmp_path / "run").read_inputs()
    assert form.vocabulary is None
    ids, tokens = make_encoder(form)("film")
    assert len(ids) == len(tokens)
    assert "".join(tokens[1:-1]).replace("##", "") == "film"


def test_minilm_is_read_by_our_own_word_pieces():
    assert read_tokenizer("minilm") is None


def test_a_bert_without_a_tokenizer_is_read_by_our_own_word_pieces_or_refused(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    for vocab_size in (30_522, 500):
        config = transformers.BertConfig(vocab_size=vocab_size, intermediate_size=8, **sizes)
        transformers.BertModel(config).save_pretrained(tmp_path / str(vocab_size))
    assert read_tokenizer(tmp_path / "30522") is None
    with pytest.raises(ModelError, match=r"has no tokenizer .*tokenizer\.json"):
        read_tokenizer(tmp_path / "500")


def test_a_vocabulary_of_words_is_refused_for_an_encoders_tokenizer(checkpoint, data_dir):
    document = read_tokenizer(checkpoint)
    with pytest.raises(DataError, match="leave out vocab_size"):
        load_data("rte", data_dir=data_dir, vocab_size=100, encoder_tokenizer=document)


@pytest.mark.parametrize("document", ["", "{}", '{"model": null}'])
def test_what_is_no_tokenizer_is_refused(document):
    with pytest.raises(DataError, match="no tokenizer"):
        parse_tokenizer(document)
